"""RoBERTa (Liu et al. 2019): BERT, trained longer and on more, without next-sentence prediction.

Its positions start behind the padding id: with padding 1, the first token has position 2 of the table.
"""

from dataclasses import replace
from typing import Any

from regard.families import bert
from regard.families.bert import POOLER, dropout
from regard.families.family import Architecture, ConfigError, Family, Story, Theirs
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


def network(theirs: Theirs, head: Head | None) -> EncoderOnly | DecoderOnly:
    """The network of a config."""
    if theirs["pad_token_id"] is None:
        raise ConfigError("config.json: pad_token_id is missing, and RoBERTa's positions start behind it")
    offset = theirs["pad_token_id"] + 1
    position = Learned(length=theirs["max_position_embeddings"] - offset, offset=offset)
    design = bert.network(theirs, head)
    return replace(design, embedding=replace(design.embedding, position=position))


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    position = design.embedding.position
    return {**bert.describe(design), "max_position_embeddings": position.length + position.offset}  # type: ignore[union-attr]


def words(theirs: Theirs) -> LanguageModel:
    """The head that fills in words: BERT's, with GELU whatever the network's activation."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return replace(bert.words(theirs), transform=Transform(activation=Activation.GELU, norm=norm))


def sentence(theirs: Theirs) -> Classification:
    """A head that scores the row by its first token's vector."""
    return Classification(
        labels=theirs.labels,
        pooling=Pooling.FIRST,
        transform=POOLER,
        bias=True,
        input_dropout=dropout(theirs),
        dropout=dropout(theirs),
    )


WORDS = (
    Entry("lm_head.dense", "head.transform.dense"),
    Entry("lm_head.layer_norm", "head.transform.norm"),
    Entry("lm_head.decoder", "head.output"),
)

FAMILY = Family(
    name="roberta",
    story=Story(
        title="RoBERTa",
        year=2019,
        paper="Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach",
        objective="fill in masked words",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_weights={
        **bert.FAMILY.ignored_weights,
        "lm_head.bias": "unused where lm_head.decoder.bias differs from it",
    },
    kinds=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=lambda design: bert.weights(design, "lm_head"),
    architectures={
        "RobertaModel": Architecture(
            head=lambda _: Pooler(pooling=Pooling.FIRST, transform=POOLER),
            weights=(Entry("@pooler.dense", "head.transform.dense"),),
        ),
        "RobertaForMaskedLM": Architecture(base="roberta.", head=words, weights=WORDS),
        "RobertaForCausalLM": Architecture(base="roberta.", head=words, weights=WORDS),
        "RobertaForSequenceClassification": Architecture(
            base="roberta.",
            head=sentence,
            weights=(
                Entry("classifier.dense", "head.transform.dense"),
                Entry("classifier.out_proj", "head.output"),
            ),
        ),
        "RobertaForMultipleChoice": Architecture(
            base="roberta.",
            head=lambda theirs: bert.sentence(1, theirs["hidden_dropout_prob"]),
            weights=bert.CLASSIFIER,
        ),
        "RobertaForTokenClassification": Architecture(
            base="roberta.",
            head=lambda theirs: Tagging(labels=theirs.labels, bias=True, dropout=dropout(theirs)),
            weights=(Entry("classifier", "head.output"),),
        ),
        "RobertaForQuestionAnswering": Architecture(
            base="roberta.",
            head=lambda theirs: Span(labels=theirs.labels, bias=True),
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
