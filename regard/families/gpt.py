"""GPT (Radford et al. 2018): the first decoder pretrained on raw text and then fine-tuned.

GPT-2 with these differences: post-norm without a final norm, a feed-forward size of always four times the model size,
and "gelu" in its configs means the tanh approximation.
"""

from dataclasses import replace
from typing import Any

from regard.families import gpt2
from regard.families.family import Architecture, ConfigError, Family, FamilyInfo, OptionalKey, PublishedConfig
from regard.families.weight_map import Entry, Transpose
from regard.transformer.config import (
    Activation,
    Classification,
    DecoderOnly,
    Head,
    Normal,
    NormOrder,
    Pooling,
)

ACTIVATIONS = {
    "gelu": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}

KEYS = {
    "vocab_size": 40478,
    "n_positions": 512,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "afn": "gelu",
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
    "tie_word_embeddings": True,
}

GPT2_KEYS = [key for key in KEYS if key in gpt2.KEYS]


def network(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the network config of a published config: GPT-2's, with the norms after the sublayers."""
    if theirs["afn"] not in ACTIVATIONS:
        raise ConfigError(f"config.json: afn is {theirs['afn']!r}; supported activations: {', '.join(ACTIVATIONS)}")
    gpt2_config = gpt2.network(PublishedConfig({key: theirs[key] for key in GPT2_KEYS}, gpt2.FAMILY), head)
    block = gpt2_config.decoder.blocks[0]
    feedforward = replace(block.feedforward, activation=ACTIVATIONS[theirs["afn"]])
    return replace(
        gpt2_config,
        decoder=replace(
            gpt2_config.decoder,
            blocks=(replace(block, order=NormOrder.POST, feedforward=feedforward),),
            final_norm=None,
        ),
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    gpt2_keys = gpt2.describe(design)
    feedforward, initialization = design.decoder.blocks[0].feedforward, design.initialization
    return {
        **{key: value for key, value in gpt2_keys.items() if key in KEYS or "label" in key},
        "afn": next((name for name, value in ACTIVATIONS.items() if value is feedforward.activation), "unknown"),
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
    }


BLOCK = "decoder.blocks.#"
WEIGHTS = (
    Entry("@tokens_embed", "embedding.tokens"),
    Entry("@positions_embed", "embedding.position"),
    *gpt2.attention_entries("@h.#.attn", f"{BLOCK}.attention"),
    Entry("@h.#.ln_1", f"{BLOCK}.attention_residual.norm"),
    Entry("@h.#.mlp.c_fc", f"{BLOCK}.feedforward.up", Transpose()),
    Entry("@h.#.mlp.c_proj", f"{BLOCK}.feedforward.down", Transpose()),
    Entry("@h.#.ln_2", f"{BLOCK}.feedforward_residual.norm"),
)

FAMILY = Family(
    name="openai-gpt",
    info=FamilyInfo(
        title="GPT",
        year=2018,
        paper="Radford et al., Improving Language Understanding by Generative Pre-Training",
        objective="causal language modelling",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys={
        "n_ctx": "older name of n_positions, which is also present",
        "n_special": "tokens added by fine-tuning, included in vocab_size",
        "predict_special_tokens": "never used",
        "summary_proj_to_labels": "the summary head always has one label",
    },
    ignored_weights={
        "@h.#.attn.bias": "the causal mask, which is computed",
        "@position_ids": "position ids 0, 1, 2, …",
    },
    network_types=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "OpenAIGPTModel": Architecture(head=lambda _: None),
        "OpenAIGPTLMHeadModel": Architecture(
            prefix="transformer.", head=gpt2.language_model_head, weights=(Entry("lm_head", "head.output"),)
        ),
        "OpenAIGPTDoubleHeadsModel": Architecture(
            prefix="transformer.", head=gpt2.two_heads, weights=gpt2.TWO_HEADS_WEIGHTS
        ),
        "OpenAIGPTForSequenceClassification": Architecture(
            prefix="transformer.",
            head=lambda t: Classification(labels=t.num_labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
    },
    presets={"openai-gpt": {"architectures": ["OpenAIGPTLMHeadModel"]}},
)
