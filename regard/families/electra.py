"""ELECTRA (Clark et al. 2020): a discriminator that detects which tokens a small generator has replaced.

BERT with embeddings that may be smaller than the model (factorized). Generator and discriminator are the same network
with different heads.
"""

from dataclasses import replace
from typing import Any

from regard.families import bert
from regard.families.bert import classifier_dropout
from regard.families.family import Architecture, Family, FamilyInfo, PublishedConfig
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


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly | DecoderOnly:
    """Return the network config of a published config."""
    design, embedding_size = bert.network(theirs, head), theirs["embedding_size"]
    projection = None if embedding_size == theirs["hidden_size"] else Projection(bias=True)
    return replace(design, embedding=replace(design.embedding, dim=embedding_size, projection=projection))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    head = design.head
    is_multiple_choice = isinstance(head, Classification) and head.labels == 1 and not head.input_dropout
    return {
        **bert.describe(design),
        "embedding_size": design.embedding.dim,
        "summary_last_dropout": getattr(head, "dropout", 0.1) if is_multiple_choice else KEYS["summary_last_dropout"],
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the generator's head: masked language modelling, always with GELU."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return replace(bert.language_model_head(theirs), transform=Transform(activation=Activation.GELU, norm=norm))


def replaced_token_head(theirs: PublishedConfig) -> ReplacedTokens:
    """Return the config of the discriminator's head: replaced-token detection, one logit per token."""
    return ReplacedTokens(transform=Transform(activation=theirs.activation("hidden_act"), norm=None))


def classification_head(theirs: PublishedConfig) -> Classification:
    """Return the config of a sequence-classification head on the first token."""
    return Classification(
        labels=theirs.num_labels,
        pooling=Pooling.FIRST,
        transform=Transform(activation=Activation.GELU, norm=None),
        bias=True,
        input_dropout=classifier_dropout(theirs),
        dropout=classifier_dropout(theirs),
    )


def multiple_choice_head(theirs: PublishedConfig) -> Classification:
    """Return the config of the multiple-choice head: one logit per choice."""
    theirs.require("summary_type", "first")
    theirs.require("summary_use_proj", True)
    transform = Transform(activation=theirs.activation("summary_activation"), norm=None)
    dropout = theirs["summary_last_dropout"]
    return Classification(labels=1, pooling=Pooling.FIRST, transform=transform, bias=True, dropout=dropout)


LANGUAGE_MODEL_WEIGHTS = (
    Entry("generator_predictions.dense", "head.transform.dense"),
    Entry("generator_predictions.LayerNorm", "head.transform.norm"),
    Entry("generator_lm_head", "head.output"),
    Entry("generator_lm_head", "head"),
)

FAMILY = Family(
    name="electra",
    info=FamilyInfo(
        title="ELECTRA",
        year=2020,
        paper="Clark et al., ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
        objective="replaced-token detection",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_keys={"summary_proj_to_labels": "the summary head has a fixed size"},
    ignored_weights={"@embeddings.position_ids": "position ids 0, 1, 2, …"},
    network_types=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=lambda design: (
        *bert.weights(design, output_layer=None),
        Entry("@embeddings_project", "embedding.projection"),
    ),
    architectures={
        "ElectraModel": Architecture(head=lambda _: None),
        "ElectraForPreTraining": Architecture(
            prefix="electra.",
            head=replaced_token_head,
            weights=(
                Entry("discriminator_predictions.dense", "head.transform.dense"),
                Entry("discriminator_predictions.dense_prediction", "head.output"),
            ),
        ),
        "ElectraForMaskedLM": Architecture(prefix="electra.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
        "ElectraForCausalLM": Architecture(prefix="electra.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
        "ElectraForSequenceClassification": Architecture(
            prefix="electra.",
            head=classification_head,
            weights=(
                Entry("classifier.dense", "head.transform.dense"),
                Entry("classifier.out_proj", "head.output"),
            ),
        ),
        "ElectraForMultipleChoice": Architecture(
            prefix="electra.",
            head=multiple_choice_head,
            weights=(
                Entry("sequence_summary.summary", "head.transform.dense"),
                Entry("classifier", "head.output"),
            ),
        ),
        "ElectraForTokenClassification": Architecture(
            prefix="electra.",
            head=lambda t: Tagging(labels=t.num_labels, bias=True, dropout=classifier_dropout(t)),
            weights=(Entry("classifier", "head.output"),),
        ),
        "ElectraForQuestionAnswering": Architecture(
            prefix="electra.",
            head=lambda t: Span(labels=t.num_labels, bias=True),
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
