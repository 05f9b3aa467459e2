"""DistilBERT (Sanh et al. 2019): half of BERT's layers, distilled from BERT.

BERT without segments and pooler. There is no dropout after attention.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    Family,
    FamilyInfo,
    PublishedConfig,
    activation_name,
    is_tied,
    label_keys,
    output_weights,
)
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Activation,
    Apart,
    Attention,
    Block,
    Classification,
    Dense,
    Embedding,
    EncoderOnly,
    Head,
    LanguageModel,
    LayerNorm,
    Learned,
    Normal,
    NormOrder,
    OutputBias,
    Pooling,
    Span,
    Stack,
    Tagging,
    Tokens,
    Transform,
)
from regard.transformer.mask import Everything

KEYS = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation": "gelu",
    "initializer_range": 0.02,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
NORM = LayerNorm(epsilon=1e-12)


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config of a published config."""
    head_dim = theirs.head_dim("dim", "n_heads")
    block = Block(
        attention=Attention(
            heads=theirs["n_heads"],
            key_value_heads=theirs["n_heads"],
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=True,
            output_bias=True,
            position=None,
            dropout=theirs["attention_dropout"],
        ),
        cross_attention=None,
        feedforward=Dense(
            dim=theirs["hidden_dim"],
            activation=theirs.activation("activation"),
            bias=True,
            output_dropout=theirs["dropout"],
        ),
        norm=NORM,
        order=NormOrder.POST,
        mask=Everything(),
    )
    return EncoderOnly(
        model_dim=theirs["dim"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["dim"],
            scale=1.0,
            segments=0,
            position=Learned(length=theirs["max_position_embeddings"], offset=0),
            norm=NORM,
            projection=None,
            dropout=theirs["dropout"],
        ),
        encoder=Stack(
            layers=theirs["n_layers"],
            sharing=Apart(),
            blocks=(block,),
            mask=Everything(),
            position=None,
            memory=None,
            final_norm=None,
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, initialization, head = design.encoder.blocks[0], design.initialization, design.head
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "max_position_embeddings": design.embedding.position.length,  # type: ignore[union-attr]
        "n_layers": design.encoder.layers,
        "n_heads": block.attention.heads,
        "dim": design.model_dim,
        "hidden_dim": block.feedforward.dim,
        "dropout": design.embedding.dropout,
        "attention_dropout": block.attention.dropout,
        "activation": activation_name(block.feedforward.activation),
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "qa_dropout": head.dropout if isinstance(head, Span) else KEYS["qa_dropout"],
        "seq_classif_dropout": head.dropout if isinstance(head, Classification) else KEYS["seq_classif_dropout"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the masked language-model head."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=Transform(activation=theirs.activation("activation"), norm=NORM),
        scale=1.0,
        weights=output_weights(theirs),
        bias=OutputBias.LEARNT,
    )


def classification_head(theirs: PublishedConfig, labels: int) -> Classification:
    """Return the config of a sequence-classification head on the first token."""
    return Classification(
        labels=labels,
        pooling=Pooling.FIRST,
        transform=Transform(activation=Activation.RELU, norm=None),
        bias=True,
        dropout=theirs["seq_classif_dropout"],
    )


BLOCK = "encoder.blocks.#"
WEIGHTS = (
    Entry("@embeddings.word_embeddings", "embedding.tokens"),
    Entry("@embeddings.position_embeddings", "embedding.position"),
    Entry("@embeddings.LayerNorm", "embedding.norm"),
    Entry("@transformer.layer.#.attention.q_lin", f"{BLOCK}.attention.project.query"),
    Entry("@transformer.layer.#.attention.k_lin", f"{BLOCK}.attention.project.key"),
    Entry("@transformer.layer.#.attention.v_lin", f"{BLOCK}.attention.project.value"),
    Entry("@transformer.layer.#.attention.out_lin", f"{BLOCK}.attention.output"),
    Entry("@transformer.layer.#.sa_layer_norm", f"{BLOCK}.attention_residual.norm"),
    Entry("@transformer.layer.#.ffn.lin1", f"{BLOCK}.feedforward.up"),
    Entry("@transformer.layer.#.ffn.lin2", f"{BLOCK}.feedforward.down"),
    Entry("@transformer.layer.#.output_layer_norm", f"{BLOCK}.feedforward_residual.norm"),
)
CLASSIFIER_WEIGHTS = (Entry("pre_classifier", "head.transform.dense"), Entry("classifier", "head.output"))

FAMILY = Family(
    name="distilbert",
    info=FamilyInfo(
        title="DistilBERT",
        year=2019,
        paper="Sanh et al., DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
        objective="masked language modelling, distilled from BERT",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_keys={
        "sinusoidal_pos_embds": "initialization of the position embedding, which is stored",
        "tie_weights_": "older name of tie_word_embeddings",
    },
    ignored_weights={"@embeddings.position_ids": "position ids 0, 1, 2, …"},
    network_types=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "DistilBertModel": Architecture(head=lambda _: None),
        "DistilBertForMaskedLM": Architecture(
            prefix="distilbert.",
            head=language_model_head,
            weights=(
                Entry("vocab_transform", "head.transform.dense"),
                Entry("vocab_layer_norm", "head.transform.norm"),
                Entry("vocab_projector", "head.output"),
                Entry("vocab_projector", "head"),
            ),
        ),
        "DistilBertForSequenceClassification": Architecture(
            prefix="distilbert.",
            head=lambda theirs: classification_head(theirs, theirs.num_labels),
            weights=CLASSIFIER_WEIGHTS,
        ),
        "DistilBertForMultipleChoice": Architecture(
            prefix="distilbert.", head=lambda theirs: classification_head(theirs, 1), weights=CLASSIFIER_WEIGHTS
        ),
        "DistilBertForTokenClassification": Architecture(
            prefix="distilbert.",
            head=lambda theirs: Tagging(labels=theirs.num_labels, bias=True, dropout=theirs["dropout"]),
            weights=(Entry("classifier", "head.output"),),
        ),
        "DistilBertForQuestionAnswering": Architecture(
            prefix="distilbert.",
            head=lambda theirs: Span(labels=2, bias=True, dropout=theirs["qa_dropout"]),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
    },
    presets={"distilbert-base": {"architectures": ["DistilBertForMaskedLM"]}},
)
