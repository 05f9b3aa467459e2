"""CLIP's vision encoder (Radford et al. 2021): a vision Transformer that maps an image to one vector.

Unlike ViT it has a norm before the first block, no bias in the patch projection, and a final norm on the class vector
only.
"""

from typing import Any

from regard.families.clip_text import SHARED_KEYS, UNUSED_KEYS, block_entries, describe_shared, stack
from regard.families.family import Architecture, Family, FamilyInfo, PublishedConfig
from regard.families.vit import conv_kernel, num_positions, patches_config
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
    **SHARED_KEYS,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
    "initializer_range": 0.02,
}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config of a published config."""
    patches = patches_config(theirs, bias=False)
    return EncoderOnly(
        model_dim=theirs["hidden_size"],
        embedding=Embedding(
            tokens=patches,
            dim=theirs["hidden_size"],
            scale=1.0,
            segments=0,
            position=Learned(length=num_positions(patches), offset=0),
            norm=LayerNorm(epsilon=theirs["layer_norm_eps"]),
            projection=None,
        ),
        encoder=stack(theirs, Everything(), None),
        head=head,
        initialization=ByWidth(deviation=theirs["initializer_range"], factor=theirs["initializer_factor"]),
    )


def features_head(theirs: PublishedConfig, projection: int | None) -> Features:
    """Return the config of the head that outputs the normalized class vector."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return Features(pooling=Pooling.FIRST, norm=norm, projection=projection)


def describe(design: EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    patches, initialization = design.embedding.tokens, design.initialization
    return {
        **describe_shared(design),
        "num_channels": patches.channels,  # type: ignore[union-attr]
        "image_size": patches.image[0],  # type: ignore[union-attr]
        "patch_size": patches.patch[0],  # type: ignore[union-attr]
        "initializer_range": initialization.deviation
        if isinstance(initialization, ByWidth)
        else KEYS["initializer_range"],
    }


def weights(design: EncoderOnly, theirs: str = "@", ours: str = "") -> tuple[Entry, ...]:
    """Return the weight map of the encoder, alone or as a part of `CLIPModel`."""
    patches = design.embedding.tokens
    assert isinstance(patches, Patches)
    project = ("embeddings.patch_embedding.weight", "embedding.tokens.project.weight")
    return (
        Entry(f"{theirs}embeddings.class_embedding", f"{ours}embedding.tokens.class_vector", exact=True),
        Entry(f"{theirs}{project[0]}", f"{ours}{project[1]}", conv_kernel(patches), exact=True),
        Entry(f"{theirs}embeddings.position_embedding", f"{ours}embedding.position"),
        Entry(f"{theirs}pre_layrnorm", f"{ours}embedding.norm"),
        *block_entries(f"{theirs}encoder.layers.#", f"{ours}encoder.blocks.#"),
        Entry(f"{theirs}post_layernorm", f"{ours}head.norm"),
    )


FAMILY = Family(
    name="clip_vision_model",
    info=FamilyInfo(
        title="CLIP vision encoder",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="contrastive image-text matching",
        parent="CLIP",
    ),
    keys=KEYS,
    ignored_keys={**UNUSED_KEYS, "pad_token_id": "an image has no padding"},
    ignored_weights={"@embeddings.position_ids": "position ids 0, 1, 2, …"},
    network_types=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        # Older releases stored this class under `vision_model.`; both spellings are read.
        "CLIPVisionModel": Architecture(head=lambda theirs: features_head(theirs, None)),
        "CLIPVisionModelWithProjection": Architecture(
            prefix="vision_model.",
            head=lambda theirs: features_head(theirs, theirs["projection_dim"]),
            weights=(Entry("visual_projection", "head.projection"),),
        ),
    },
    presets={},
)
