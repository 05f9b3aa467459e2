"""ELECTRA (Clark et al. 2020): a discriminator that tells which words a small generator has replaced.

BERT with tables that may be smaller than the model. Generator and discriminator are the same network with different
heads.
"""

from dataclasses import replace
from typing import Any

from regard.families import bert
from regard.families.bert import dropout
from regard.families.family import Architecture, Family, Story, Theirs
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Activation,
    Classification,
    DecoderOnly,
    EncoderOnly,
    Head,
    LanguageModel,
    LayerNorm,
    Pooling,
    Projection,
    ReplacedTokens,
    Span,
    Tagging,
    Transform,
)

KEYS = {
    **bert.KEYS,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
    "summary_last_dropout": 0.1,
}


def network(theirs: Theirs, head: Head | None) -> EncoderOnly | DecoderOnly:
    """The network of a config."""
    design, size = bert.network(theirs, head), theirs["embedding_size"]
    smaller = None if size == theirs["hidden_size"] else Projection(bias=True)
    return replace(design, embedding=replace(design.embedding, dim=size, projection=smaller))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    head = design.head
    choosing = isinstance(head, Classification) and head.labels == 1 and not head.input_dropout
    return {
        **bert.describe(design),
        "embedding_size": design.embedding.dim,
        "summary_last_dropout": getattr(head, "dropout", 0.1) if choosing else KEYS["summary_last_dropout"],
    }


def words(theirs: Theirs) -> LanguageModel:
    """The generator's head: GELU whatever the network's activation."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return replace(bert.words(theirs), transform=Transform(activation=Activation.GELU, norm=norm))


def replaced(theirs: Theirs) -> ReplacedTokens:
    """The discriminator's head: one score a token."""
    return ReplacedTokens(transform=Transform(activation=theirs.activation("hidden_act"), norm=None))


def sentence(theirs: Theirs) -> Classification:
    """A head that scores the row by its first token's vector."""
    return Classification(
        labels=theirs.labels,
        pooling=Pooling.FIRST,
        transform=Transform(activation=Activation.GELU, norm=None),
        bias=True,
        input_dropout=dropout(theirs),
        dropout=dropout(theirs),
    )


def choice(theirs: Theirs) -> Classification:
    """One score for each choice."""
    theirs.require("summary_type", "first")
    theirs.require("summary_use_proj", True)
    transform = Transform(activation=theirs.activation("summary_activation"), norm=None)
    rate = theirs["summary_last_dropout"]
    return Classification(labels=1, pooling=Pooling.FIRST, transform=transform, bias=True, dropout=rate)


WORDS = (
    Entry("generator_predictions.dense", "head.transform.dense"),
    Entry("generator_predictions.LayerNorm", "head.transform.norm"),
    Entry("generator_lm_head", "head.output"),
    Entry("generator_lm_head", "head"),
)

FAMILY = Family(
    name="electra",
    story=Story(
        title="ELECTRA",
        year=2020,
        paper="Clark et al., ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
        objective="tell replaced words from real ones",
        parent="BERT",
    ),
    keys=KEYS,
    ignored={"summary_proj_to_labels": "the head that it speaks of has its own size"},
    ignored_weights={"@embeddings.position_ids": "the numbers 0, 1, 2, …"},
    kinds=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=lambda design: (
        *bert.weights(design, last_layer=None),
        Entry("@embeddings_project", "embedding.projection"),
    ),
    architectures={
        "ElectraModel": Architecture(head=lambda _: None),
        "ElectraForPreTraining": Architecture(
            base="electra.",
            head=replaced,
            weights=(
                Entry("discriminator_predictions.dense", "head.transform.dense"),
                Entry("discriminator_predictions.dense_prediction", "head.output"),
            ),
        ),
        "ElectraForMaskedLM": Architecture(base="electra.", head=words, weights=WORDS),
        "ElectraForCausalLM": Architecture(base="electra.", head=words, weights=WORDS),
        "ElectraForSequenceClassification": Architecture(
            base="electra.",
            head=sentence,
            weights=(
                Entry("classifier.dense", "head.transform.dense"),
                Entry("classifier.out_proj", "head.output"),
            ),
        ),
        "ElectraForMultipleChoice": Architecture(
            base="electra.",
            head=choice,
            weights=(
                Entry("sequence_summary.summary", "head.transform.dense"),
                Entry("classifier", "head.output"),
            ),
        ),
        "ElectraForTokenClassification": Architecture(
            base="electra.",
            head=lambda t: Tagging(labels=t.labels, bias=True, dropout=dropout(t)),
            weights=(Entry("classifier", "head.output"),),
        ),
        "ElectraForQuestionAnswering": Architecture(
            base="electra.",
            head=lambda t: Span(labels=t.labels, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
    },
    presets={
        f"electra-{size}-{kind}": {"architectures": [name], **keys}
        for kind, name, sizes in [
            (
                "discriminator",
                "ElectraForPreTraining",
                {
                    "small": dict(),
                    "base": dict(embedding_size=768, hidden_size=768, num_attention_heads=12, intermediate_size=3072),
                    "large": dict(
                        embedding_size=1024,
                        hidden_size=1024,
                        num_hidden_layers=24,
                        num_attention_heads=16,
                        intermediate_size=4096,
                    ),
                },
            ),
            (
                "generator",
                "ElectraForMaskedLM",
                {
                    "small": dict(),
                    "base": dict(embedding_size=768),
                    "large": dict(embedding_size=1024, num_hidden_layers=24),
                },
            ),
        ]
        for size, keys in sizes.items()
    },
)
