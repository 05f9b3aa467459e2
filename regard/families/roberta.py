"""RoBERTa (Liu et al. 2019): BERT, trained longer on more data, without next-sentence prediction.

Its position ids start after the padding id: with padding 1, the first token has row 2 of the position embedding.
"""

from dataclasses import replace
from typing import Any

from regard.families import bert
from regard.families.bert import POOLER_TRANSFORM, classifier_dropout
from regard.families.family import Architecture, ConfigError, Family, FamilyInfo, PublishedConfig
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Activation,
    Classification,
    DecoderOnly,
    EncoderOnly,
    Head,
    LanguageModel,
    LayerNorm,
    Learned,
    Pooler,
    Pooling,
    Span,
    Tagging,
    Transform,
)

KEYS = {**bert.KEYS, "vocab_size": 50265, "pad_token_id": 1}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly | DecoderOnly:
    """Return the network config of a published config."""
    if theirs["pad_token_id"] is None:
        raise ConfigError("config.json: pad_token_id is missing, but RoBERTa's position ids start after it")
    offset = theirs["pad_token_id"] + 1
    position = Learned(length=theirs["max_position_embeddings"] - offset, offset=offset)
    design = bert.network(theirs, head)
    return replace(design, embedding=replace(design.embedding, position=position))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    position = design.embedding.position
    return {**bert.describe(design), "max_position_embeddings": position.length + position.offset}  # type: ignore[union-attr]


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the masked language-model head: BERT's, always with GELU."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return replace(bert.language_model_head(theirs), transform=Transform(activation=Activation.GELU, norm=norm))


def classification_head(theirs: PublishedConfig) -> Classification:
    """Return the config of a sequence-classification head on the first token."""
    return Classification(
        labels=theirs.num_labels,
        pooling=Pooling.FIRST,
        transform=POOLER_TRANSFORM,
        bias=True,
        input_dropout=classifier_dropout(theirs),
        dropout=classifier_dropout(theirs),
    )


LANGUAGE_MODEL_WEIGHTS = (
    Entry("lm_head.dense", "head.transform.dense"),
    Entry("lm_head.layer_norm", "head.transform.norm"),
    Entry("lm_head.decoder", "head.output"),
)

FAMILY = Family(
    name="roberta",
    info=FamilyInfo(
        title="RoBERTa",
        year=2019,
        paper="Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach",
        objective="masked language modelling",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_weights={
        **bert.FAMILY.ignored_weights,
        "lm_head.bias": "unused if lm_head.decoder.bias differs from it",
    },
    network_types=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=lambda design: bert.weights(design, "lm_head"),
    architectures={
        "RobertaModel": Architecture(
            head=lambda _: Pooler(pooling=Pooling.FIRST, transform=POOLER_TRANSFORM),
            weights=(Entry("@pooler.dense", "head.transform.dense"),),
        ),
        "RobertaForMaskedLM": Architecture(prefix="roberta.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
        "RobertaForCausalLM": Architecture(prefix="roberta.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
        "RobertaForSequenceClassification": Architecture(
            prefix="roberta.",
            head=classification_head,
            weights=(
                Entry("classifier.dense", "head.transform.dense"),
                Entry("classifier.out_proj", "head.output"),
            ),
        ),
        "RobertaForMultipleChoice": Architecture(
            prefix="roberta.",
            head=lambda theirs: bert.classification_head(1, theirs["hidden_dropout_prob"]),
            weights=bert.CLASSIFIER_WEIGHTS,
        ),
        "RobertaForTokenClassification": Architecture(
            prefix="roberta.",
            head=lambda theirs: Tagging(labels=theirs.num_labels, bias=True, dropout=classifier_dropout(theirs)),
            weights=(Entry("classifier", "head.output"),),
        ),
        "RobertaForQuestionAnswering": Architecture(
            prefix="roberta.",
            head=lambda theirs: Span(labels=theirs.num_labels, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
    },
    presets={
        name: {
            "architectures": ["RobertaForMaskedLM"],
            **dict(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5),
            **sizes,
        }
        for name, sizes in {
            "roberta-base": dict(),
            "roberta-large": dict(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
            ),
        }.items()
    },
)
