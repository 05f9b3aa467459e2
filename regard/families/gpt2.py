"""GPT-2 (Radford et al. 2019): a decoder trained with causal language modelling.

Pre-norm with a final norm, learned positions, tanh-GELU; in checkpoints query, key and value are one transposed matrix.
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
from regard.families.weight_map import Entry, Transpose, TransposedQKV
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
    "n_inner": OptionalKey(int),
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "pad_token_id": OptionalKey(int),
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": OptionalKey(str),
    "summary_first_dropout": 0.1,
    "classifier_dropout": OptionalKey(float),
    "hidden_dropout": OptionalKey(float),
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def network(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the network config of a published config."""
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


def block(theirs: PublishedConfig, norm: LayerNorm, divisor: int) -> Block:
    """Return the config of one block. Its attention scores are divided by `divisor` (1, or the number of the layer)."""
    head_dim = theirs.head_dim("n_embd", "n_head")
    attention = Attention(
        heads=theirs["n_head"],
        key_value_heads=theirs["n_head"],
        head_dim=head_dim,
        scale=(head_dim**-0.5 if theirs["scale_attn_weights"] else 1.0) / divisor,
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
    """Return the published config of a network config (the inverse of `network`)."""
    first, initialization, head = design.decoder.blocks[0], design.initialization, design.head
    feedforward_dim = first.feedforward.dim
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "n_positions": design.embedding.position.length,  # type: ignore[union-attr]
        "n_embd": design.model_dim,
        "n_layer": design.decoder.layers,
        "n_head": first.attention.heads,
        "n_inner": None if feedforward_dim == 4 * design.model_dim else feedforward_dim,
        "activation_function": activation_name(first.feedforward.activation),
        "resid_pdrop": first.attention.output_dropout,
        "embd_pdrop": design.embedding.dropout,
        "attn_pdrop": first.attention.dropout,
        "layer_norm_epsilon": first.norm.epsilon,
        "initializer_range": initialization.deviation
        if isinstance(initialization, ScaledNormal)
        else KEYS["initializer_range"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "summary_first_dropout": head.sentence.input_dropout if isinstance(head, TwoHeads) else 0.1,
        "classifier_dropout": head.dropout if isinstance(head, Tagging) else None,
        "scale_attn_weights": first.attention.scale != 1.0,
        "scale_attn_by_inverse_layer_idx": len(design.decoder.blocks) > 1,
        "add_cross_attention": first.cross_attention is not None,
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the causal language-model head."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=output_weights(theirs), bias=OutputBias.NONE
    )


def two_heads(theirs: PublishedConfig) -> TwoHeads:
    """Return the config of two heads: causal language modelling, and multiple choice on the last token."""
    theirs.require("summary_type", "cls_index", "last")
    theirs.require("summary_use_proj", True)
    theirs.require("summary_activation", None)
    dropout = theirs["summary_first_dropout"]
    multiple_choice = Classification(labels=1, pooling=Pooling.LAST, transform=None, bias=True, input_dropout=dropout)
    return TwoHeads(words=language_model_head(theirs), sentence=multiple_choice)


def token_classification_head(theirs: PublishedConfig) -> Tagging:
    """Return the config of the token-classification head."""
    dropouts = [theirs["classifier_dropout"], theirs["hidden_dropout"], 0.1]
    return Tagging(labels=theirs.num_labels, bias=True, dropout=next(p for p in dropouts if p is not None))


def attention_entries(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the weight map of one attention layer: query, key and value are one transposed matrix."""
    qkv = tuple(f"{ours}.project.{part}" for part in ("query", "key", "value"))
    return (
        Entry(f"{theirs}.c_attn", qkv, TransposedQKV()),
        Entry(f"{theirs}.c_proj", f"{ours}.output", Transpose()),
    )


TWO_HEADS_WEIGHTS = (
    Entry("lm_head", "head.words.output"),
    Entry("multiple_choice_head.summary", "head.sentence.output"),
)
BLOCK = "decoder.blocks.#"

WEIGHTS = (
    Entry("@wte", "embedding.tokens"),
    Entry("@wpe", "embedding.position"),
    Entry("@h.#.ln_1", f"{BLOCK}.attention_residual.norm"),
    *attention_entries("@h.#.attn", f"{BLOCK}.attention"),
    Entry("@h.#.ln_cross_attn", f"{BLOCK}.cross_attention_residual.norm"),
    Entry("@h.#.crossattention.q_attn", f"{BLOCK}.cross_attention.project.query", Transpose()),
    Entry(
        "@h.#.crossattention.c_attn",
        (f"{BLOCK}.cross_attention.project.key", f"{BLOCK}.cross_attention.project.value"),
        TransposedQKV(),
    ),
    Entry("@h.#.crossattention.c_proj", f"{BLOCK}.cross_attention.output", Transpose()),
    Entry("@h.#.ln_2", f"{BLOCK}.feedforward_residual.norm"),
    Entry("@h.#.mlp.c_fc", f"{BLOCK}.feedforward.up", Transpose()),
    Entry("@h.#.mlp.c_proj", f"{BLOCK}.feedforward.down", Transpose()),
    Entry("@ln_f", "decoder.final_norm"),
)

FAMILY = Family(
    name="gpt2",
    info=FamilyInfo(
        title="GPT-2",
        year=2019,
        paper="Radford et al., Language Models are Unsupervised Multitask Learners",
        objective="causal language modelling",
        parent="GPT",
    ),
    keys=KEYS,
    ignored_keys={
        "n_ctx": "older name of n_positions, which is also present",
        "summary_proj_to_labels": "the summary head always has one label",
        "reorder_and_upcast_attn": "an order of the same operations for half precision",
    },
    ignored_weights={
        "@h.#.attn.bias": "the causal mask, which is computed",
        "@h.#.attn.masked_bias": "a constant of the mask",
        "@h.#.crossattention.bias": "a mask, which is computed",
        "@h.#.crossattention.masked_bias": "a constant of the mask",
    },
    network_types=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "GPT2Model": Architecture(head=lambda _: None),
        "GPT2LMHeadModel": Architecture(
            prefix="transformer.", head=language_model_head, weights=(Entry("lm_head", "head.output"),)
        ),
        "GPT2DoubleHeadsModel": Architecture(
            prefix="transformer.",
            head=two_heads,
            weights=TWO_HEADS_WEIGHTS,
        ),
        "GPT2ForSequenceClassification": Architecture(
            prefix="transformer.",
            head=lambda t: Classification(labels=t.num_labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
        "GPT2ForTokenClassification": Architecture(
            prefix="transformer.", head=token_classification_head, weights=(Entry("classifier", "head.output"),)
        ),
        "GPT2ForQuestionAnswering": Architecture(
            prefix="transformer.",
            head=lambda _: Span(labels=2, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
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
