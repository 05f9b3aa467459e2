"""A shortlist: the target tokens that a translation may use, looked up by the tokens of its source.

Computing the logits of a vocabulary of tens of thousands of tokens takes a good part of a decode step, though nearly
all of these tokens have nothing to do with the sentence. A table that is learnt from parallel text
(`regard.tasks.word_alignment`) lists the likely translations of each source token. Only those tokens, and the frequent
target tokens, are scored (`shortlist_head.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.checkpoint.files import CheckpointError, read_safetensors, write_safetensors

SHORTLIST_FILE = "shortlist.safetensors"
"""The file of the shortlist in a model folder. It is not read with the weights."""
HOW_TO_CREATE = "To create one from parallel text: `regard convert MODEL TARGET --shortlist SOURCE-FILE TARGET-FILE`"


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """The likely translations of each source token, as one flat list with offsets."""

    starts: Int[Tensor, " bounds"]
    """For each source token, the offset of its translations in `targets`; then the length of `targets`."""
    targets: Int[Tensor, " entries"]
    """The target tokens."""
    frequent: Int[Tensor, " frequent"]
    """The frequent target tokens, which are in every shortlist."""
    vocabulary: int
    """The size of the target vocabulary."""

    def __post_init__(self) -> None:
        """Check that offsets and token ids are in range."""
        starts, token_ids = self.starts.tolist(), torch.cat([self.targets, self.frequent])
        if not starts or starts[0] != 0 or starts[-1] != len(self.targets) or starts != sorted(starts):
            raise ValueError(f"`starts` are not valid offsets into the {len(self.targets)} entries of `targets`")
        if len(token_ids) and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < self.vocabulary:
            raise ValueError(f"token ids are out of range for a vocabulary of {self.vocabulary}")

    @property
    def source_vocabulary(self) -> int:
        """The size of the source vocabulary."""
        return len(self.starts) - 1

    def lookup(self, source: Sequence[int], always_include: Collection[int] = ()) -> Int[Tensor, " shortlist"]:
        """Return the sorted shortlist of a sentence: likely translations, frequent tokens and `always_include`."""
        # numpy has less overhead than torch for many small slices.
        starts, targets, frequent = self.starts.numpy(), self.targets.numpy(), self.frequent.numpy()
        translations = [targets[starts[token] : starts[token + 1]] for token in set(source)]
        included = np.array(list(always_include), frequent.dtype)
        return torch.from_numpy(np.unique(np.concatenate([*translations, frequent, included])))

    def check_vocabularies(self, source: int, target: int, folder: Path | str) -> None:
        """Raise an error unless the vocabulary sizes are those of the network."""
        if (self.source_vocabulary, self.vocabulary) != (source, target):
            raise ValueError(
                f"{Path(folder) / SHORTLIST_FILE} has vocabularies of {self.source_vocabulary} (source) and "
                f"{self.vocabulary} (target), the network has {source} and {target}: "
                f"it belongs to another model. {HOW_TO_CREATE}"
            )


def save_shortlist(folder: Path, shortlist: Shortlist) -> None:
    """Write a shortlist to a model folder."""
    tensors = {"starts": shortlist.starts, "targets": shortlist.targets, "frequent": shortlist.frequent}
    write_safetensors(folder / SHORTLIST_FILE, tensors | {"vocabulary": torch.tensor([shortlist.vocabulary])})


def load_shortlist(folder: Path | None) -> Shortlist:
    """Read the shortlist of a model folder."""
    if folder is None or not (folder / SHORTLIST_FILE).is_file():
        raise ValueError(f"{folder or 'this model'} has no shortlist ({SHORTLIST_FILE}). {HOW_TO_CREATE}")
    tensors = read_safetensors(folder / SHORTLIST_FILE)
    expected = ["frequent", "starts", "targets", "vocabulary"]
    are_integers = {value.dtype for value in tensors.values()} <= {torch.int32, torch.int64}
    if sorted(tensors) != expected or not are_integers or any(value.ndim != 1 for value in tensors.values()):
        raise CheckpointError(
            f"{folder / SHORTLIST_FILE}: expected one-dimensional integer tensors {', '.join(expected)}. "
            f"{HOW_TO_CREATE}"
        )
    try:
        starts, targets, frequent, sizes = (tensors[name] for name in ("starts", "targets", "frequent", "vocabulary"))
        return Shortlist(starts=starts, targets=targets, frequent=frequent, vocabulary=int(sizes.sum()))
    except ValueError as error:
        raise CheckpointError(f"{folder / SHORTLIST_FILE} is invalid: {error}. {HOW_TO_CREATE}") from None
