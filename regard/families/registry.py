"""All families by name, and all presets."""

from __future__ import annotations

import difflib

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
    xlnet,
)
from regard.families.family import Family
from regard.transformer import config

MODULES = (
    *(bert, roberta, distilbert, albert, electra, xlnet, roformer),
    *(gpt, gpt2, ctrl, transformer_xl, llama),
    *(bart, mbart, t5, marian),
    *(vit, clip, clip_text, clip_vision),
)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in MODULES}


def presets() -> list[str]:
    """The names of all published sizes."""
    return [*transformer.PRESETS, *gpt3.SIZES, *(name for family in FAMILIES.values() for name in family.presets)]


def preset(name: str) -> config.Network:
    """The network of a published size: `preset("bert-base")`."""
    if name in transformer.PRESETS:
        return transformer.preset(name)
    if name in gpt3.SIZES:
        return gpt3.preset(name)
    for family in FAMILIES.values():
        if name in family.presets:
            return family.preset(name)
    near = difflib.get_close_matches(name, presets(), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"there is no preset {name!r}.{hint} Known are {', '.join(presets())}")
