"""The vision Transformer (Dosovitskiy et al. 2020): an encoder that reads an image as a row of patches.

Pre-norm, learned positions, GELU, and a class vector before the patches, by which the image is judged. Trained to guess
the pixels of hidden patches (SimMIM, Xie et al. 2021), it has a vector for those.
"""

from dataclasses import replace
from typing import Any

from regard.families.family import Architecture, ConfigError, Family, Maybe, Story, Theirs, activation_name, labels
from regard.families.weight_map import Entry, PointKernel, Reshaped
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
    "head_dim": Maybe(int),
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
    "pooler_output_size": Maybe(int),
    "pooler_act": "tanh",
}


VECTOR = Reshaped((1, 1, -1), (-1,))
"""A vector as they store it: a batch of one row of one."""


def network(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The network of a config."""
    patches = cut(theirs)
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    head_dim = theirs["head_dim"] or theirs.divide("hidden_size", "num_attention_heads")
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
            position=Learned(length=places(patches), offset=0),
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


def cut(theirs: Theirs, bias: bool = True) -> Patches:
    """How images are cut."""
    return Patches(
        image=pair(theirs, "image_size"),
        patch=pair(theirs, "patch_size"),
        channels=theirs["num_channels"],
        bias=bias,
        mask_vector=False,
    )


def pair(theirs: Theirs, key: str) -> tuple[int, int]:
    """Height and width, which a config may give as one number where they are the same."""
    value = theirs[key]
    sides = value if isinstance(value, list | tuple) else [value, value]
    if len(sides) != 2 or not all(type(side) is int and 0 < side < 2**16 for side in sides):
        raise ConfigError(f"config.json: {key} must be a number of pixels, or height and width, found {value!r}")
    return sides[0], sides[1]


def places(patches: Patches) -> int:
    """How long the row of an image is: its class vector and its patches."""
    count = (patches.image[0] // patches.patch[0]) * (patches.image[1] // patches.patch[1])
    if not count:
        raise ConfigError(f"config.json: image_size {patches.image} holds no patch of patch_size {patches.patch}")
    return 1 + count


def describe(design: EncoderOnly) -> dict[str, Any]:
    """The config of a network."""
    patches, block, start = design.embedding.tokens, design.encoder.blocks[0], design.initialization
    assert isinstance(block.feedforward, Dense)
    own_size = block.attention.head_dim * block.attention.heads != design.model_dim
    return {
        "hidden_size": design.model_dim,
        "num_hidden_layers": design.encoder.layers,
        "num_attention_heads": block.attention.heads,
        **({"head_dim": block.attention.head_dim} if own_size else {}),
        "intermediate_size": block.feedforward.dim,
        "hidden_act": activation_name(block.feedforward.activation),
        "hidden_dropout_prob": design.embedding.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
        "initializer_range": start.deviation if isinstance(start, Normal) else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "image_size": together(patches.image),  # type: ignore[union-attr]
        "patch_size": together(patches.patch),  # type: ignore[union-attr]
        "num_channels": patches.channels,  # type: ignore[union-attr]
        "qkv_bias": block.attention.bias,
        "encoder_stride": patches.patch[0],  # type: ignore[union-attr]
        "pooler_act": activation_name(design.head.transform.activation) if isinstance(design.head, Pooler) else "tanh",
        **labels(design),
    }


def together(sides: tuple[int, ...]) -> int | list[int]:
    """One number, where height and width are the same."""
    return sides[0] if sides[0] == sides[1] else list(sides)


def pooler(theirs: Theirs) -> Pooler:
    """The head of the bare network."""
    theirs.require("pooler_output_size", None, theirs["hidden_size"])
    return Pooler(pooling=Pooling.FIRST, transform=Transform(activation=theirs.activation("pooler_act"), norm=None))


def pixels(theirs: Theirs) -> Pixels:
    """The head that guesses hidden patches. What it guesses must be as large as what was hidden."""
    patches = cut(theirs)
    if patches.patch != (theirs["encoder_stride"], theirs["encoder_stride"]):
        raise ConfigError(
            f"config.json: encoder_stride is {theirs['encoder_stride']}, and patch_size is "
            f"{together(patches.patch)}: pixels can be guessed only where they are the same"
        )
    return Pixels(labels=patches.channels * patches.patch[0] * patches.patch[1], bias=True)


def with_mask_vector(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The network with a vector for hidden patches."""
    design = network(theirs, head)
    tokens = replace(cut(theirs), mask_vector=True)
    return replace(design, embedding=replace(design.embedding, tokens=tokens))


def kernel(patches: Patches) -> Reshaped:
    """The layer of the patches as they store it: the kernel of a convolution."""
    shape = (patches.channels, *patches.patch)
    return Reshaped((-1, *shape), (-1, shape[0] * shape[1] * shape[2]))


def weights(design: EncoderOnly) -> tuple[Entry, ...]:
    """Where the network's weights stand."""
    theirs, ours, patches = "@encoder.layer.#", "encoder.blocks.#", design.embedding.tokens
    assert isinstance(patches, Patches)
    project = "@embeddings.patch_embeddings.projection"
    table = Reshaped((1, -1, design.model_dim), (-1, design.model_dim))
    return (
        Entry("@embeddings.cls_token", "embedding.tokens.class_vector", VECTOR, exact=True),
        Entry(f"{project}.weight", "embedding.tokens.project.weight", kernel(patches), exact=True),
        Entry(f"{project}.bias", "embedding.tokens.project.bias", exact=True),
        Entry("@embeddings.position_embeddings", "embedding.position.weight", table, exact=True),
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
    story=Story(
        title="Vision Transformer",
        year=2020,
        paper="Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
        objective="classify images",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored={"pad_token_id": "an image has no padding"},
    kinds=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "ViTModel": Architecture(head=pooler, weights=(Entry("@pooler.dense", "head.transform.dense"),)),
        "ViTForImageClassification": Architecture(
            base="vit.",
            head=lambda theirs: Classification(labels=theirs.labels, pooling=Pooling.FIRST, transform=None, bias=True),
            weights=(Entry("classifier", "head.output"),),
        ),
        "ViTForMaskedImageModeling": Architecture(
            base="vit.",
            head=pixels,
            network=with_mask_vector,
            weights=(
                Entry("decoder.0", "head.output", PointKernel()),
                Entry("@embeddings.mask_token", "embedding.tokens.mask_vector", VECTOR, exact=True),
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
