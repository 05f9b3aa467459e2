"""CLIP (Radford et al. 2021): a text encoder and an image encoder with comparable embeddings.

The config contains one sub-config for each encoder. Old files contain them twice: if `text_config_dict` or
`vision_config_dict` is present, it takes precedence. It is completed with the published defaults, so it overrides even
keys that are only in `text_config` (such as an `eos_token_id` of 2). The classes with a single encoder are separate
families (`clip_text`, `clip_vision`) with their own configs.
"""

from typing import Any

from regard.families import clip_text, clip_vision
from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    label_keys,
)
from regard.families.weight_map import Entry
from regard.transformer.config import DualEncoder, EncoderOnly, Head, LayerNorm, PatchClassification, Pooling

KEYS = {
    "text_config": OptionalKey(dict),
    "vision_config": OptionalKey(dict),
    "text_config_dict": OptionalKey(dict),
    "vision_config_dict": OptionalKey(dict),
    "projection_dim": 512,
    "logit_scale_init_value": 2.6592,
}


def sub_config(theirs: PublishedConfig, name: str, family: Family) -> PublishedConfig:
    """Return the config of the text or the vision encoder (`name` is "text" or "vision")."""
    values, legacy_values = theirs[f"{name}_config"], theirs[f"{name}_config_dict"]
    for value in (values, legacy_values):
        if not isinstance(value, dict | None):
            raise ConfigError(f"config.json: {name}_config must be an object, found {value!r}")
    completed = {} if legacy_values is None else {**family.keys, **legacy_values}
    return PublishedConfig({**(values or {}), **completed}, family)


def network(theirs: PublishedConfig, head: Head | None) -> DualEncoder:
    """Return the network config of a published config: both encoders, projected to the same size."""
    del head
    text, vision = sub_config(theirs, "text", clip_text.FAMILY), sub_config(theirs, "vision", clip_vision.FAMILY)
    projection_dim = theirs["projection_dim"]
    return DualEncoder(
        text=clip_text.network(text, clip_text.features_head(text, projection_dim)),
        vision=clip_vision.network(vision, clip_vision.features_head(vision, projection_dim)),
        scale=float(theirs["logit_scale_init_value"]),
    )


def vision_only(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the config of the vision encoder, for a classification head. The text config is validated too."""
    sub_config(theirs, "text", clip_text.FAMILY)
    return clip_vision.network(sub_config(theirs, "vision", clip_vision.FAMILY), head)


def image_classification_head(theirs: PublishedConfig) -> PatchClassification:
    """Return the config of the image-classification head on the mean of the patches."""
    norm = LayerNorm(epsilon=sub_config(theirs, "vision", clip_vision.FAMILY)["layer_norm_eps"])
    return PatchClassification(labels=theirs.num_labels, pooling=Pooling.MEAN_AFTER_FIRST, unused_norm=norm)


def describe(design: DualEncoder | EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    if isinstance(design, EncoderOnly):
        vision = {**clip_vision.describe(design), "model_type": clip_vision.FAMILY.name}
        return {"vision_config": vision, **label_keys(design)}
    return {
        "text_config": {**clip_text.describe(design.text), "model_type": clip_text.FAMILY.name},
        "vision_config": {**clip_vision.describe(design.vision), "model_type": clip_vision.FAMILY.name},
        "projection_dim": design.text.head.projection,  # type: ignore[union-attr]
        "logit_scale_init_value": design.scale,
    }


def weights(design: DualEncoder | EncoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the vision encoder, which all classes have."""
    if isinstance(design, EncoderOnly):
        return clip_vision.weights(design, "vision_model.")
    return clip_vision.weights(design.vision, "vision_model.", "vision.")


def preset_keys(patch: int, text: tuple[int, int], vision: tuple[int, int, int], projection: int) -> dict[str, Any]:
    """Return the keys of a preset. `text` is (width, heads), `vision` is (width, layers, heads)."""
    return {
        "architectures": ["CLIPModel"],
        "projection_dim": projection,
        "text_config": dict(hidden_size=text[0], num_attention_heads=text[1], intermediate_size=4 * text[0]),
        "vision_config": dict(
            hidden_size=vision[0],
            num_hidden_layers=vision[1],
            num_attention_heads=vision[2],
            intermediate_size=4 * vision[0],
            patch_size=patch,
        ),
    }


FAMILY = Family(
    name="clip",
    info=FamilyInfo(
        title="CLIP",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="contrastive image-text matching",
        parent="Vision Transformer",
    ),
    keys=KEYS,
    ignored_keys={
        **clip_text.UNUSED_KEYS,
        "initializer_factor": "initialization of the projections only; each encoder has its own factor",
        "pad_token_id": "read from text_config",
    },
    ignored_weights={
        "text_model.embeddings.position_ids": "position ids 0, 1, 2, …",
        "vision_model.embeddings.position_ids": "position ids 0, 1, 2, …",
    },
    network_types=(DualEncoder, EncoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "CLIPModel": Architecture(
            head=lambda _: None,
            weights=(
                *clip_text.weights("text_model.", "text."),
                Entry("text_projection", "text.head.projection"),
                Entry("visual_projection", "vision.head.projection"),
                Entry("logit_scale", "scale", exact=True),
            ),
        ),
        "CLIPForImageClassification": Architecture(
            head=image_classification_head,
            network=vision_only,
            weights=(
                Entry("classifier", "head.output"),
                Entry("vision_model.post_layernorm", "head.unused_norm"),
            ),
        ),
    },
    presets={
        "clip-vit-base-patch32": preset_keys(32, (512, 8), (768, 12, 12), 512),
        "clip-vit-base-patch16": preset_keys(16, (512, 8), (768, 12, 12), 512),
        "clip-vit-large-patch14": preset_keys(14, (768, 12), (1024, 24, 16), 768),
    },
)
