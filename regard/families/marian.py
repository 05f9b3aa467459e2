"""Marian (Junczys-Dowmunt et al. 2018): the 2017 Transformer as its translation toolkit trains it.

Sinusoidal positions in halves, computed and not stored; otherwise put together and named like BART.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.families import bart
from regard.families.bart import BIAS, OUTPUT, words
from regard.families.family import Architecture, Family, Maybe, Story, Theirs
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
    "decoder_vocab_size": Maybe(int),
    "pad_token_id": 58100,
    "share_encoder_decoder_embeddings": True,
    "num_labels": 2,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


def embedding(theirs: Theirs, tokens: Tokens | SourceTokens) -> Embedding:
    """Of the source, or of the target."""
    waves = Sinusoidal(layout=Layout.HALVES, length=theirs["max_position_embeddings"])
    return replace(bart.embedding(theirs, tokens), position=waves, norm=None)


def require(theirs: Theirs) -> None:
    """What older configs spell out must be what it always is."""
    for key in ("normalize_before", "add_final_layer_norm", "add_bias_logits", "normalize_embedding"):
        theirs.require(key, False)
    theirs.require("static_position_embeddings", True)


def target_vocabulary(theirs: Theirs) -> int:
    """How many tokens the decoder knows."""
    shared = theirs["share_encoder_decoder_embeddings"]
    return int(theirs["vocab_size"] if shared else theirs["decoder_vocab_size"] or theirs["vocab_size"])


def network(theirs: Theirs, head: Head | None) -> EncoderDecoder:
    """The network of a config."""
    require(theirs)
    shared, padding = theirs["share_encoder_decoder_embeddings"], theirs["pad_token_id"]
    own = Tokens(vocabulary=target_vocabulary(theirs), padding=padding)
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=padding)),
        target=embedding(theirs, SourceTokens() if shared else own),
        encoder=bart.stack(theirs, "encoder", across=False),
        decoder=bart.stack(theirs, "decoder", across=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def decoder_alone(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The decoder without its encoder."""
    require(theirs)
    return DecoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        decoder=bart.stack(theirs, "decoder", across=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    described = bart.describe(design)
    if isinstance(design, EncoderDecoder):
        shared = isinstance(design.target.tokens, SourceTokens)
        described["share_encoder_decoder_embeddings"] = shared
        if isinstance(design.target.tokens, Tokens):
            described["decoder_vocab_size"] = design.target.tokens.vocabulary
    return described


def sines(design: EncoderDecoder | DecoderOnly, base: str) -> dict[str, Tensor]:
    """The sinusoidal positions as a table, which the classes without a translation head expect."""
    names = ["encoder", "decoder"] if isinstance(design, EncoderDecoder) else ["decoder"]
    embedding = design.source if isinstance(design, EncoderDecoder) else design.embedding
    assert isinstance(embedding.position, Sinusoidal)
    table = sinusoids(embedding.position.length, embedding.dim)
    return {f"{base}{name}.embed_positions.weight": table for name in names}


FAMILY = Family(
    name="marian",
    story=Story(
        title="Marian",
        year=2018,
        paper="Junczys-Dowmunt et al., Marian: Fast Neural Machine Translation in C++",
        objective="translate",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored=bart.IGNORED,
    ignored_weights={
        "@encoder.embed_positions.weight": "sines and cosines, which are computed",
        "@decoder.embed_positions.weight": "sines and cosines, which are computed",
    },
    kinds=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=bart.weights,
    architectures={
        "MarianModel": Architecture(head=lambda _: None, computed=lambda design: sines(design, "")),
        "MarianMTModel": Architecture(
            base="model.",
            head=lambda theirs: replace(words(theirs), vocabulary=target_vocabulary(theirs)),
            weights=(OUTPUT, BIAS),
        ),
        "MarianForCausalLM": Architecture(
            base="model.",
            head=lambda theirs: words(theirs, OutputBias.NONE),
            weights=(OUTPUT,),
            network=decoder_alone,
            computed=lambda design: sines(design, "model."),
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
