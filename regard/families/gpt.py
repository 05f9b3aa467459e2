"""GPT (Radford et al. 2018): the first decoder trained on text alone, then fine-tuned.

GPT-2 before GPT-2: post-norm without a final norm, an inner size of four times the model's, and what its configs call
"gelu" is the tanh formula.
"""

from dataclasses import replace
from typing import Any

from regard.families import gpt2
from regard.families.family import Architecture, ConfigError, Family, Maybe, Story, Theirs
from regard.families.weight_map import Entry, Transposed
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
    "pad_token_id": Maybe(int),
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": Maybe(str),
    "summary_first_dropout": 0.1,
    "tie_word_embeddings": True,
}

SAME_AS_GPT2 = [key for key in KEYS if key in gpt2.KEYS]


def network(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The network of a config: GPT-2's with the norms after the sublayers."""
    if theirs["afn"] not in ACTIVATIONS:
        raise ConfigError(f"config.json: afn is {theirs['afn']!r}; known are {', '.join(ACTIVATIONS)}")
    later = gpt2.network(Theirs({key: theirs[key] for key in SAME_AS_GPT2}, gpt2.FAMILY), head)
    block = later.decoder.blocks[0]
    inner = replace(block.feedforward, activation=ACTIVATIONS[theirs["afn"]])
    return replace(
        later,
        decoder=replace(
            later.decoder, blocks=(replace(block, order=NormOrder.POST, feedforward=inner),), final_norm=None
        ),
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    later = gpt2.describe(design)
    inner, start = design.decoder.blocks[0].feedforward, design.initialization
    return {
        **{key: value for key, value in later.items() if key in KEYS or "label" in key},
        "afn": next((name for name, value in ACTIVATIONS.items() if value is inner.activation), "unknown"),
        "initializer_range": start.deviation if isinstance(start, Normal) else KEYS["initializer_range"],
    }


BLOCK = "decoder.blocks.#"
WEIGHTS = (
    Entry("@tokens_embed", "embedding.tokens"),
    Entry("@positions_embed", "embedding.position"),
    *gpt2.attention_weights("@h.#.attn", f"{BLOCK}.attention"),
    Entry("@h.#.ln_1", f"{BLOCK}.attention_residual.norm"),
    Entry("@h.#.mlp.c_fc", f"{BLOCK}.feedforward.up", Transposed()),
    Entry("@h.#.mlp.c_proj", f"{BLOCK}.feedforward.down", Transposed()),
    Entry("@h.#.ln_2", f"{BLOCK}.feedforward_residual.norm"),
)

FAMILY = Family(
    name="openai-gpt",
    story=Story(
        title="GPT",
        year=2018,
        paper="Radford et al., Improving Language Understanding by Generative Pre-Training",
        objective="continue the text",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored={
        "n_ctx": "an older name of n_positions, which is there too",
        "n_special": "how many tokens fine-tuning added, which vocab_size counts",
        "predict_special_tokens": "never used",
        "summary_proj_to_labels": "the head that it speaks of has one label",
    },
    ignored_weights={"@h.#.attn.bias": "the causal mask, which is computed", "@position_ids": "the numbers 0, 1, 2, …"},
    kinds=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "OpenAIGPTModel": Architecture(head=lambda _: None),
        "OpenAIGPTLMHeadModel": Architecture(
            base="transformer.", head=gpt2.words, weights=(Entry("lm_head", "head.output"),)
        ),
        "OpenAIGPTDoubleHeadsModel": Architecture(base="transformer.", head=gpt2.two_heads, weights=gpt2.TWO_HEADS),
        "OpenAIGPTForSequenceClassification": Architecture(
            base="transformer.",
            head=lambda t: Classification(labels=t.labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
    },
    presets={"openai-gpt": {"architectures": ["OpenAIGPTLMHeadModel"]}},
)
