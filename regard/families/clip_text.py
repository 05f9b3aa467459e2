"""CLIP's text encoder (Radford et al. 2021): a causal encoder that maps a text to one vector.

Pre-norm, learned positions, quick GELU. The vector is the hidden state at the EOS token, which attends to all tokens.
"""

from typing import Any

from regard.families.family import Architecture, ConfigError, Family, FamilyInfo, PublishedConfig, activation_name
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Apart,
    Attention,
    AtToken,
    Block,
    ByWidth,
    Dense,
    Embedding,
    EncoderOnly,
    Features,
    Head,
    HighestToken,
    LayerNorm,
    Learned,
    NormOrder,
    Stack,
    Tokens,
)
from regard.transformer.mask import Causal, Everything

SHARED_KEYS = {
    "num_hidden_layers": 12,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "initializer_factor": 1.0,
    "projection_dim": 512,
}
"""The keys that the text and the vision encoder share."""
KEYS = {
    **SHARED_KEYS,
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "pad_token_id": 1,
    "eos_token_id": 49407,
}
INITIALIZER_RANGE = 0.02
LEGACY_EOS_TOKEN_ID = 2
"""The `eos_token_id` in the first files. It means: pool at the highest token id of the text."""
UNUSED_KEYS = {
    "dropout": "never used: dropout is applied to the attention weights only",
    **dict.fromkeys(
        ["add_cross_attention", "is_decoder", "tie_encoder_decoder", "tie_word_embeddings"],
        "keys of other families, written by older releases",
    ),
}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config of a published config."""
    return EncoderOnly(
        model_dim=theirs["hidden_size"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["hidden_size"],
            scale=1.0,
            segments=0,
            position=Learned(length=theirs["max_position_embeddings"], offset=0),
            norm=None,
            projection=None,
        ),
        encoder=stack(theirs, Causal(), LayerNorm(epsilon=theirs["layer_norm_eps"])),
        head=head,
        initialization=ByWidth(deviation=INITIALIZER_RANGE, factor=theirs["initializer_factor"]),
    )


def stack(theirs: PublishedConfig, mask: Causal | Everything, final_norm: LayerNorm | None) -> Stack:
    """Return the config of the stack; both encoders have the same blocks."""
    head_dim = theirs.head_dim("hidden_size", "num_attention_heads")
    block = Block(
        attention=Attention(
            heads=theirs["num_attention_heads"],
            key_value_heads=theirs["num_attention_heads"],
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=True,
            output_bias=True,
            position=None,
            dropout=theirs["attention_dropout"],
        ),
        cross_attention=None,
        feedforward=Dense(dim=theirs["intermediate_size"], activation=theirs.activation("hidden_act"), bias=True),
        norm=LayerNorm(epsilon=theirs["layer_norm_eps"]),
        order=NormOrder.PRE,
        mask=Everything(),
    )
    return Stack(
        layers=theirs["num_hidden_layers"],
        sharing=Apart(),
        blocks=(block,),
        mask=mask,
        position=None,
        memory=None,
        final_norm=final_norm,
    )


def features_head(theirs: PublishedConfig, projection: int | None) -> Features:
    """Return the config of the head that outputs the hidden state at the EOS token."""
    eos = theirs["eos_token_id"]
    if eos is None:
        raise ConfigError("config.json: eos_token_id is null, but the text embedding is the hidden state at this token")
    return Features(
        pooling=HighestToken() if eos == LEGACY_EOS_TOKEN_ID else AtToken(token=eos), norm=None, projection=projection
    )


def describe(design: EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    pooling = design.head.pooling  # type: ignore[union-attr]
    return {
        **describe_shared(design),
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "max_position_embeddings": design.embedding.position.length,  # type: ignore[union-attr]
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "eos_token_id": LEGACY_EOS_TOKEN_ID if isinstance(pooling, HighestToken) else pooling.token,  # type: ignore[union-attr]
    }


def describe_shared(design: EncoderOnly) -> dict[str, Any]:
    """Return the published keys that both encoders share."""
    block, initialization = design.encoder.blocks[0], design.initialization
    projection = design.head.projection if isinstance(design.head, Features) else None
    return {
        "hidden_size": design.model_dim,
        "intermediate_size": block.feedforward.dim,
        "projection_dim": SHARED_KEYS["projection_dim"] if projection is None else projection,
        "num_hidden_layers": design.encoder.layers,
        "num_attention_heads": block.attention.heads,
        "hidden_act": activation_name(block.feedforward.activation),
        "layer_norm_eps": block.norm.epsilon,
        "attention_dropout": block.attention.dropout,
        "initializer_factor": initialization.factor
        if isinstance(initialization, ByWidth)
        else SHARED_KEYS["initializer_factor"],
    }


def weights(theirs: str = "@", ours: str = "") -> tuple[Entry, ...]:
    """Return the weight map of the encoder, alone or as a part of `CLIPModel`."""
    return (
        Entry(f"{theirs}embeddings.token_embedding", f"{ours}embedding.tokens"),
        Entry(f"{theirs}embeddings.position_embedding", f"{ours}embedding.position"),
        *block_entries(f"{theirs}encoder.layers.#", f"{ours}encoder.blocks.#"),
        Entry(f"{theirs}final_layer_norm", f"{ours}encoder.final_norm"),
    )


def block_entries(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the weight map of a block."""
    return (
        Entry(f"{theirs}.layer_norm1", f"{ours}.attention_residual.norm"),
        Entry(f"{theirs}.self_attn.q_proj", f"{ours}.attention.project.query"),
        Entry(f"{theirs}.self_attn.k_proj", f"{ours}.attention.project.key"),
        Entry(f"{theirs}.self_attn.v_proj", f"{ours}.attention.project.value"),
        Entry(f"{theirs}.self_attn.out_proj", f"{ours}.attention.output"),
        Entry(f"{theirs}.layer_norm2", f"{ours}.feedforward_residual.norm"),
        Entry(f"{theirs}.mlp.fc1", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.mlp.fc2", f"{ours}.feedforward.down"),
    )


FAMILY = Family(
    name="clip_text_model",
    info=FamilyInfo(
        title="CLIP text encoder",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="contrastive image-text matching",
        parent="CLIP",
    ),
    keys=KEYS,
    ignored_keys={**UNUSED_KEYS, "initializer_range": "never used: the text encoder is initialized with 0.02"},
    ignored_weights={"@embeddings.position_ids": "position ids 0, 1, 2, …"},
    network_types=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: weights(),
    architectures={
        # Older releases stored this class under `text_model.`; both spellings are read.
        "CLIPTextModel": Architecture(head=lambda theirs: features_head(theirs, None)),
        "CLIPTextModelWithProjection": Architecture(
            prefix="text_model.",
            head=lambda theirs: features_head(theirs, theirs["projection_dim"]),
            weights=(Entry("text_projection", "head.projection"),),
        ),
    },
    presets={},
)
