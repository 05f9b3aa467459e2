"""The weight map: the name and the layout of each parameter in a published checkpoint.

An entry is (theirs, ours, how): the name in the published checkpoint, the name in this library, and the conversion
between the two. Loading goes from left to right, saving from right to left; each conversion (`Identity`, `Transpose`,
…) implements both directions.

    Entry("@h.#.mlp.c_fc", "decoder.blocks.#.feedforward.up", Transpose())

`@` stands for the prefix of the network's names (`transformer.`), `#` for the index of a block. An entry names a
module and covers its `weight` and `bias`. `exact=True` names a single tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class Conversion:
    """Converts one tensor of a published checkpoint to one or more parameters, and back."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0]


@dataclass(frozen=True)
class Identity(Conversion):
    """The same tensor in both."""


@dataclass(frozen=True)
class Transpose(Conversion):
    """The published weight is inputs × outputs (as in TensorFlow and the first GPT); ours is outputs × inputs."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.t() if theirs.ndim == 2 else theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0].t() if ours[0].ndim == 2 else ours[0]


@dataclass(frozen=True)
class TransposedQKV(Conversion):
    """Query, key and value as one transposed matrix (inputs × outputs), concatenated along the outputs."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        return [part.t() if part.ndim == 2 else part for part in theirs.chunk(parts, dim=-1)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return torch.cat([part.t() if part.ndim == 2 else part for part in ours], dim=-1)


@dataclass(frozen=True)
class FusedQKV(Conversion):
    """Query, key and value as one matrix (outputs × inputs), concatenated along the outputs."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        return list(theirs.chunk(parts))

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return torch.cat(list(ours))


@dataclass(frozen=True)
class Unsqueeze(Conversion):
    """The published vector has `axes` leading axes of size 1."""

    axes: int = 1

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.flatten()]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0].view(*[1] * self.axes, -1)


@dataclass(frozen=True)
class SplitHeadsTransposed(Conversion):
    """The published weight is 3-D: inputs × heads × head_dim."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.flatten(1).t()]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        matrix = ours[0].t()
        return matrix.reshape(len(matrix), self.heads, -1)


@dataclass(frozen=True)
class SplitHeads(Conversion):
    """The published weight is 3-D: outputs × heads × head_dim."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.flatten(1)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0].reshape(len(ours[0]), self.heads, -1)


@dataclass(frozen=True)
class InterleavedRotary(Conversion):
    """In each head, the two members of a rotary pair are adjacent; ours are in halves (i and i + head_dim / 2)."""

    heads: int

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.reshape(self.heads, -1, 2, *theirs.shape[1:]).transpose(1, 2).reshape(theirs.shape)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0].reshape(self.heads, 2, -1, *ours[0].shape[1:]).transpose(1, 2).reshape(ours[0].shape)


@dataclass(frozen=True)
class Reshape(Conversion):
    """Another shape for the same values in the same order (-1 is inferred): a convolution kernel as a matrix."""

    theirs: tuple[int, ...]
    ours: tuple[int, ...]

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs.reshape(self.ours)]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0].reshape(self.theirs)


@dataclass(frozen=True)
class Conv1x1(Conversion):
    """The published layer is a 1×1 convolution."""

    def read(self, theirs: Tensor, parts: int) -> list[Tensor]:
        """Convert a published tensor to parameters."""
        del parts
        return [theirs[:, :, 0, 0] if theirs.ndim == 4 else theirs]

    def write(self, ours: Sequence[Tensor]) -> Tensor:
        """Convert parameters to the published tensor."""
        return ours[0][:, :, None, None] if ours[0].ndim == 2 else ours[0]


@dataclass(frozen=True)
class Entry:
    """One line of a weight map."""

    theirs: str
    ours: str | tuple[str, ...]
    how: Conversion = Identity()
    exact: bool = False
    repeat: bool = False
    """Save the tensor even if it repeats another one, because readers of the published layout require it."""

    @property
    def parts(self) -> tuple[str, ...]:
        """`ours` as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True)
class TensorMapping:
    """One tensor of a checkpoint: its name there, the parameters that it holds, and the conversion."""

    theirs: str
    ours: tuple[str, ...]
    how: Conversion
    repeat: bool = False


def resolve_entries(entries: Sequence[Entry], prefix: str, parameters: Sequence[str]) -> list[TensorMapping]:
    """Expand the entries of a weight map for the parameters of a network."""
    mappings: list[TensorMapping] = []
    for entry in entries:
        for name in parameters:
            match = _match(entry.parts[0], name, entry.exact)
            if match is None:
                continue
            number, last = match
            ending = "" if entry.exact else f".{last}"
            theirs = entry.theirs.replace("@", prefix).replace("#", number) + ending
            ours = tuple(part.replace("#", number) + ending for part in entry.parts)
            mappings.append(TensorMapping(theirs, ours, entry.how, entry.repeat))
    return mappings


def _match(pattern: str, name: str, exact: bool) -> tuple[str, str] | None:
    """Return the block index and the last component of the name, or None if the name does not match the pattern."""
    module, _, last = name.rpartition(".")
    if exact:
        module = name
    before, wildcard, after = pattern.partition("#")
    if not wildcard:
        return ("", last) if module == pattern else None
    if not (module.startswith(before) and module.endswith(after)):
        return None
    number = module[len(before) : len(module) - len(after)]
    return (number, last) if number.isdigit() else None
