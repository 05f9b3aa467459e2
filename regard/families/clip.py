"""CLIP (Radford et al. 2021): texts and images as vectors that can be compared.

Its config holds one for each side. Old files hold some of them twice: where `text_config_dict` or `vision_config_dict`
is there, it is the one that counts, completed with the published defaults, so that even what only `text_config` says
(an end token of 2) counts no more. The classes of one side alone are families of their own (`clip_text`,
`clip_vision`), with a config of their own.
"""

from typing import Any

from regard.families import clip_text, clip_vision
from regard.families.family import Architecture, ConfigError, Family, Maybe, Story, Theirs, labels
from regard.families.weight_map import Entry
from regard.transformer.config import DualEncoder, EncoderOnly, Head, LayerNorm, PatchClassification, Pooling

KEYS = {
    "text_config": Maybe(dict),
    "vision_config": Maybe(dict),
    "text_config_dict": Maybe(dict),
    "vision_config_dict": Maybe(dict),
    "projection_dim": 512,
    "logit_scale_init_value": 2.6592,
}


def side(theirs: Theirs, name: str, family: Family) -> Theirs:
    """The config of one side."""
    values, older = theirs[f"{name}_config"], theirs[f"{name}_config_dict"]
    for value in (values, older):
        if not isinstance(value, dict | None):
            raise ConfigError(f"config.json: {name}_config must be an object, found {value!r}")
    completed = {} if older is None else {**family.keys, **older}
    return Theirs({**(values or {}), **completed}, family)


def network(theirs: Theirs, head: Head | None) -> DualEncoder:
    """The network of a config: each side as it would be alone, with projections to one size."""
    del head
    text, vision = side(theirs, "text", clip_text.FAMILY), side(theirs, "vision", clip_vision.FAMILY)
    size = theirs["projection_dim"]
    return DualEncoder(
        text=clip_text.network(text, clip_text.features(text, size)),
        vision=clip_vision.network(vision, clip_vision.features(vision, size)),
        scale=float(theirs["logit_scale_init_value"]),
    )


def vision_alone(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The side of the images, for a classifier. The other side's config is checked all the same."""
    side(theirs, "text", clip_text.FAMILY)
    return clip_vision.network(side(theirs, "vision", clip_vision.FAMILY), head)


def classifier(theirs: Theirs) -> PatchClassification:
    """A head that scores the mean of the patches."""
    norm = LayerNorm(epsilon=side(theirs, "vision", clip_vision.FAMILY)["layer_norm_eps"])
    return PatchClassification(labels=theirs.labels, pooling=Pooling.MEAN_AFTER_FIRST, unused_norm=norm)


def describe(design: DualEncoder | EncoderOnly) -> dict[str, Any]:
    """The config of a network."""
    if isinstance(design, EncoderOnly):
        vision = {**clip_vision.describe(design), "model_type": clip_vision.FAMILY.name}
        return {"vision_config": vision, **labels(design)}
    return {
        "text_config": {**clip_text.describe(design.text), "model_type": clip_text.FAMILY.name},
        "vision_config": {**clip_vision.describe(design.vision), "model_type": clip_vision.FAMILY.name},
        "projection_dim": design.text.head.projection,  # type: ignore[union-attr]
        "logit_scale_init_value": design.scale,
    }


def weights(design: DualEncoder | EncoderOnly) -> tuple[Entry, ...]:
    """Where the weights of the images' side stand, which all classes have."""
    if isinstance(design, EncoderOnly):
        return clip_vision.weights(design, "vision_model.")
    return clip_vision.weights(design.vision, "vision_model.", "vision.")


def sizes(patch: int, text: tuple[int, int], vision: tuple[int, int, int], projection: int) -> dict[str, Any]:
    """The config of a published size: width and heads of the texts' side; width, layers and heads of the images'."""
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
    story=Story(
        title="CLIP",
        year=2021,
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision",
        objective="tell which text belongs to which image",
        parent="Vision Transformer",
    ),
    keys=KEYS,
    ignored={
        **clip_text.UNUSED,
        "initializer_factor": "only for how the projections start: each side has a factor of its own",
        "pad_token_id": "the texts' config says it",
    },
    ignored_weights={
        "text_model.embeddings.position_ids": "the numbers 0, 1, 2, …",
        "vision_model.embeddings.position_ids": "the numbers 0, 1, 2, …",
    },
    kinds=(DualEncoder, EncoderOnly),
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
            head=classifier,
            network=vision_alone,
            weights=(
                Entry("classifier", "head.output"),
                Entry("vision_model.post_layernorm", "head.unused_norm"),
            ),
        ),
    },
    presets={
        "clip-vit-base-patch32": sizes(32, (512, 8), (768, 12, 12), 512),
        "clip-vit-base-patch16": sizes(16, (512, 8), (768, 12, 12), 512),
        "clip-vit-large-patch14": sizes(14, (768, 12), (1024, 24, 16), 768),
    },
)
