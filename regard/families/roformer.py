"""RoFormer (Su et al. 2021): BERT that knows how far apart words are, because queries and keys are turned.

The paper of rotary positions. Nothing is added at the embedding, whose tables may be smaller than the model.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.families import bert
from regard.families.bert import stack
from regard.families.family import Architecture, ConfigError, Family, Maybe, Story, Theirs
from regard.families.sinusoids import sinusoids
from regard.families.weight_map import Entry, Interleaved
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
    "embedding_size": Maybe(int),
    "max_position_embeddings": 1536,
    "rotary_value": False,
}


def network(theirs: Theirs, head: Head | None) -> EncoderOnly | DecoderOnly:
    """The network of a config: BERT's, with its positions in another place."""
    theirs.require("rotary_value", False)
    if theirs.divide("hidden_size", "num_attention_heads") % 2:
        raise ConfigError("config.json: hidden_size / num_attention_heads is odd, and numbers are turned in pairs")
    design, size = bert.network(theirs, head), theirs["embedding_size"] or theirs["hidden_size"]
    smaller = None if size == theirs["hidden_size"] else Projection(bias=True)
    turned = Rotary(base=10000.0, length=theirs["max_position_embeddings"], stretch=None)
    embedding = replace(design.embedding, dim=size, projection=smaller, position=None)
    if isinstance(design, DecoderOnly):
        return replace(design, embedding=embedding, decoder=replace(design.decoder, position=turned))
    return replace(design, embedding=embedding, encoder=replace(design.encoder, position=turned))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    length = stack(design).position.length  # type: ignore[union-attr]
    like_bert = replace(design, embedding=replace(design.embedding, position=Learned(length=length, offset=0)))
    described = {**bert.describe(like_bert), "embedding_size": design.embedding.dim}
    del described["classifier_dropout"]
    return described


def sentence(theirs: Theirs) -> Classification:
    """A head that scores the row by its first token's vector."""
    return Classification(
        labels=theirs.labels,
        pooling=Pooling.FIRST,
        transform=Transform(activation=theirs.activation("hidden_act"), norm=None),
        bias=True,
        input_dropout=theirs["hidden_dropout_prob"],
        dropout=theirs["hidden_dropout_prob"],
    )


def weights(design: EncoderOnly | DecoderOnly) -> tuple[Entry, ...]:
    """BERT's, but the pairs that are turned together lie side by side."""
    pairs = Interleaved(heads=stack(design).blocks[0].attention.heads)
    turned = (".attention.project.query", ".attention.project.key")
    entries = (
        replace(entry, how=pairs) if entry.parts[0].endswith(turned) else entry for entry in bert.weights(design)
    )
    return (*entries, Entry("@embeddings_project", "embedding.projection"))


def sines(design: EncoderOnly | DecoderOnly, base: str) -> dict[str, Tensor]:
    """Sines and cosines of the angles as a table, which its readers expect."""
    head_dim, position = stack(design).blocks[0].attention.head_dim, stack(design).position
    assert isinstance(position, Rotary)
    return {f"{base}encoder.embed_positions.weight": sinusoids(position.length, head_dim)}


def inside(head: Callable[[Theirs], Head | None], *entries: Entry) -> Architecture:
    """A published class that holds the network as `roformer`, with a head whose weights are these."""
    return Architecture(
        base="roformer.", head=head, weights=entries, computed=lambda design: sines(design, "roformer.")
    )


FAMILY = Family(
    name="roformer",
    story=Story(
        title="RoFormer",
        year=2021,
        paper="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding",
        objective="fill in masked words",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_weights={
        "@encoder.embed_positions.weight": "sines and cosines, which are computed",
        "cls.predictions.bias": "unused where cls.predictions.decoder.bias differs from it",
    },
    kinds=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "RoFormerModel": Architecture(head=lambda _: None, computed=lambda design: sines(design, "")),
        "RoFormerForMaskedLM": inside(bert.words, *bert.WORDS),
        "RoFormerForCausalLM": inside(bert.words, *bert.WORDS),
        "RoFormerForSequenceClassification": inside(
            sentence,
            Entry("classifier.dense", "head.transform.dense"),
            Entry("classifier.out_proj", "head.output"),
        ),
        "RoFormerForTokenClassification": inside(
            lambda t: Tagging(labels=t.labels, bias=True, dropout=t["hidden_dropout_prob"]),
            Entry("classifier", "head.output"),
        ),
        "RoFormerForQuestionAnswering": inside(lambda _: Span(labels=2, bias=True), Entry("qa_outputs", "head.output")),
    },
    presets={"roformer-base": {"architectures": ["RoFormerForMaskedLM"]}},
)
