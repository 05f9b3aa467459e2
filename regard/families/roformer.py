"""RoFormer (Su et al. 2021): BERT with rotary position embeddings (RoPE), which this paper introduced.

Queries and keys are rotated, so attention scores depend on distance. No positions are added to the embedding, which may
be smaller than the model (factorized).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.families import bert
from regard.families.bert import get_stack
from regard.families.family import Architecture, ConfigError, Family, FamilyInfo, OptionalKey, PublishedConfig
from regard.families.sinusoids import sinusoids
from regard.families.weight_map import Entry, InterleavedRotary
from regard.transformer.config import (
    Classification,
    DecoderOnly,
    EncoderOnly,
    Head,
    Learned,
    Pooling,
    Projection,
    Rotary,
    Span,
    Tagging,
    Transform,
)

KEYS = {
    **{key: value for key, value in bert.KEYS.items() if key != "classifier_dropout"},
    "vocab_size": 50000,
    "embedding_size": OptionalKey(int),
    "max_position_embeddings": 1536,
    "rotary_value": False,
}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly | DecoderOnly:
    """Return the network config of a published config: BERT's, with rotary positions in the attention."""
    theirs.require("rotary_value", False)
    if theirs.head_dim("hidden_size", "num_attention_heads") % 2:
        raise ConfigError(
            "config.json: hidden_size / num_attention_heads is odd, but rotary positions need an even head size"
        )
    design, embedding_size = bert.network(theirs, head), theirs["embedding_size"] or theirs["hidden_size"]
    projection = None if embedding_size == theirs["hidden_size"] else Projection(bias=True)
    rotary = Rotary(base=10000.0, length=theirs["max_position_embeddings"], stretch=None)
    embedding = replace(design.embedding, dim=embedding_size, projection=projection, position=None)
    if isinstance(design, DecoderOnly):
        return replace(design, embedding=embedding, decoder=replace(design.decoder, position=rotary))
    return replace(design, embedding=embedding, encoder=replace(design.encoder, position=rotary))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    length = get_stack(design).position.length  # type: ignore[union-attr]
    like_bert = replace(design, embedding=replace(design.embedding, position=Learned(length=length, offset=0)))
    published = {**bert.describe(like_bert), "embedding_size": design.embedding.dim}
    del published["classifier_dropout"]
    return published


def classification_head(theirs: PublishedConfig) -> Classification:
    """Return the config of a sequence-classification head on the first token."""
    return Classification(
        labels=theirs.num_labels,
        pooling=Pooling.FIRST,
        transform=Transform(activation=theirs.activation("hidden_act"), norm=None),
        bias=True,
        input_dropout=theirs["hidden_dropout_prob"],
        dropout=theirs["hidden_dropout_prob"],
    )


def weights(design: EncoderOnly | DecoderOnly) -> tuple[Entry, ...]:
    """Return BERT's weight map, with query and key weights whose rotary pairs are adjacent."""
    interleaved = InterleavedRotary(heads=get_stack(design).blocks[0].attention.heads)
    rotated = (".attention.project.query", ".attention.project.key")
    entries = (
        replace(entry, how=interleaved) if entry.parts[0].endswith(rotated) else entry for entry in bert.weights(design)
    )
    return (*entries, Entry("@embeddings_project", "embedding.projection"))


def position_buffers(design: EncoderOnly | DecoderOnly, prefix: str) -> dict[str, Tensor]:
    """Return the sines and cosines of the rotation angles as a table, which readers of the published layout expect."""
    head_dim, position = get_stack(design).blocks[0].attention.head_dim, get_stack(design).position
    assert isinstance(position, Rotary)
    return {f"{prefix}encoder.embed_positions.weight": sinusoids(position.length, head_dim)}


def roformer_architecture(head: Callable[[PublishedConfig], Head | None], *entries: Entry) -> Architecture:
    """Return a published class with the prefix `roformer.`; `entries` is the weight map of its head."""
    return Architecture(
        prefix="roformer.", head=head, weights=entries, buffers=lambda design: position_buffers(design, "roformer.")
    )


FAMILY = Family(
    name="roformer",
    info=FamilyInfo(
        title="RoFormer",
        year=2021,
        paper="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding",
        objective="masked language modelling",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_weights={
        "@encoder.embed_positions.weight": "sinusoidal table, which is computed",
        "cls.predictions.bias": "unused if cls.predictions.decoder.bias differs from it",
    },
    network_types=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "RoFormerModel": Architecture(head=lambda _: None, buffers=lambda design: position_buffers(design, "")),
        "RoFormerForMaskedLM": roformer_architecture(bert.language_model_head, *bert.LANGUAGE_MODEL_WEIGHTS),
        "RoFormerForCausalLM": roformer_architecture(bert.language_model_head, *bert.LANGUAGE_MODEL_WEIGHTS),
        "RoFormerForSequenceClassification": roformer_architecture(
            classification_head,
            Entry("classifier.dense", "head.transform.dense"),
            Entry("classifier.out_proj", "head.output"),
        ),
        "RoFormerForTokenClassification": roformer_architecture(
            lambda t: Tagging(labels=t.num_labels, bias=True, dropout=t["hidden_dropout_prob"]),
            Entry("classifier", "head.output"),
        ),
        "RoFormerForQuestionAnswering": roformer_architecture(
            lambda _: Span(labels=2, bias=True), Entry("qa_outputs", "head.output")
        ),
    },
    presets={"roformer-base": {"architectures": ["RoFormerForMaskedLM"]}},
)
