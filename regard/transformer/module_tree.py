"""A network as a tree of its parts, with shapes and counts, known before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.transformer import config
from regard.transformer.network import empty


@dataclass(frozen=True)
class Part:
    """One part of a network."""

    name: str
    """Its name within its parent; blocks that are alike are told once, as `0…11`."""
    kind: str
    """What it is."""
    count: int
    """How many parameters are trained in it, its parts included; what is tied to another part counts there."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """The parameters of its own, and their shapes."""
    parts: tuple[Part, ...]
    """What it is made of."""
    tied: bool = False
    """Whether its parameters are another part's."""


def count(design: config.Network) -> int:
    """How many parameters the network of this config trains, without building it."""
    return sum(parameter.numel() for parameter in empty(design).parameters() if parameter.requires_grad)


def tree(network: nn.Module | config.Network) -> Part:
    """The parts of a network, or of the network that a config describes."""
    return _part("", network if isinstance(network, nn.Module) else empty(network), set())


def render(part: Part) -> str:
    """The tree as text."""
    return "\n".join(_lines(part, "", ""))


def _part(name: str, module: nn.Module, counted: set[int]) -> Part:
    own = [(key, value) for key, value in module.named_parameters(recurse=False)]
    tied = bool(own) and all(id(value) in counted for _, value in own)
    fresh = sum(value.numel() for _, value in own if id(value) not in counted and value.requires_grad)
    counted.update(id(value) for _, value in own)
    parts = [
        _part(key, child, counted)
        for key, child in module.named_children()
        if next(child.parameters(), None) is not None
    ]
    shapes = tuple((key, tuple(value.shape)) for key, value in own)
    total = fresh + sum(part.count for part in parts)
    return Part(name, type(module).__name__, total, shapes, tuple(_alike(parts)), tied)


def _alike(parts: list[Part]) -> list[Part]:
    """Consecutive numbered parts that are the same but for their number, told as one."""
    told: list[Part] = []
    for part in parts:
        if told and part.name.isdigit() and _same(told[-1], part):
            first = told[-1].name.partition("…")[0]
            told[-1] = Part(f"{first}…{part.name}", part.kind, told[-1].count + part.count, part.shapes, part.parts)
        else:
            told.append(part)
    return told


def _same(one: Part, other: Part) -> bool:
    return (one.kind, one.shapes, one.parts) == (other.kind, other.shapes, other.parts)


def _lines(part: Part, lead: str, below: str) -> list[str]:
    shapes = " ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in part.shapes)
    title = f"{part.name} {part.kind}".strip()
    count = f"{part.count:,}" if part.count or not part.tied else "tied"
    lines = [f"{lead}{title}  {count}" + (f"  {shapes}" if shapes else "")]
    for place, child in enumerate(part.parts):
        last = place == len(part.parts) - 1
        lines += _lines(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
    return lines
