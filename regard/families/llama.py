"""Llama (Touvron et al. 2023) and the many decoders with the same architecture.

Pre-norm with RMSNorm, rotary positions, a gated feed-forward layer with SiLU, and grouped-query attention.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    activation_name,
    is_tied,
    label_keys,
)
from regard.families.gpt2 import language_model_head, token_classification_head
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Apart,
    Attention,
    Block,
    Classification,
    DecoderOnly,
    Embedding,
    Gated,
    Head,
    LinearStretch,
    LlamaStretch,
    Normal,
    NormOrder,
    Pooling,
    RMSNorm,
    Rotary,
    Span,
    Stack,
    Tagging,
    Tokens,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": OptionalKey(int),
    "head_dim": OptionalKey(int),
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "pad_token_id": OptionalKey(int),
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": OptionalKey(dict),
    "rope_parameters": OptionalKey(dict),
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "classifier_dropout": OptionalKey(float),
    "hidden_dropout": OptionalKey(float),
}


ROPE_TYPES = {
    "default": [],
    "linear": ["factor"],
    "llama3": ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
}
"""The supported kinds of RoPE scaling, with the parameters that each needs."""


def rotary(theirs: PublishedConfig) -> Rotary:
    """Return the config of the rotary positions.

    Old configs have `rope_theta` and `rope_scaling`, new ones have both in `rope_parameters`.
    """
    key = "rope_parameters" if theirs["rope_parameters"] else "rope_scaling"
    rope = {"rope_theta": theirs["rope_theta"], **(theirs[key] or {})}
    kind = rope.pop("rope_type", None) or rope.pop("type", "default")
    rope.pop("type", None)
    if kind not in ROPE_TYPES:
        raise ConfigError(f"config.json: {key} has type {kind!r}; supported are default, linear and llama3")
    needed = ["rope_theta", *ROPE_TYPES[kind]]
    if set(rope) != set(needed) or not all(type(value) in (int, float) and value > 0 for value in rope.values()):
        raise ConfigError(f"config.json: {key} of type {kind!r} needs the positive numbers {needed}, found {rope}")
    stretch: LinearStretch | LlamaStretch | None = None
    if kind == "linear":
        stretch = LinearStretch(factor=float(rope["factor"]))
    if kind == "llama3":
        stretch = LlamaStretch(
            factor=float(rope["factor"]),
            low_frequency=float(rope["low_freq_factor"]),
            high_frequency=float(rope["high_freq_factor"]),
            original_length=int(rope["original_max_position_embeddings"]),
        )
    return Rotary(base=float(rope["rope_theta"]), length=theirs["max_position_embeddings"], stretch=stretch)


def network(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the network config of a published config."""
    heads, norm = theirs["num_attention_heads"], RMSNorm(epsilon=theirs["rms_norm_eps"])
    head_dim = theirs["head_dim"] or theirs.head_dim("hidden_size", "num_attention_heads")
    key_value_heads = heads if theirs["num_key_value_heads"] is None else theirs["num_key_value_heads"]
    if not key_value_heads or heads % key_value_heads:
        raise ConfigError(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {key_value_heads}"
        )
    block = Block(
        attention=Attention(
            heads=heads,
            key_value_heads=key_value_heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=theirs["attention_bias"],
            output_bias=theirs["attention_bias"],
            position=None,
            dropout=theirs["attention_dropout"],
        ),
        cross_attention=None,
        feedforward=Gated(
            dim=theirs["intermediate_size"], activation=theirs.activation("hidden_act"), bias=theirs["mlp_bias"]
        ),
        norm=norm,
        order=NormOrder.PRE,
        mask=Everything(),
    )
    return DecoderOnly(
        model_dim=theirs["hidden_size"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["hidden_size"],
            scale=1.0,
            segments=0,
            position=None,
            norm=None,
            projection=None,
        ),
        decoder=Stack(
            layers=theirs["num_hidden_layers"],
            sharing=Apart(),
            blocks=(block,),
            mask=Causal(),
            position=rotary(theirs),
            memory=None,
            final_norm=norm,
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, initialization, position = design.decoder.blocks[0], design.initialization, design.decoder.position
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "hidden_size": design.model_dim,
        "intermediate_size": block.feedforward.dim,
        "num_hidden_layers": design.decoder.layers,
        "num_attention_heads": block.attention.heads,
        "num_key_value_heads": block.attention.key_value_heads,
        "head_dim": block.attention.head_dim,
        "hidden_act": activation_name(block.feedforward.activation),
        "max_position_embeddings": position.length,  # type: ignore[union-attr]
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "rms_norm_eps": block.norm.epsilon,
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        "rope_parameters": rope_parameters(position),  # type: ignore[arg-type]
        "attention_bias": block.attention.bias,
        "attention_dropout": block.attention.dropout,
        "mlp_bias": block.feedforward.bias,
        **({"classifier_dropout": design.head.dropout} if isinstance(design.head, Tagging) else {}),
        **label_keys(design),
    }


def rope_parameters(position: Rotary) -> dict[str, Any]:
    """Return the published keys of the rotary positions (the inverse of `rotary`)."""
    match position.stretch:
        case None:
            return {"rope_theta": position.base, "rope_type": "default"}
        case LinearStretch(factor=factor):
            return {"rope_theta": position.base, "rope_type": "linear", "factor": factor}
        case LlamaStretch() as stretch:
            return {
                "rope_theta": position.base,
                "rope_type": "llama3",
                "factor": stretch.factor,
                "low_freq_factor": stretch.low_frequency,
                "high_freq_factor": stretch.high_frequency,
                "original_max_position_embeddings": stretch.original_length,
            }


BLOCK = "decoder.blocks.#"
WEIGHTS = (
    Entry("@embed_tokens", "embedding.tokens"),
    Entry("@layers.#.input_layernorm", f"{BLOCK}.attention_residual.norm"),
    Entry("@layers.#.self_attn.q_proj", f"{BLOCK}.attention.project.query"),
    Entry("@layers.#.self_attn.k_proj", f"{BLOCK}.attention.project.key"),
    Entry("@layers.#.self_attn.v_proj", f"{BLOCK}.attention.project.value"),
    Entry("@layers.#.self_attn.o_proj", f"{BLOCK}.attention.output"),
    Entry("@layers.#.post_attention_layernorm", f"{BLOCK}.feedforward_residual.norm"),
    Entry("@layers.#.mlp.gate_proj", f"{BLOCK}.feedforward.gate"),
    Entry("@layers.#.mlp.up_proj", f"{BLOCK}.feedforward.up"),
    Entry("@layers.#.mlp.down_proj", f"{BLOCK}.feedforward.down"),
    Entry("@norm", "decoder.final_norm"),
)


def preset_keys(**keys: Any) -> dict[str, Any]:
    """Return the keys of a preset."""
    return {"architectures": ["LlamaForCausalLM"], **keys}


LLAMA3_KEYS = dict(vocab_size=128256, num_key_value_heads=8, rope_theta=500000.0, rms_norm_eps=1e-5)
LLAMA3_ROPE_SCALING = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
)

