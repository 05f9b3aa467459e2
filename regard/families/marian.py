"""Marian (Junczys-Dowmunt et al. 2018): the 2017 Transformer as the Marian translation toolkit trains it.

Sinusoidal positions in halves, computed and not stored; otherwise the same blocks and weight names as BART.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.families import bart
from regard.families.bart import LM_HEAD_WEIGHT, LOGITS_BIAS_WEIGHT, language_model_head
from regard.families.family import Architecture, Family, FamilyInfo, OptionalKey, PublishedConfig
from regard.families.sinusoids import sinusoids
from regard.transformer.config import (
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    Head,
    Layout,
    Normal,
    OutputBias,
    Sinusoidal,
    SourceTokens,
    Tokens,
)

KEYS = {
    **bart.KEYS,
    "vocab_size": 58101,
    "decoder_vocab_size": OptionalKey(int),
    "pad_token_id": 58100,
    "share_encoder_decoder_embeddings": True,
    "num_labels": 2,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


def embedding(theirs: PublishedConfig, tokens: Tokens | SourceTokens) -> Embedding:
    """Return the config of the source or target embedding."""
    sinusoidal = Sinusoidal(layout=Layout.HALVES, length=theirs["max_position_embeddings"])
    return replace(bart.embedding(theirs, tokens), position=sinusoidal, norm=None)


def check_legacy_keys(theirs: PublishedConfig) -> None:
    """Reject older configs whose explicit values differ from the only supported ones."""
    for key in ("normalize_before", "add_final_layer_norm", "add_bias_logits", "normalize_embedding"):
        theirs.require(key, False)
    theirs.require("static_position_embeddings", True)


def target_vocabulary(theirs: PublishedConfig) -> int:
    """Return the vocabulary size of the decoder."""
    shared = theirs["share_encoder_decoder_embeddings"]
    return int(theirs["vocab_size"] if shared else theirs["decoder_vocab_size"] or theirs["vocab_size"])


def network(theirs: PublishedConfig, head: Head | None) -> EncoderDecoder:
    """Return the network config of a published config."""
    check_legacy_keys(theirs)
    shared, padding = theirs["share_encoder_decoder_embeddings"], theirs["pad_token_id"]
    target_tokens = Tokens(vocabulary=target_vocabulary(theirs), padding=padding)
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=padding)),
        target=embedding(theirs, SourceTokens() if shared else target_tokens),
        encoder=bart.stack(theirs, "encoder", cross_attention=False),
        decoder=bart.stack(theirs, "decoder", cross_attention=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def decoder_only(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the config of the decoder without its encoder."""
    check_legacy_keys(theirs)
    return DecoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        decoder=bart.stack(theirs, "decoder", cross_attention=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    published = bart.describe(design)
    if isinstance(design, EncoderDecoder):
        shared = isinstance(design.target.tokens, SourceTokens)
        published["share_encoder_decoder_embeddings"] = shared
        if isinstance(design.target.tokens, Tokens):
            published["decoder_vocab_size"] = design.target.tokens.vocabulary
    return published


def position_buffers(design: EncoderDecoder | DecoderOnly, prefix: str) -> dict[str, Tensor]:
    """Return the sinusoidal position table, which readers of the classes without a translation head expect."""
    names = ["encoder", "decoder"] if isinstance(design, EncoderDecoder) else ["decoder"]
    embedding = design.source if isinstance(design, EncoderDecoder) else design.embedding
    assert isinstance(embedding.position, Sinusoidal)
    table = sinusoids(embedding.position.length, embedding.dim)
    return {f"{prefix}{name}.embed_positions.weight": table for name in names}


FAMILY = Family(
    name="marian",
    info=FamilyInfo(
        title="Marian",
        year=2018,
        paper="Junczys-Dowmunt et al., Marian: Fast Neural Machine Translation in C++",
        objective="translation",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys=bart.BART_IGNORED_KEYS,
    ignored_weights={
        "@encoder.embed_positions.weight": "sinusoidal table, which is computed",
        "@decoder.embed_positions.weight": "sinusoidal table, which is computed",
    },
    network_types=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=bart.weights,
    architectures={
        "MarianModel": Architecture(head=lambda _: None, buffers=lambda design: position_buffers(design, "")),
        "MarianMTModel": Architecture(
            prefix="model.",
            head=lambda theirs: replace(language_model_head(theirs), vocabulary=target_vocabulary(theirs)),
            weights=(LM_HEAD_WEIGHT, LOGITS_BIAS_WEIGHT),
        ),
        "MarianForCausalLM": Architecture(
            prefix="model.",
            head=lambda theirs: language_model_head(theirs, OutputBias.NONE),
            weights=(LM_HEAD_WEIGHT,),
            network=decoder_only,
            buffers=lambda design: position_buffers(design, "model."),
        ),
    },
    presets={
        "marian-base": {
            "architectures": ["MarianMTModel"],
            **dict(d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048),
            **dict(encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=512),
            **dict(activation_function="swish", scale_embedding=True),
        },
    },
)
