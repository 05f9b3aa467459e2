"""GPT-2 (Radford et al. 2019): a decoder that continues text.

Pre-norm with a final norm, learned positions, tanh-GELU; in checkpoints query, key and value are one transposed matrix.
"""

from typing import Any

from regard.families.family import Architecture, Family, Maybe, Story, Theirs, activation_name, is_tied, labels, tied
from regard.families.weight_map import Entry, Transposed, TransposedTogether
from regard.transformer.config import (
    Apart,
    Attention,
    Block,
    Classification,
    DecoderOnly,
    Dense,
    Embedding,
    Head,
    LanguageModel,
    LayerNorm,
    Learned,
    NormOrder,
    OutputBias,
    Pooling,
    ScaledNormal,
    Span,
    Stack,
    Tagging,
    Tokens,
    TwoHeads,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": Maybe(int),
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "pad_token_id": Maybe(int),
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": Maybe(str),
    "summary_first_dropout": 0.1,
    "classifier_dropout": Maybe(float),
    "hidden_dropout": Maybe(float),
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def network(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The network of a config."""
    norm = LayerNorm(epsilon=theirs["layer_norm_epsilon"])
    layers, by_layer = theirs["n_layer"], theirs["scale_attn_by_inverse_layer_idx"]
    return DecoderOnly(
        model_dim=theirs["n_embd"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["n_embd"],
            scale=1.0,
            segments=0,
            position=Learned(length=theirs["n_positions"], offset=0),
            norm=None,
            projection=None,
            dropout=theirs["embd_pdrop"],
        ),
        decoder=Stack(
            layers=layers,
            sharing=Apart(),
            blocks=tuple(block(theirs, norm, layer + 1) for layer in range(layers if by_layer else 1)),
            mask=Causal(),
            position=None,
            memory=None,
            final_norm=norm,
        ),
        head=head,
        initialization=ScaledNormal(deviation=theirs["initializer_range"]),
    )


def block(theirs: Theirs, norm: LayerNorm, divisor: int) -> Block:
    """One block; its scores may be divided by the number of its layer."""
    size = theirs.divide("n_embd", "n_head")
    attention = Attention(
        heads=theirs["n_head"],
        key_value_heads=theirs["n_head"],
        head_dim=size,
        scale=(size**-0.5 if theirs["scale_attn_weights"] else 1.0) / divisor,
        bias=True,
        output_bias=True,
        position=None,
        dropout=theirs["attn_pdrop"],
        output_dropout=theirs["resid_pdrop"],
    )
    return Block(
        attention=attention,
        cross_attention=attention if theirs["add_cross_attention"] else None,
        feedforward=Dense(
            dim=theirs["n_inner"] or 4 * theirs["n_embd"],
            activation=theirs.activation("activation_function"),
            bias=True,
            output_dropout=theirs["resid_pdrop"],
        ),
        norm=norm,
        order=NormOrder.PRE,
        mask=Everything(),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    one, start, head = design.decoder.blocks[0], design.initialization, design.head
    inner = one.feedforward.dim
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "n_positions": design.embedding.position.length,  # type: ignore[union-attr]
        "n_embd": design.model_dim,
        "n_layer": design.decoder.layers,
        "n_head": one.attention.heads,
        "n_inner": None if inner == 4 * design.model_dim else inner,
        "activation_function": activation_name(one.feedforward.activation),
        "resid_pdrop": one.attention.output_dropout,
        "embd_pdrop": design.embedding.dropout,
        "attn_pdrop": one.attention.dropout,
        "layer_norm_epsilon": one.norm.epsilon,
        "initializer_range": start.deviation if isinstance(start, ScaledNormal) else KEYS["initializer_range"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "summary_first_dropout": head.sentence.input_dropout if isinstance(head, TwoHeads) else 0.1,
        "classifier_dropout": head.dropout if isinstance(head, Tagging) else None,
        "scale_attn_weights": one.attention.scale != 1.0,
        "scale_attn_by_inverse_layer_idx": len(design.decoder.blocks) > 1,
        "add_cross_attention": one.cross_attention is not None,
        "tie_word_embeddings": is_tied(design),
        **labels(design),
    }


def words(theirs: Theirs) -> LanguageModel:
    """The head that continues text."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=tied(theirs), bias=OutputBias.NONE
    )


def two_heads(theirs: Theirs) -> TwoHeads:
    """Words, and a score of the whole row by its last token, to choose among continuations."""
    theirs.require("summary_type", "cls_index", "last")
    theirs.require("summary_use_proj", True)
    theirs.require("summary_activation", None)
    rate = theirs["summary_first_dropout"]
    choice = Classification(labels=1, pooling=Pooling.LAST, transform=None, bias=True, input_dropout=rate)
    return TwoHeads(words=words(theirs), sentence=choice)


def tagging(theirs: Theirs) -> Tagging:
    """The head that tags tokens."""
    rates = [theirs["classifier_dropout"], theirs["hidden_dropout"], 0.1]
    return Tagging(labels=theirs.labels, bias=True, dropout=next(rate for rate in rates if rate is not None))


def attention_weights(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Query, key and value of one attention, which stand side by side in one transposed matrix."""
    together = tuple(f"{ours}.project.{part}" for part in ("query", "key", "value"))
    return (
        Entry(f"{theirs}.c_attn", together, TransposedTogether()),
        Entry(f"{theirs}.c_proj", f"{ours}.output", Transposed()),
    )


TWO_HEADS = (
    Entry("lm_head", "head.words.output"),
    Entry("multiple_choice_head.summary", "head.sentence.output"),
)
BLOCK = "decoder.blocks.#"

WEIGHTS = (
    Entry("@wte", "embedding.tokens"),
    Entry("@wpe", "embedding.position"),
    Entry("@h.#.ln_1", f"{BLOCK}.attention_residual.norm"),
    *attention_weights("@h.#.attn", f"{BLOCK}.attention"),
    Entry("@h.#.ln_cross_attn", f"{BLOCK}.cross_attention_residual.norm"),
    Entry("@h.#.crossattention.q_attn", f"{BLOCK}.cross_attention.project.query", Transposed()),
    Entry(
        "@h.#.crossattention.c_attn",
        (f"{BLOCK}.cross_attention.project.key", f"{BLOCK}.cross_attention.project.value"),
        TransposedTogether(),
    ),
    Entry("@h.#.crossattention.c_proj", f"{BLOCK}.cross_attention.output", Transposed()),
    Entry("@h.#.ln_2", f"{BLOCK}.feedforward_residual.norm"),
    Entry("@h.#.mlp.c_fc", f"{BLOCK}.feedforward.up", Transposed()),
    Entry("@h.#.mlp.c_proj", f"{BLOCK}.feedforward.down", Transposed()),
    Entry("@ln_f", "decoder.final_norm"),
)

FAMILY = Family(
    name="gpt2",
    story=Story(
        title="GPT-2",
        year=2019,
        paper="Radford et al., Language Models are Unsupervised Multitask Learners",
        objective="continue the text",
        parent="GPT",
    ),
    keys=KEYS,
    ignored={
        "n_ctx": "an older name of n_positions, which is there too",
        "summary_proj_to_labels": "the head that it speaks of has one label",
        "reorder_and_upcast_attn": "an order of the same operations for half precision",
    },
    ignored_weights={
        "@h.#.attn.bias": "the causal mask, which is computed",
        "@h.#.attn.masked_bias": "a constant of the mask",
        "@h.#.crossattention.bias": "a mask, which is computed",
        "@h.#.crossattention.masked_bias": "a constant of the mask",
    },
    kinds=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "GPT2Model": Architecture(head=lambda _: None),
        "GPT2LMHeadModel": Architecture(base="transformer.", head=words, weights=(Entry("lm_head", "head.output"),)),
        "GPT2DoubleHeadsModel": Architecture(
            base="transformer.",
            head=two_heads,
            weights=TWO_HEADS,
        ),
        "GPT2ForSequenceClassification": Architecture(
            base="transformer.",
            head=lambda t: Classification(labels=t.labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
        "GPT2ForTokenClassification": Architecture(
            base="transformer.", head=tagging, weights=(Entry("classifier", "head.output"),)
        ),
        "GPT2ForQuestionAnswering": Architecture(
            base="transformer.", head=lambda _: Span(labels=2, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
    },
    presets={
        name: {"architectures": ["GPT2LMHeadModel"], "n_embd": dim, "n_layer": layers, "n_head": heads}
        for name, dim, layers, heads in [
            ("gpt2", 768, 12, 12),
            ("gpt2-medium", 1024, 24, 16),
            ("gpt2-large", 1280, 36, 20),
            ("gpt2-xl", 1600, 48, 25),
        ]
    },
)
