"""A shortlist: the tokens that a translation may be written with, looked up by the tokens of its source.

To score a vocabulary of tens of thousands takes a good part of the time that a token takes, though nearly all of it has
nothing to do with the text. A table that was learnt from parallel text (`regard.tasks.word_alignment`) says for each token of
the source which tokens of the target go with it; those, and the ones that go with everything, are scored (`listed.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.checkpoint.files import CheckpointError, read_tensors, write_file

FILE = "shortlist.safetensors"
"""Where a folder has its table. Whoever reads the weights does not look at it."""
HOW = "`regard convert MODEL TARGET --shortlist SOURCE-FILE TARGET-FILE` makes one from parallel text"


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """Which tokens of the target go with each token of the source."""

    starts: Int[Tensor, " bounds"]
    """Where the tokens that go with each token of the source begin in `targets`, and after the last of them the end."""
    targets: Int[Tensor, " entries"]
    frequent: Int[Tensor, " frequent"]
    """The tokens that are in every list."""
    vocabulary: int
    """How many tokens the target's side knows."""

    def __post_init__(self) -> None:
        """Numbers that lead nowhere are refused before anybody follows them."""
        starts, listed = self.starts.tolist(), torch.cat([self.targets, self.frequent])
        if not starts or starts[0] != 0 or starts[-1] != len(self.targets) or starts != sorted(starts):
            raise ValueError(f"the places of its {len(self.targets)} entries are out of order")
        if len(listed) and not 0 <= int(listed.min()) <= int(listed.max()) < self.vocabulary:
            raise ValueError(f"it lists tokens that are not among the {self.vocabulary} of its vocabulary")

    @property
    def source_vocabulary(self) -> int:
        """How many tokens the source's side knows."""
        return len(self.starts) - 1

    def of(self, source: Sequence[int], always: Collection[int] = ()) -> Int[Tensor, " listed"]:
        """The list of a text, in order: what goes with its tokens, the frequent ones, and those that are always in."""
        starts, targets, frequent = self.starts.numpy(), self.targets.numpy(), self.frequent.numpy()
        own = [targets[starts[token] : starts[token + 1]] for token in set(source)]  # numpy: many small steps
        besides = np.array(list(always), frequent.dtype)
        return torch.from_numpy(np.unique(np.concatenate([*own, frequent, besides])))

    def check(self, source: int, target: int, folder: Path | str) -> None:
        """Stop if the table is of other vocabularies than a network."""
        if (self.source_vocabulary, self.vocabulary) != (source, target):
            raise ValueError(
                f"{Path(folder) / FILE} is for {self.source_vocabulary} source and {self.vocabulary} target tokens, "
                f"and the network has {source} and {target}: it is of another model. {HOW}"
            )


def write(folder: Path, shortlist: Shortlist) -> None:
    """Keep a shortlist in a model's folder."""
    tensors = {"starts": shortlist.starts, "targets": shortlist.targets, "frequent": shortlist.frequent}
    write_file(folder / FILE, tensors | {"vocabulary": torch.tensor([shortlist.vocabulary])})


def read(folder: Path | None) -> Shortlist:
    """The shortlist of a model's folder."""
    if folder is None or not (folder / FILE).is_file():
        raise ValueError(f"{folder or 'this model'} has no shortlist ({FILE}): {HOW}")
    found = read_tensors(folder / FILE)
    expected = ["frequent", "starts", "targets", "vocabulary"]
    kinds = {value.dtype for value in found.values()} <= {torch.int32, torch.int64}
    if sorted(found) != expected or not kinds or any(value.ndim != 1 for value in found.values()):
        raise CheckpointError(f"{folder / FILE}: expected rows of whole numbers called {', '.join(expected)}. {HOW}")
    try:
        starts, targets, frequent, sizes = (found[name] for name in ("starts", "targets", "frequent", "vocabulary"))
        return Shortlist(starts=starts, targets=targets, frequent=frequent, vocabulary=int(sizes.sum()))
    except ValueError as error:
        raise CheckpointError(f"{folder / FILE} is damaged: {error}. {HOW}") from None
