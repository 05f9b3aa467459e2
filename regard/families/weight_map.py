"""The weight table: where a parameter of ours stands in somebody else's checkpoint, and in what form.

A table is written once, as (theirs, ours, how). Reading goes from left to right, writing from right to left, and each
way of writing a tensor (`Same`, `Transposed`, …) knows both directions.

    Entry("@h.#.mlp.c_fc", "decoder.blocks.#.feedforward.up", Transposed())

`@` stands for what precedes the names of the network proper (`transformer.`), `#` for the number of a block. An entry
names a module; its `weight` and `bias` follow. `exact=True` names a single tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class How:
    """How one of their tensors becomes one or more of ours, and back."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0]


@dataclass(frozen=True)
class Same(How):
    """As it is."""


@dataclass(frozen=True)
class Transposed(How):
    """Their matrix has inputs as rows (TensorFlow's and the first GPT's convention); ours has outputs as rows."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.t() if theirs.ndim == 2 else theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0].t() if ours[0].ndim == 2 else ours[0]


@dataclass(frozen=True)
class TransposedTogether(How):
    """Query, key and value as one transposed matrix, side by side."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        return [part.t() if part.ndim == 2 else part for part in theirs.chunk(parts, dim=-1)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return torch.cat([part.t() if part.ndim == 2 else part for part in ours], dim=-1)


@dataclass(frozen=True)
class Together(How):
    """Query, key and value as one matrix, one below the other."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        return list(theirs.chunk(parts))

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return torch.cat(list(ours))


@dataclass(frozen=True)
class AsRow(How):
    """Their vector is a matrix of one row, or has even more `axes` of one before it."""

    axes: int = 1

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.flatten()]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0].view(*[1] * self.axes, -1)


@dataclass(frozen=True)
class PerHead(How):
    """Their matrix is a cube: inputs × heads × size of a head."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.flatten(1).t()]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        matrix = ours[0].t()
        return matrix.reshape(len(matrix), self.heads, -1)


@dataclass(frozen=True)
class OfHeads(How):
    """Their matrix is a cube the other way: outputs × heads × size of a head."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.flatten(1)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0].reshape(len(ours[0]), self.heads, -1)


@dataclass(frozen=True)
class Interleaved(How):
    """Of each head, the pairs that are turned together lie side by side; ours are in halves (i and i + size / 2)."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.reshape(self.heads, -1, 2, *theirs.shape[1:]).transpose(1, 2).reshape(theirs.shape)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0].reshape(self.heads, 2, -1, *ours[0].shape[1:]).transpose(1, 2).reshape(ours[0].shape)


@dataclass(frozen=True)
class Reshaped(How):
    """The same numbers in the same order, in another shape (-1 is what is left): a convolution's kernel as a matrix."""

    theirs: tuple[int, ...]
    ours: tuple[int, ...]

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs.reshape(self.ours)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0].reshape(self.theirs)


@dataclass(frozen=True)
class PointKernel(How):
    """Their layer is a convolution whose window is one point."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Ours, from theirs."""
        del parts
        return [theirs[:, :, 0, 0] if theirs.ndim == 4 else theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs, from ours."""
        return ours[0][:, :, None, None] if ours[0].ndim == 2 else ours[0]


@dataclass(frozen=True)
class Entry:
    """One line of a table."""

    theirs: str
    ours: str | tuple[str, ...]
    how: How = Same()
    exact: bool = False
    repeat: bool = False
    """Written even where it repeats another tensor, because readers miss it otherwise."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Ours, always as several."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True)
class Place:
    """One tensor of a checkpoint: its name there, the parameters of ours that it holds, and how."""

    theirs: str
    ours: tuple[str, ...]
    how: How
    repeat: bool = False


def places(entries: Sequence[Entry], base: str, parameters: Sequence[str]) -> list[Place]:
    """Where each of our parameters stands: every entry of a table, spelt out for the parameters there are."""
    found: list[Place] = []
    for entry in entries:
        for name in parameters:
            filled = _match(entry.parts[0], name, entry.exact)
            if filled is None:
                continue
            number, last = filled
            ending = "" if entry.exact else f".{last}"
            theirs = entry.theirs.replace("@", base).replace("#", number) + ending
            ours = tuple(part.replace("#", number) + ending for part in entry.parts)
            found.append(Place(theirs, ours, entry.how, entry.repeat))
    return found


def _match(pattern: str, name: str, exact: bool) -> tuple[str, str] | None:
    """The number of the block and the last part of the name, if the name fits the pattern."""
    module, _, last = name.rpartition(".")
    if exact:
        module = name
    before, numbered, after = pattern.partition("#")
    if not numbered:
        return ("", last) if module == pattern else None
    if not (module.startswith(before) and module.endswith(after)):
        return None
    number = module[len(before) : len(module) - len(after)]
    return (number, last) if number.isdigit() else None
