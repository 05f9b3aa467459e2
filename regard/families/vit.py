"""The vision Transformer (Dosovitskiy et al. 2020): an encoder whose tokens are image patches.

Pre-norm, learned positions, GELU, and a class vector before the patches, on which the image is classified. For masked
image modelling (predicting the pixels of masked patches: SimMIM, Xie et al. 2021) it has a mask vector.
"""

from dataclasses import replace
from typing import Any

from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    activation_name,
    label_keys,
)
from regard.families.weight_map import Conv1x1, Entry, Reshape
from regard.transformer.config import (
    Apart,
    Attention,
    Block,
    Classification,
    Dense,
    Embedding,
    EncoderOnly,
    Head,
    LayerNorm,
    Learned,
    Normal,
    NormOrder,
    Patches,
    Pixels,
    Pooler,
    Pooling,
    Stack,
    Transform,
)
from regard.transformer.mask import Everything

KEYS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "head_dim": OptionalKey(int),
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "image_size": (224, 224),
    "patch_size": (16, 16),
    "num_channels": 3,
    "qkv_bias": True,
    "encoder_stride": 16,
    "pooler_output_size": OptionalKey(int),
    "pooler_act": "tanh",
}


RESHAPE_VECTOR = Reshape((1, 1, -1), (-1,))
"""Converts a vector that is stored as 1 × 1 × dim."""


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config of a published config."""
    patches = patches_config(theirs)
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    head_dim = theirs["head_dim"] or theirs.head_dim("hidden_size", "num_attention_heads")
    block = Block(
        attention=Attention(
            heads=theirs["num_attention_heads"],
            key_value_heads=theirs["num_attention_heads"],
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=theirs["qkv_bias"],
            output_bias=True,
            position=None,
            dropout=theirs["attention_probs_dropout_prob"],
            output_dropout=theirs["hidden_dropout_prob"],
        ),
        cross_attention=None,
        feedforward=Dense(
            dim=theirs["intermediate_size"],
            activation=theirs.activation("hidden_act"),
            bias=True,
            output_dropout=theirs["hidden_dropout_prob"],
        ),
        norm=norm,
        order=NormOrder.PRE,
        mask=Everything(),
    )
    return EncoderOnly(
        model_dim=theirs["hidden_size"],
        embedding=Embedding(
            tokens=patches,
            dim=theirs["hidden_size"],
            scale=1.0,
            segments=0,
            position=Learned(length=num_positions(patches), offset=0),
            norm=None,
            projection=None,
            dropout=theirs["hidden_dropout_prob"],
        ),
        encoder=Stack(
            layers=theirs["num_hidden_layers"],
            sharing=Apart(),
            blocks=(block,),
            mask=Everything(),
            position=None,
            memory=None,
            final_norm=norm,
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def patches_config(theirs: PublishedConfig, bias: bool = True) -> Patches:
    """Return the config of the patch embedding."""
    return Patches(
        image=height_and_width(theirs, "image_size"),
        patch=height_and_width(theirs, "patch_size"),
        channels=theirs["num_channels"],
        bias=bias,
        mask_vector=False,
    )


def height_and_width(theirs: PublishedConfig, key: str) -> tuple[int, int]:
    """Return height and width, which a config may give as one number if they are equal."""
    value = theirs[key]
    sides = value if isinstance(value, list | tuple) else [value, value]
    if len(sides) != 2 or not all(type(side) is int and 0 < side < 2**16 for side in sides):
        raise ConfigError(f"config.json: {key} must be a number of pixels, or height and width, found {value!r}")
    return sides[0], sides[1]


def num_positions(patches: Patches) -> int:
    """Return the sequence length of an image: the class vector and the patches."""
    count = (patches.image[0] // patches.patch[0]) * (patches.image[1] // patches.patch[1])
    if not count:
        raise ConfigError(f"config.json: image_size {patches.image} is smaller than patch_size {patches.patch}")
    return 1 + count


def describe(design: EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    patches, block, initialization = design.embedding.tokens, design.encoder.blocks[0], design.initialization
    assert isinstance(block.feedforward, Dense)
    custom_head_dim = block.attention.head_dim * block.attention.heads != design.model_dim
    return {
        "hidden_size": design.model_dim,
        "num_hidden_layers": design.encoder.layers,
        "num_attention_heads": block.attention.heads,
        **({"head_dim": block.attention.head_dim} if custom_head_dim else {}),
        "intermediate_size": block.feedforward.dim,
        "hidden_act": activation_name(block.feedforward.activation),
        "hidden_dropout_prob": design.embedding.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "image_size": merge_sides(patches.image),  # type: ignore[union-attr]
        "patch_size": merge_sides(patches.patch),  # type: ignore[union-attr]
        "num_channels": patches.channels,  # type: ignore[union-attr]
        "qkv_bias": block.attention.bias,
        "encoder_stride": patches.patch[0],  # type: ignore[union-attr]
        "pooler_act": activation_name(design.head.transform.activation) if isinstance(design.head, Pooler) else "tanh",
        **label_keys(design),
    }


def merge_sides(sides: tuple[int, ...]) -> int | list[int]:
    """Return one number if height and width are equal."""
    return sides[0] if sides[0] == sides[1] else list(sides)


def pooler_head(theirs: PublishedConfig) -> Pooler:
    """Return the config of the pooler of `ViTModel`."""
    theirs.require("pooler_output_size", None, theirs["hidden_size"])
    return Pooler(pooling=Pooling.FIRST, transform=Transform(activation=theirs.activation("pooler_act"), norm=None))


def pixels_head(theirs: PublishedConfig) -> Pixels:
    """Return the config of the masked-patch head. It predicts the pixels of whole patches."""
    patches = patches_config(theirs)
    if patches.patch != (theirs["encoder_stride"], theirs["encoder_stride"]):
        raise ConfigError(
            f"config.json: encoder_stride is {theirs['encoder_stride']}, patch_size is "
            f"{merge_sides(patches.patch)}: masked image modelling needs them to be equal"
        )
    return Pixels(labels=patches.channels * patches.patch[0] * patches.patch[1], bias=True)


def network_with_mask_vector(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config with a mask vector for masked patches."""
    design = network(theirs, head)
    tokens = replace(patches_config(theirs), mask_vector=True)
    return replace(design, embedding=replace(design.embedding, tokens=tokens))


