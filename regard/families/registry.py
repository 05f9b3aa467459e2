"""All families and presets by name."""

from __future__ import annotations

from regard.families import (
    albert,
    bart,
    bert,
    clip,
    clip_text,
    clip_vision,
    ctrl,
    distilbert,
    electra,
    gpt,
    gpt2,
    gpt3,
    llama,
    marian,
    mbart,
    roberta,
    roformer,
    t5,
    transformer,
    transformer_xl,
    vit,
    xlm_roberta,
    xlnet,
)
from regard.families.family import Family
from regard.transformer import config
from regard.transformer.suggestion import did_you_mean

MODULES = (
    *(bert, roberta, xlm_roberta, distilbert, albert, electra, xlnet, roformer),
    *(gpt, gpt2, ctrl, transformer_xl, llama),
    *(bart, mbart, t5, marian),
    *(vit, clip, clip_text, clip_vision),
)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in MODULES}


def presets() -> list[str]:
    """Return the names of all presets."""
    return [*transformer.PRESETS, *gpt3.PRESETS, *(name for family in FAMILIES.values() for name in family.presets)]


def preset(name: str) -> config.Network:
    """Return the network config of a published size: `preset("bert-base")`."""
    if name in transformer.PRESETS:
        return transformer.preset(name)
    if name in gpt3.PRESETS:
        return gpt3.preset(name)
    for family in FAMILIES.values():
        if name in family.presets:
            return family.preset(name)
    raise ValueError(f"unknown preset {name!r}{did_you_mean(name, presets())}; available: {', '.join(presets())}")
