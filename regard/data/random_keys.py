"""Keys of random draws: what a draw depends on, instead of the calls before it.

A random number is a function of a key (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). The key of a
draw in training is made of the run's seed, the epoch, the example, the position in its sequence, and the place in the
program that draws (a module, a masking rule). So a sequence gets the same numbers in any batch, at any place in it, on
any thread and in any process.

    sequence key = fold(seed, epoch, row of the corpus, first token of the chunk)
    token key    = fold(sequence key, position)
    number       = mix(token key xor site)                  site: a hash of the name of the place that draws

`mix` is the output function of SplitMix64 (Steele et al. 2014): a bijection of 64 bits in which each bit of the input
changes half of the bits of the output. `regard/native/c/dropout_rng.h` computes the same.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.transformer.batch_layout import BatchLayout

Keys = NDArray[np.uint64]
GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: consecutive numbers times it are far apart."""
MASK = (1 << 64) - 1


def mix(x: Keys) -> Keys:
    """Return the output function of SplitMix64 for each number."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold(keys: Keys, values: NDArray[Any]) -> Keys:
    """Return new keys made of keys and of integers that are at least -1."""
    return mix(keys + (values.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))


def sequence_keys(seed: int, epoch: int, rows: NDArray[np.int64], starts: NDArray[np.int64] | None = None) -> Keys:
    """Return the key of each sequence: of a row of the corpus, or of its chunk that starts at a token."""
    keys = mix(np.full(len(rows), seed & MASK, np.uint64))
    for values in (np.full(len(rows), epoch), rows, np.zeros(len(rows)) if starts is None else starts):
        keys = fold(keys, values)
    return keys


def second_copy(keys: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """Return other keys for the same sequences, for a second forward pass (R-Drop)."""
    return to_tensor(fold(from_tensor(keys), np.ones(len(keys))))


def token_keys(layout: BatchLayout) -> Int[Tensor, " tokens"] | None:
    """Return the key of each token of a batch; None if its sequences have no keys."""
    if layout.sequence_keys is None:
        return None
    if "token_keys" not in layout._memo:
        rows, columns = layout.row_indices.cpu().numpy(), layout.column_indices.cpu().numpy()
        keys = fold(from_tensor(layout.sequence_keys)[rows], columns)
        layout._memo["token_keys"] = to_tensor(keys).to(layout.device)
    keys_of_tokens: Tensor = layout._memo["token_keys"]
    return keys_of_tokens


def site(name: str) -> int:
    """Return the number of a place that draws: the address of a module, or the name of a rule."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def uniforms(keys: Int[Tensor, " draws"], name: str) -> Float[Tensor, " draws"]:
    """Return a number from [0, 1) for each key at the place of this name, in float64."""
    bits = mix(from_tensor(keys) ^ np.uint64(site(name)))
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def to_tensor(keys: Keys) -> Int[Tensor, " keys"]:
    """Return keys as a tensor: torch has no unsigned arithmetic, so the bits are read as signed numbers."""
    return torch.from_numpy(keys.view(np.int64))


def from_tensor(keys: Int[Tensor, " keys"]) -> Keys:
    """Return keys as a numpy array."""
    return keys.cpu().numpy().view(np.uint64)
