"""Weights as bytes: a matrix is stored in levels from -127 to 127, and beside it what one level is worth.

Each output of a matrix has a scale of its own. In a file the levels stand under the matrix's own name and the scales
under that name and `.scale`, shaped so that levels · scale is the matrix, in whatever layout the file has. Whoever
reads the folder gets the matrix (rounding it again gives the same levels), or the levels as they are, if asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.checkpoint.files import CheckpointError, Stored
from regard.families.weight_map import Place

LEVELS = 127
SCALE = ".scale"
AT_ONCE = 1 << 18
"""So many numbers are rounded at a time: what is worked with takes little memory beside the matrix."""
TINY = 1e-30
"""The scale of a row of zeros: anything but zero."""


def scales(weight: Float[Tensor, "output input"], levels: int = LEVELS) -> Float[Tensor, " output"]:
    """What one level is worth, for each output."""
    return torch.linalg.vector_norm(weight, torch.inf, dim=1).clamp_min(TINY) / levels


def rounded(
    weight: Float[Tensor, "output input"],
) -> tuple[Int8[Tensor, "output input"], Float[Tensor, " output"]]:
    """The weight in levels, and what one level is worth for each output."""
    scale, levels = scales(weight), torch.empty_like(weight, dtype=torch.int8, memory_format=torch.contiguous_format)
    step = max(1, AT_ONCE // weight.shape[1])
    for begin in range(0, len(weight), step):
        some = slice(begin, begin + step)
        levels[some] = (weight[some] / scale[some, None]).round_()
    return levels, scale


@dataclass(frozen=True)
class Rounded:
    """A matrix in levels, as a file has it."""

    levels: Int8[Tensor, "output input"]
    scale: Float[Tensor, " output"]
    """What one level is worth, for each output."""

    def widened(self) -> Float[Tensor, "output input"]:
        """The matrix."""
        return self.levels.float() * self.scale[:, None]

    def times(self, number: float) -> Rounded:
        """The matrix times a number."""
        return Rounded(self.levels, self.scale * number)

    def scales(self, levels: int = LEVELS) -> Float[Tensor, " output"]:
        """What one level would be worth if there were so many: to the last bit what `scales` finds for the matrix."""
        return (self.scale * LEVELS).clamp_min(TINY) / levels


def narrowed(scale: Tensor) -> Tensor:
    """A scale for every number, kept only once along each axis on which it does not change."""
    for axis in range(scale.ndim):
        first = scale.narrow(axis, 0, 1)
        if bool((scale == first).all()):
            scale = first
    return scale.contiguous()


def widened(stored: Mapping[str, Stored], folder: str) -> dict[str, Stored]:
    """The tensors of a folder with those that are bytes made numbers again, as they are read."""
    found = {name: value for name, value in stored.items() if not _scales(name, stored)}
    for name, value in found.items():
        scale = stored.get(name + SCALE)
        if scale is None or value.dtype is not None:
            continue
        if len(scale.shape) != len(value.shape) or any(
            one not in (1, size) for one, size in zip(scale.shape, value.shape, strict=True)
        ):
            raise CheckpointError(f"{folder}: the scales of {name} are {scale.shape}, its levels {value.shape}")
        found[name] = replace(
            value, dtype=torch.float32, read=_reader(value, scale), levels=_levels_reader(value, scale)
        )
    return found


def as_stored(place: Place, stored: Stored) -> list[Rounded] | None:
    """The matrices in one tensor of a file, in levels; None if the file has other numbers, or other scales, there."""
    if stored.levels is None:
        return None
    levels, scale = stored.levels()
    count = len(place.ours)
    found = []
    for part, one in zip(place.how.read(levels, count), place.how.read(scale.expand_as(levels), count), strict=True):
        if part.ndim != 2 or not (one.stride(1) == 0 or bool((one == one[:, :1]).all())):
            return None
        found.append(Rounded(part, one[:, 0].float()))
    return found


def _scales(name: str, stored: Mapping[str, Stored]) -> bool:
    """Whether a tensor is the scales of another."""
    matrix = stored.get(name.removesuffix(SCALE))
    return name.endswith(SCALE) and matrix is not None and matrix.dtype is None


def _reader(levels: Stored, scale: Stored) -> Callable[[], Tensor]:
    return lambda: levels.read().float() * scale.read()


def _levels_reader(levels: Stored, scale: Stored) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (levels.read(), scale.read())
