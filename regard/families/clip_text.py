"""CLIP's text encoder (Radford et al. 2021): reads from left to right, and says what a text means in one vector.

Pre-norm, learned positions, a quick GELU. The vector is the one at the end of the text, which has seen all of it.
"""

from typing import Any

from regard.families.family import Architecture, ConfigError, Family, Story, Theirs, activation_name
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

SIDE = {
    "num_hidden_layers": 12,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "initializer_factor": 1.0,
    "projection_dim": 512,
}
"""What the encoders of texts and of images have in common."""
KEYS = {
    **SIDE,
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "pad_token_id": 1,
    "eos_token_id": 49407,
}
DEVIATION = 0.02
OLD_END = 2
"""What the first files had as end token. They meant the highest id of a text, and are still read so."""
UNUSED = {
    "dropout": "never used: there is dropout of the attention weights alone",
    **dict.fromkeys(
        ["add_cross_attention", "is_decoder", "tie_encoder_decoder", "tie_word_embeddings"],
        "older releases wrote the keys of all families: CLIP has nothing of the kind",
    ),
}


def network(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The network of a config."""
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
        initialization=ByWidth(deviation=DEVIATION, factor=theirs["initializer_factor"]),
    )


def stack(theirs: Theirs, mask: Causal | Everything, final_norm: LayerNorm | None) -> Stack:
    """The blocks, which are alike on both sides."""
    head_dim = theirs.divide("hidden_size", "num_attention_heads")
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


def features(theirs: Theirs, projection: int | None) -> Features:
    """The vector at the end of the text."""
    end = theirs["eos_token_id"]
    if end is None:
        raise ConfigError("config.json: eos_token_id is null, and a text's vector is the one at this token")
    return Features(pooling=HighestToken() if end == OLD_END else AtToken(token=end), norm=None, projection=projection)


def describe(design: EncoderOnly) -> dict[str, Any]:
    """The config of a network."""
    pooling = design.head.pooling  # type: ignore[union-attr]
    return {
        **describe_side(design),
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "max_position_embeddings": design.embedding.position.length,  # type: ignore[union-attr]
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "eos_token_id": OLD_END if isinstance(pooling, HighestToken) else pooling.token,  # type: ignore[union-attr]
    }


def describe_side(design: EncoderOnly) -> dict[str, Any]:
    """The keys that both sides have."""
    block, start = design.encoder.blocks[0], design.initialization
    projection = design.head.projection if isinstance(design.head, Features) else None
    return {
        "hidden_size": design.model_dim,
        "intermediate_size": block.feedforward.dim,
        "projection_dim": SIDE["projection_dim"] if projection is None else projection,
        "num_hidden_layers": design.encoder.layers,
        "num_attention_heads": block.attention.heads,
        "hidden_act": activation_name(block.feedforward.activation),
        "layer_norm_eps": block.norm.epsilon,
        "attention_dropout": block.attention.dropout,
        "initializer_factor": start.factor if isinstance(start, ByWidth) else SIDE["initializer_factor"],
    }


def weights(theirs: str = "@", ours: str = "") -> tuple[Entry, ...]:
    """Where the network's weights stand, alone or as a part of another network."""
    return (
        Entry(f"{theirs}embeddings.token_embedding", f"{ours}embedding.tokens"),
        Entry(f"{theirs}embeddings.position_embedding", f"{ours}embedding.position"),
        *block_weights(f"{theirs}encoder.layers.#", f"{ours}encoder.blocks.#"),
        Entry(f"{theirs}final_layer_norm", f"{ours}encoder.final_norm"),
    )


def block_weights(theirs: str, ours: str) -> tuple[Entry, ...]:
    """A block's."""
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
    story=Story(
        title="CLIP's texts",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="tell which text belongs to which image",
        parent="CLIP",
    ),
    keys=KEYS,
    ignored={**UNUSED, "initializer_range": "never used: texts start with 0.02"},
    ignored_weights={"@embeddings.position_ids": "the numbers 0, 1, 2, …"},
    kinds=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: weights(),
    architectures={
        # Older releases stored this one under `text_model.` too: both are read.
        "CLIPTextModel": Architecture(head=lambda theirs: features(theirs, None)),
        "CLIPTextModelWithProjection": Architecture(
            base="text_model.",
            head=lambda theirs: features(theirs, theirs["projection_dim"]),
            weights=(Entry("text_projection", "head.projection"),),
        ),
    },
    presets={},
)