def conv_kernel(patches: Patches) -> Reshape:
    """Return the conversion of the patch projection, which is stored as a convolution kernel."""
    shape = (patches.channels, *patches.patch)
    return Reshape((-1, *shape), (-1, shape[0] * shape[1] * shape[2]))


def weights(design: EncoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the network (without its head)."""
    theirs, ours, patches = "@encoder.layer.#", "encoder.blocks.#", design.embedding.tokens
    assert isinstance(patches, Patches)
    project = "@embeddings.patch_embeddings.projection"
    positions = Reshape((1, -1, design.model_dim), (-1, design.model_dim))
    return (
        Entry("@embeddings.cls_token", "embedding.tokens.class_vector", RESHAPE_VECTOR, exact=True),
        Entry(f"{project}.weight", "embedding.tokens.project.weight", conv_kernel(patches), exact=True),
        Entry(f"{project}.bias", "embedding.tokens.project.bias", exact=True),
        Entry("@embeddings.position_embeddings", "embedding.position.weight", positions, exact=True),
        Entry(f"{theirs}.layernorm_before", f"{ours}.attention_residual.norm"),
        Entry(f"{theirs}.attention.attention.query", f"{ours}.attention.project.query"),
        Entry(f"{theirs}.attention.attention.key", f"{ours}.attention.project.key"),
        Entry(f"{theirs}.attention.attention.value", f"{ours}.attention.project.value"),
        Entry(f"{theirs}.attention.output.dense", f"{ours}.attention.output"),
        Entry(f"{theirs}.layernorm_after", f"{ours}.feedforward_residual.norm"),
        Entry(f"{theirs}.intermediate.dense", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.output.dense", f"{ours}.feedforward.down"),
        Entry("@layernorm", "encoder.final_norm"),
    )


FAMILY = Family(
    name="vit",
    info=FamilyInfo(
        title="Vision Transformer",
        year=2020,
        paper="Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
        objective="image classification",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys={"pad_token_id": "an image has no padding"},
    network_types=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "ViTModel": Architecture(head=pooler_head, weights=(Entry("@pooler.dense", "head.transform.dense"),)),
        "ViTForImageClassification": Architecture(
            prefix="vit.",
            head=lambda theirs: Classification(
                labels=theirs.num_labels, pooling=Pooling.FIRST, transform=None, bias=True
            ),
            weights=(Entry("classifier", "head.output"),),
        ),
        "ViTForMaskedImageModeling": Architecture(
            prefix="vit.",
            head=pixels_head,
            network=network_with_mask_vector,
            weights=(
                Entry("decoder.0", "head.output", Conv1x1()),
                Entry("@embeddings.mask_token", "embedding.tokens.mask_vector", RESHAPE_VECTOR, exact=True),
            ),
        ),
    },
    presets={
        f"vit-{size}": {
            "architectures": ["ViTForImageClassification"],
            **dict(hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * dim),
            **dict(patch_size=patch, num_labels=1000),
        }
        for size, dim, layers, heads, patch in [
            ("base", 768, 12, 12, 16),
            ("large", 1024, 24, 16, 16),
            ("huge", 1280, 32, 16, 14),
        ]
    },
)