FAMILY = Family(
    name="llama",
    info=FamilyInfo(
        title="Llama",
        year=2023,
        paper="Touvron et al., LLaMA: Open and Efficient Foundation Language Models",
        objective="causal language modelling",
        parent="GPT-2",
    ),
    keys=KEYS,
    ignored_keys={"pretraining_tp": "tensor parallelism of the pretraining run", "mlp_only": "never used"},
    ignored_weights={
        "@layers.#.self_attn.rotary_emb.inv_freq": "inverse frequencies, which are computed",
        "@rotary_emb.inv_freq": "inverse frequencies, which are computed",
    },
    network_types=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "LlamaModel": Architecture(head=lambda _: None),
        "LlamaForCausalLM": Architecture(
            prefix="model.", head=language_model_head, weights=(Entry("lm_head", "head.output"),)
        ),
        "LlamaForSequenceClassification": Architecture(
            prefix="model.",
            head=lambda t: Classification(labels=t.num_labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
        "LlamaForTokenClassification": Architecture(
            prefix="model.", head=token_classification_head, weights=(Entry("score", "head.output"),)
        ),
        "LlamaForQuestionAnswering": Architecture(
            prefix="transformer.",
            head=lambda _: Span(labels=2, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
    },
    presets={
        "llama-7b": preset_keys(),
        "llama-13b": preset_keys(
            hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40
        ),
        "llama-2-7b": preset_keys(max_position_embeddings=4096, rms_norm_eps=1e-5),
        "llama-2-70b": preset_keys(
            hidden_size=8192,
            intermediate_size=28672,
            num_hidden_layers=80,
            num_attention_heads=64,
            num_key_value_heads=8,
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
        ),
        "llama-3-8b": preset_keys(**LLAMA3_KEYS, intermediate_size=14336, max_position_embeddings=8192),
        "llama-3.1-8b": preset_keys(
            **LLAMA3_KEYS,
            intermediate_size=14336,
            max_position_embeddings=131072,
            rope_scaling=dict(LLAMA3_ROPE_SCALING),
        ),
        "llama-3.2-1b": preset_keys(
            **LLAMA3_KEYS,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            head_dim=64,
            max_position_embeddings=131072,
            tie_word_embeddings=True,
            rope_scaling={**LLAMA3_ROPE_SCALING, "factor": 32.0},
        ),
    },
)
