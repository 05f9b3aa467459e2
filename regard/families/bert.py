"""BERT (Devlin et al. 2018): an encoder that reads in both directions, trained to fill in words.

Post-norm, learned positions, segments, GELU. As `is_decoder` it reads from left to right.
"""

from typing import Any

from regard.families.family import Architecture, Family, Maybe, Story, Theirs, activation_name, is_tied, labels, tied
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
    "classifier_dropout": Maybe(float),
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


def network(theirs: Theirs, head: Head | None) -> EncoderOnly | DecoderOnly:
    """The network of a config."""
    theirs.require("position_embedding_type", "absolute")
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    attention = Attention(
        heads=theirs["num_attention_heads"],
        key_value_heads=theirs["num_attention_heads"],
        head_dim=theirs.divide("hidden_size", "num_attention_heads"),
        scale=theirs.divide("hidden_size", "num_attention_heads") ** -0.5,
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
    start, dim = Normal(deviation=theirs["initializer_range"]), theirs["hidden_size"]
    if theirs["is_decoder"]:
        return DecoderOnly(model_dim=dim, embedding=embedding, decoder=blocks, head=head, initialization=start)
    return EncoderOnly(model_dim=dim, embedding=embedding, encoder=blocks, head=head, initialization=start)


def stack(design: EncoderOnly | DecoderOnly) -> Stack:
    """The blocks of a network."""
    return design.encoder if isinstance(design, EncoderOnly) else design.decoder


def describe(design: EncoderOnly | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    block, start = stack(design).blocks[0], design.initialization
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "hidden_size": design.model_dim,
        "num_hidden_layers": stack(design).layers,
        "num_attention_heads": block.attention.heads,
        "intermediate_size": block.feedforward.dim,
        "hidden_act": activation_name(block.feedforward.activation),
        "hidden_dropout_prob": design.embedding.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
        "classifier_dropout": getattr(design.head, "dropout", None),
        "max_position_embeddings": design.embedding.position.length,  # type: ignore[union-attr]
        "type_vocab_size": design.embedding.segments,
        "initializer_range": start.deviation if isinstance(start, Normal) else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "is_decoder": isinstance(design, DecoderOnly),
        "add_cross_attention": block.cross_attention is not None,
        "tie_word_embeddings": is_tied(design),
        **labels(design),
    }


def words(theirs: Theirs) -> LanguageModel:
    """The head that fills in words."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=Transform(activation=theirs.activation("hidden_act"), norm=norm),
        scale=1.0,
        weights=tied(theirs),
        bias=OutputBias.LEARNT,
    )


POOLER = Transform(activation=Activation.TANH, norm=None)


def dropout(theirs: Theirs) -> float:
    """The dropout of a classifier."""
    rate = theirs["classifier_dropout"]
    return float(theirs["hidden_dropout_prob"] if rate is None else rate)


def sentence(count: int, rate: float = 0.0) -> Classification:
    """A head that scores the row by its first token's vector."""
    return Classification(labels=count, pooling=Pooling.FIRST, transform=POOLER, bias=True, dropout=rate)


WORDS = (
    Entry("cls.predictions.transform.dense", "head.transform.dense"),
    Entry("cls.predictions.transform.LayerNorm", "head.transform.norm"),
    Entry("cls.predictions.decoder", "head.output"),
)
CLASSIFIER = (Entry("@pooler.dense", "head.transform.dense"), Entry("classifier", "head.output"))


def both(entries: tuple[Entry, ...], where: str) -> tuple[Entry, ...]:
    """The entries of a head that is one of two."""
    return tuple(Entry(e.theirs, tuple(part.replace("head", where, 1) for part in e.parts), e.how) for e in entries)


ARCHITECTURES = {
    "BertModel": Architecture(
        head=lambda _: Pooler(pooling=Pooling.FIRST, transform=POOLER),
        weights=(Entry("@pooler.dense", "head.transform.dense"),),
    ),
    "BertForMaskedLM": Architecture(base="bert.", head=words, weights=WORDS),
    "BertLMHeadModel": Architecture(base="bert.", head=words, weights=WORDS),
    "BertForPreTraining": Architecture(
        base="bert.",
        head=lambda theirs: TwoHeads(words=words(theirs), sentence=sentence(2)),
        weights=(
            *both(WORDS, "head.words"),
            Entry("@pooler.dense", "head.sentence.transform.dense"),
            Entry("cls.seq_relationship", "head.sentence.output"),
        ),
    ),
    "BertForSequenceClassification": Architecture(
        base="bert.", head=lambda theirs: sentence(theirs.labels, dropout(theirs)), weights=CLASSIFIER
    ),
    "BertForNextSentencePrediction": Architecture(
        base="bert.",
        head=lambda _: sentence(2),
        weights=(Entry("@pooler.dense", "head.transform.dense"), Entry("cls.seq_relationship", "head.output")),
    ),
    "BertForMultipleChoice": Architecture(
        base="bert.", head=lambda theirs: sentence(1, dropout(theirs)), weights=CLASSIFIER
    ),
    "BertForTokenClassification": Architecture(
        base="bert.",
        head=lambda theirs: Tagging(labels=theirs.labels, bias=True, dropout=dropout(theirs)),
        weights=(Entry("classifier", "head.output"),),
    ),
    "BertForQuestionAnswering": Architecture(
        base="bert.",
        head=lambda theirs: Span(labels=theirs.labels, bias=True),
        weights=(Entry("qa_outputs", "head.output"),),
    ),
}


def last_bias(design: EncoderOnly | DecoderOnly, outer: str) -> tuple[Entry, ...]:
    """The bias of the last layer has two names; where that layer is tied, the second repeats the first."""
    ours, inner = "head.words" if isinstance(design.head, TwoHeads) else "head", f"{outer}.decoder"
    return (
        (Entry(outer, ours), Entry(inner, ours))
        if is_tied(design)
        else (Entry(inner, ours), Entry(outer, ours, repeat=True))
    )


def weights(design: EncoderOnly | DecoderOnly, last_layer: str | None = "cls.predictions") -> tuple[Entry, ...]:
    """Where the network's weights stand, and the bias of a language model's last layer."""
    theirs = "@encoder.layer.#"
    ours = "encoder.blocks.#" if isinstance(design, EncoderOnly) else "decoder.blocks.#"
    across = (
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
        *(across if isinstance(design, DecoderOnly) else ()),
        Entry(f"{theirs}.intermediate.dense", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.output.dense", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.output.LayerNorm", f"{ours}.feedforward_residual.norm"),
        *(last_bias(design, last_layer) if last_layer else ()),
    )


FAMILY = Family(
    name="bert",
    story=Story(
        title="BERT",
        year=2018,
        paper="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        objective="fill in masked words; next sentence",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_weights={
        "@embeddings.position_ids": "the numbers 0, 1, 2, …",
        "cls.predictions.bias": "unused where cls.predictions.decoder.bias differs from it",
    },
    kinds=(EncoderOnly, DecoderOnly),
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
