"""CLIP's image encoder (Radford et al. 2021): a vision Transformer that says in one vector what an image shows.

Unlike ViT it has a norm before the first block, no bias at the patches, and norms only the vector that it gives.
"""

from typing import Any

from regard.families.clip_text import SIDE, UNUSED, block_weights, describe_side, stack
from regard.families.family import Architecture, Family, Story, Theirs
from regard.families.vit import cut, kernel, places
from regard.families.weight_map import Entry
from regard.transformer.config import (
    ByWidth,
    Embedding,
    EncoderOnly,
    Features,
    Head,
    LayerNorm,
    Learned,
    Patches,
    Pooling,
)
from regard.transformer.mask import Everything

KEYS = {
    **SIDE,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
    "initializer_range": 0.02,
}


def network(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The network of a config."""
    patches = cut(theirs, bias=False)
    return EncoderOnly(
        model_dim=theirs["hidden_size"],
        embedding=Embedding(
            tokens=patches,
            dim=theirs["hidden_size"],
            scale=1.0,
            segments=0,
            position=Learned(length=places(patches), offset=0),
            norm=LayerNorm(epsilon=theirs["layer_norm_eps"]),
            projection=None,
        ),
        encoder=stack(theirs, Everything(), None),
        head=head,
        initialization=ByWidth(deviation=theirs["initializer_range"], factor=theirs["initializer_factor"]),
    )


def features(theirs: Theirs, projection: int | None) -> Features:
    """The class vector, normed."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return Features(pooling=Pooling.FIRST, norm=norm, projection=projection)


def describe(design: EncoderOnly) -> dict[str, Any]:
    """The config of a network."""
    patches, start = design.embedding.tokens, design.initialization
    return {
        **describe_side(design),
        "num_channels": patches.channels,  # type: ignore[union-attr]
        "image_size": patches.image[0],  # type: ignore[union-attr]
        "patch_size": patches.patch[0],  # type: ignore[union-attr]
        "initializer_range": start.deviation if isinstance(start, ByWidth) else KEYS["initializer_range"],
    }


def weights(design: EncoderOnly, theirs: str = "@", ours: str = "") -> tuple[Entry, ...]:
    """Where the network's weights stand, alone or as a part of another network."""
    patches = design.embedding.tokens
    assert isinstance(patches, Patches)
    project = ("embeddings.patch_embedding.weight", "embedding.tokens.project.weight")
    return (
        Entry(f"{theirs}embeddings.class_embedding", f"{ours}embedding.tokens.class_vector", exact=True),
        Entry(f"{theirs}{project[0]}", f"{ours}{project[1]}", kernel(patches), exact=True),
        Entry(f"{theirs}embeddings.position_embedding", f"{ours}embedding.position"),
        Entry(f"{theirs}pre_layrnorm", f"{ours}embedding.norm"),
        *block_weights(f"{theirs}encoder.layers.#", f"{ours}encoder.blocks.#"),
        Entry(f"{theirs}post_layernorm", f"{ours}head.norm"),
    )


FAMILY = Family(
    name="clip_vision_model",
    story=Story(
        title="CLIP's images",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="tell which text belongs to which image",
        parent="CLIP",
    ),
    keys=KEYS,
    ignored={**UNUSED, "pad_token_id": "an image has no padding"},
    ignored_weights={"@embeddings.position_ids": "the numbers 0, 1, 2, …"},
    kinds=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        # Older releases stored this one under `vision_model.` too: both are read.
        "CLIPVisionModel": Architecture(head=lambda theirs: features(theirs, None)),
        "CLIPVisionModelWithProjection": Architecture(
            base="vision_model.",
            head=lambda theirs: features(theirs, theirs["projection_dim"]),
            weights=(Entry("visual_projection", "head.projection"),),
        ),
    },
    presets={},
)
