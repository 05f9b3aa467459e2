"""BERT (Devlin et al. 2018): a bidirectional encoder pretrained with masked language modelling.

Post-norm, learned positions, segments, GELU. With `is_decoder` it is a causal decoder.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    Family,
    FamilyInfo,
    OptionalKey,
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
    DecoderOnly,
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
    Pooler,
    Pooling,
    Span,
    Stack,
    Tagging,
    Tokens,
    Transform,
    TwoHeads,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "classifier_dropout": OptionalKey(float),
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly | DecoderOnly:
    """Return the network config of a published config."""
    theirs.require("position_embedding_type", "absolute")
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    attention = Attention(
        heads=theirs["num_attention_heads"],
        key_value_heads=theirs["num_attention_heads"],
        head_dim=theirs.head_dim("hidden_size", "num_attention_heads"),
        scale=theirs.head_dim("hidden_size", "num_attention_heads") ** -0.5,
        bias=True,
        output_bias=True,
        position=None,
        dropout=theirs["attention_probs_dropout_prob"],
        output_dropout=theirs["hidden_dropout_prob"],
    )
    block = Block(
        attention=attention,
        cross_attention=attention if theirs["add_cross_attention"] else None,
        feedforward=Dense(
            dim=theirs["intermediate_size"],
            activation=theirs.activation("hidden_act"),
            bias=True,
            output_dropout=theirs["hidden_dropout_prob"],
        ),
        norm=norm,
        order=NormOrder.POST,
        mask=Everything(),
    )
    blocks = Stack(
        layers=theirs["num_hidden_layers"],
        sharing=Apart(),
        blocks=(block,),
        mask=Causal() if theirs["is_decoder"] else Everything(),
        position=None,
        memory=None,
        final_norm=None,
    )
    embedding = Embedding(
        tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
        dim=theirs["hidden_size"],
        scale=1.0,
        segments=theirs["type_vocab_size"],
        position=Learned(length=theirs["max_position_embeddings"], offset=0),
        norm=norm,
        projection=None,
        dropout=theirs["hidden_dropout_prob"],
    )
    initialization, dim = Normal(deviation=theirs["initializer_range"]), theirs["hidden_size"]
    if theirs["is_decoder"]:
        return DecoderOnly(model_dim=dim, embedding=embedding, decoder=blocks, head=head, initialization=initialization)
    return EncoderOnly(model_dim=dim, embedding=embedding, encoder=blocks, head=head, initialization=initialization)


def get_stack(design: EncoderOnly | DecoderOnly) -> Stack:
    """Return the config of the only stack of a network."""
    return design.encoder if isinstance(design, EncoderOnly) else design.decoder


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, initialization = get_stack(design).blocks[0], design.initialization
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "hidden_size": design.model_dim,
        "num_hidden_layers": get_stack(design).layers,
        "num_attention_heads": block.attention.heads,
        "intermediate_size": block.feedforward.dim,
        "hidden_act": activation_name(block.feedforward.activation),
        "hidden_dropout_prob": design.embedding.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
        "classifier_dropout": getattr(design.head, "dropout", None),
        "max_position_embeddings": design.embedding.position.length,  # type: ignore[union-attr]
        "type_vocab_size": design.embedding.segments,
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "is_decoder": isinstance(design, DecoderOnly),
        "add_cross_attention": block.cross_attention is not None,
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the masked language-model head."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=Transform(activation=theirs.activation("hidden_act"), norm=norm),
        scale=1.0,
        weights=output_weights(theirs),
        bias=OutputBias.LEARNT,
    )


POOLER_TRANSFORM = Transform(activation=Activation.TANH, norm=None)


def classifier_dropout(theirs: PublishedConfig) -> float:
    """Return the dropout rate of a classification head."""
    dropout = theirs["classifier_dropout"]
    return float(theirs["hidden_dropout_prob"] if dropout is None else dropout)


def classification_head(labels: int, dropout: float = 0.0) -> Classification:
    """Return the config of a sequence-classification head on the first token."""
    return Classification(labels=labels, pooling=Pooling.FIRST, transform=POOLER_TRANSFORM, bias=True, dropout=dropout)


LANGUAGE_MODEL_WEIGHTS = (
    Entry("cls.predictions.transform.dense", "head.transform.dense"),
    Entry("cls.predictions.transform.LayerNorm", "head.transform.norm"),
    Entry("cls.predictions.decoder", "head.output"),
)
CLASSIFIER_WEIGHTS = (Entry("@pooler.dense", "head.transform.dense"), Entry("classifier", "head.output"))


def in_two_heads(entries: tuple[Entry, ...], address: str) -> tuple[Entry, ...]:
    """Move the entries of a head to `address` ("head.words"), for a network with two heads."""
    return tuple(Entry(e.theirs, tuple(part.replace("head", address, 1) for part in e.parts), e.how) for e in entries)


ARCHITECTURES = {
    "BertModel": Architecture(
        head=lambda _: Pooler(pooling=Pooling.FIRST, transform=POOLER_TRANSFORM),
        weights=(Entry("@pooler.dense", "head.transform.dense"),),
    ),
    "BertForMaskedLM": Architecture(prefix="bert.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
    "BertLMHeadModel": Architecture(prefix="bert.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
    "BertForPreTraining": Architecture(
        prefix="bert.",
        head=lambda theirs: TwoHeads(words=language_model_head(theirs), sentence=classification_head(2)),
        weights=(
            *in_two_heads(LANGUAGE_MODEL_WEIGHTS, "head.words"),
            Entry("@pooler.dense", "head.sentence.transform.dense"),
            Entry("cls.seq_relationship", "head.sentence.output"),
        ),
    ),
    "BertForSequenceClassification": Architecture(
        prefix="bert.",
        head=lambda theirs: classification_head(theirs.num_labels, classifier_dropout(theirs)),
        weights=CLASSIFIER_WEIGHTS,
    ),
    "BertForNextSentencePrediction": Architecture(
        prefix="bert.",
        head=lambda _: classification_head(2),
        weights=(Entry("@pooler.dense", "head.transform.dense"), Entry("cls.seq_relationship", "head.output")),
    ),
    "BertForMultipleChoice": Architecture(
        prefix="bert.",
        head=lambda theirs: classification_head(1, classifier_dropout(theirs)),
        weights=CLASSIFIER_WEIGHTS,
    ),
    "BertForTokenClassification": Architecture(
        prefix="bert.",
        head=lambda theirs: Tagging(labels=theirs.num_labels, bias=True, dropout=classifier_dropout(theirs)),
        weights=(Entry("classifier", "head.output"),),
    ),
    "BertForQuestionAnswering": Architecture(
        prefix="bert.",
        head=lambda theirs: Span(labels=theirs.num_labels, bias=True),
        weights=(Entry("qa_outputs", "head.output"),),
    ),
}


def output_bias_weights(design: EncoderOnly | DecoderOnly, outer: str) -> tuple[Entry, ...]:
    """Return the entries of the output bias, which has two names. With tied weights the second repeats the first."""
    ours, inner = "head.words" if isinstance(design.head, TwoHeads) else "head", f"{outer}.decoder"
    return (
        (Entry(outer, ours), Entry(inner, ours))
        if is_tied(design)
        else (Entry(inner, ours), Entry(outer, ours, repeat=True))
    )


def weights(design: EncoderOnly | DecoderOnly, output_layer: str | None = "cls.predictions") -> tuple[Entry, ...]:
    """Return the weight map of the network and of the output bias of a language-model head."""
    theirs = "@encoder.layer.#"
    ours = "encoder.blocks.#" if isinstance(design, EncoderOnly) else "decoder.blocks.#"
    cross_attention_entries = (
        Entry(f"{theirs}.crossattention.self.query", f"{ours}.cross_attention.project.query"),
        Entry(f"{theirs}.crossattention.self.key", f"{ours}.cross_attention.project.key"),
        Entry(f"{theirs}.crossattention.self.value", f"{ours}.cross_attention.project.value"),
        Entry(f"{theirs}.crossattention.output.dense", f"{ours}.cross_attention.output"),
        Entry(f"{theirs}.crossattention.output.LayerNorm", f"{ours}.cross_attention_residual.norm"),
    )
    return (
        Entry("@embeddings.word_embeddings", "embedding.tokens"),
        Entry("@embeddings.position_embeddings", "embedding.position"),
        Entry("@embeddings.token_type_embeddings", "embedding.segments"),
        Entry("@embeddings.LayerNorm", "embedding.norm"),
        Entry(f"{theirs}.attention.self.query", f"{ours}.attention.project.query"),
        Entry(f"{theirs}.attention.self.key", f"{ours}.attention.project.key"),
        Entry(f"{theirs}.attention.self.value", f"{ours}.attention.project.value"),
        Entry(f"{theirs}.attention.output.dense", f"{ours}.attention.output"),
        Entry(f"{theirs}.attention.output.LayerNorm", f"{ours}.attention_residual.norm"),
        *(cross_attention_entries if isinstance(design, DecoderOnly) else ()),
        Entry(f"{theirs}.intermediate.dense", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.output.dense", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.output.LayerNorm", f"{ours}.feedforward_residual.norm"),
        *(output_bias_weights(design, output_layer) if output_layer else ()),
    )


FAMILY = Family(
    name="bert",
    info=FamilyInfo(
        title="BERT",
        year=2018,
        paper="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        objective="masked language modelling; next-sentence prediction",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_weights={
        "@embeddings.position_ids": "position ids 0, 1, 2, …",
        "cls.predictions.bias": "unused if cls.predictions.decoder.bias differs from it",
    },
    network_types=(EncoderOnly, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures=ARCHITECTURES,
    presets={
        name: {"architectures": ["BertForMaskedLM"], **sizes}
        for name, sizes in {
            "bert-tiny": dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512),
            "bert-mini": dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
            "bert-small": dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048),
            "bert-medium": dict(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048),
            "bert-base": dict(),
            "bert-large": dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
        }.items()
    },
)
