"""The compiled functions, called with tensors. Each has a definition in torch beside it in the tests.

Tensors are on the CPU and float32; others are widened first. What a function returns is new, and float32, whatever
torch's defaults are.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from regard.native.arena import PAGE, again, room
from regard.native.ctypes_structs import Attention, Embedding, Kept, Lengths, Matrix, Norm, lengths_of, pointer
from regard.native.library import library
from regard.transformer.config import Activation

ACTIVATIONS = {
    None: 0,
    Activation.RELU: 1,
    Activation.GELU: 2,
    Activation.GELU_TANH: 3,
    Activation.SILU: 4,
    Activation.TANH: 5,
    Activation.QUICK_GELU: 6,
}
"""The numbers by which activation.h knows them."""

Vectors = Float[Tensor, "rows dim"]
Peaks = Float[Tensor, "rows blocks"]
"""The largest score of each block of a row, which are as many as C has."""
Described = Kept | ctypes.Array[Kept]
"""Keys and values of one layer, or of several."""


def floats(*shape: int) -> Tensor:
    """Room for so many numbers."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def whole(x: Tensor) -> Tensor:
    """The same as float32, every number beside the one before."""
    return (x if x.dtype is torch.float32 else x.to(torch.float32)).contiguous()


def _lines(x: Vectors) -> Vectors:
    """The same as float32, the numbers of a row side by side, however far apart the rows are."""
    x = x if x.dtype is torch.float32 else x.to(torch.float32)
    return x if x.stride(1) == 1 else x.contiguous()


def pack(weight: Float[Tensor, "output input"]) -> Float[Tensor, " packed"]:
    """A matrix in panels."""
    weight = _lines(weight)
    outputs, inputs = weight.shape
    packed = room(library().packed_size(outputs, inputs), torch.float32)
    library().pack(outputs, inputs, weight.data_ptr(), weight.stride(0), packed.data_ptr())
    return packed


def pack_bytes(levels: Int8[Tensor, "output input"]) -> Int8[Tensor, " packed"]:
    """A matrix of bytes in panels."""
    levels = levels.contiguous()
    outputs, inputs = levels.shape
    packed = room(library().packed_bytes_size(outputs, inputs), torch.int8)
    library().pack_bytes(outputs, inputs, levels.data_ptr(), packed.data_ptr())
    return packed


def panel() -> int:
    """How many outputs of a matrix stand together in a panel."""
    found: int = library().panel_size()
    return found


def together() -> int:
    """How many levels of an output stand side by side in panels of bytes."""
    found: int = library().together_size()
    return found


def added() -> int:
    """What is added to the levels of a matrix in panels of bytes: 0, or 128, which is to change their highest bit."""
    found: int = library().added_size()
    return found


def multiply(x: Vectors, matrix: Matrix) -> Float[Tensor, "rows output"]:
    """activation(x·weightᵀ + bias). With a matrix of bytes, each vector is rounded to bytes first."""
    x = _lines(x)
    rows = x.shape[0]
    found = again.room(rows, matrix.outputs)
    library().apply(ctypes.addressof(matrix), rows, x.data_ptr(), x.stride(0), found.data_ptr())
    return found


def add_and_normalise(x: Vectors, said: Vectors | None, norm: Norm) -> Vectors:
    """norm(x + said)."""
    x, said = whole(x), None if said is None else whole(said)
    found = floats(*x.shape)
    library().add_and_normalise(*x.shape, x.data_ptr(), pointer(said), ctypes.addressof(norm), found.data_ptr())
    return found


def gate(x: Float[Tensor, "rows twice"], activation: int) -> Vectors:
    """activation(gate) · up, of vectors that are both, side by side."""
    x = whole(x)
    found = floats(x.shape[0], x.shape[1] // 2)
    library().gate(*found.shape, x.data_ptr(), activation, found.data_ptr())
    return found


def embedding_of(
    table: Float[Tensor, "vocabulary dim"] | Int8[Tensor, "vocabulary dim"],
    scales: Float[Tensor, " vocabulary"] | None,
    by: float,
    norm: Norm | None = None,
) -> Embedding:
    """An embedding as C has it: a table of numbers, or of levels with their scales, in order. Hold them."""
    vocabulary, dim = table.shape
    last = None if norm is None else ctypes.addressof(norm)
    return Embedding(dim, vocabulary, table.data_ptr(), pointer(scales), by, last)


def embed(
    embedding: Embedding,
    tokens: Int[Tensor, " tokens"],
    positions: Float[Tensor, "positions dim"] | None,
    at: Int[Tensor, " tokens"],
) -> Float[Tensor, "tokens dim"]:
    """norm(table[tokens] · by + positions[at]). Nobody but the caller looks whether there are such positions."""
    tokens, at = (some if some.dtype is torch.long else some.long() for some in (tokens, at))
    tokens, at = tokens.contiguous(), at.contiguous()
    found = floats(len(tokens), embedding.dim)
    told = tokens.data_ptr(), pointer(positions), at.data_ptr(), found.data_ptr()
    check_tokens(tokens, library().embed(ctypes.addressof(embedding), len(tokens), *told), embedding)
    return found


def check_tokens(tokens: Int[Tensor, " tokens"], good: int, embedding: Embedding) -> None:
    """Stop at the first token that is not in the vocabulary, before which `good` are."""
    if good < len(tokens):
        raise IndexError(f"token {int(tokens[good])} is not in a vocabulary of {embedding.vocabulary}")


def attend(
    query: Float[Tensor, "tokens heads dim"],
    key: Float[Tensor, "key_tokens key_heads dim"] | Float[Tensor, "lines key_heads room dim"],
    value: Float[Tensor, "key_tokens key_heads dim"] | Float[Tensor, "lines key_heads room dim"],
    queries: Lengths,
    keys: Lengths,
    scale: float,
    causal: bool,
    bias: Float[Tensor, "#rows heads query key"] | None = None,
) -> Float[Tensor, "tokens all"]:
    """softmax(Q·Kᵀ·scale + bias)·V for rows of queries that stand side by side.

    Keys and values stand side by side too, or in rectangles with one line for each row. The last query of a row sees
    all of its keys; if `causal`, each one before it one less. The bias is for the longest row: others use its upper
    left corner.
    """
    tokens, heads, dim = query.shape
    query = query.to(torch.float32)
    half = key.dtype == value.dtype == torch.bfloat16
    key, value = (key, value) if half else (x.to(torch.float32) for x in (key, value))
    bias = None if bias is None else bias.to(torch.float32)
    if query.stride(2) != 1 or query.stride(1) != dim:
        query = query.contiguous()
    if key.stride() != value.stride() or key.stride(-1) != 1:
        key, value = key.contiguous(), value.contiguous()
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    answer = floats(tokens, heads * dim)
    rectangle = key.dim() == 4
    row, head, place = key.stride()[:3] if rectangle else (0, key.stride(1), key.stride(0))
    asked = Attention(
        queries.count, heads, heads // key.shape[1], dim, scale, causal,
        query.data_ptr(), query.stride(0), queries.at, queries.begin_at,
        key.data_ptr(), value.data_ptr(), half, None if rectangle else keys.begin_at, row, head, place, keys.at,
        pointer(bias), *bias_strides(bias), answer.data_ptr(),
    )  # fmt: skip
    library().attend(ctypes.addressof(asked))
    return answer


def bias_strides(bias: Float[Tensor, "#rows heads query key"] | None) -> tuple[int, int, int]:
    """From one row, head and query of a bias to the next."""
    if bias is None:
        return 0, 0, 0
    row, head, query, _ = bias.stride()
    return row if len(bias) > 1 else 0, head, query


def keep(
    kept: Float[Tensor, "lines heads room dim"], new: Float[Tensor, "tokens heads dim"], lengths: Lengths, old: Lengths
) -> None:
    """Put new keys or values behind what the rows of a rectangle have, which is float32 or bfloat16."""
    assert kept.dtype in (torch.float32, torch.bfloat16)
    new = new.to(kept.dtype).to(torch.float32)
    if new.stride(2) != 1 or new.stride(1) != new.shape[2]:
        new = new.contiguous()
    library().keep(
        lengths.count, new.shape[1], new.shape[2], lengths.at, old.at, new.data_ptr(), new.stride(0), kept.data_ptr(),
        kept.stride(0), kept.stride(1), kept.dtype == torch.bfloat16,
    )  # fmt: skip


def move(
    layers: int,
    kept: Described,
    into: Described,
    rows: Sequence[int],
    to: Sequence[int],
    lengths: tuple[int, ...],
    alike: Sequence[int] = (),
) -> None:
    """Copy some rows of all layers to rows of others, or of the same, where none of those is copied itself.

    The lengths are those of all rows there, once they are copied. `alike` says how much of each is there already.
    """
    if min(rows, default=0) < 0:
        raise IndexError(f"rows are counted from 0, found {min(rows)}")
    filled, given = lengths_of(lengths), [array("l", some) for some in (rows, to, alike)]
    moved, places, there = (some.buffer_info()[0] for some in given)
    at = (ctypes.addressof(part) for part in (kept, into))
    library().move(layers, *at, len(rows), moved, places, filled.at, there if alike else None)


class Alike:
    """How far the rows of each text, which stand side by side, are alike, in places, since they were copied from one
    row: from there on they may differ. To copy a row over another, only what is behind that has to be copied."""

    def __init__(self, count: int = 0, each: int = 1) -> None:
        self.count, self.each = count, each
        """How many rows there are, and how many of each text."""
        self._places = array("l", bytes(count * each * 8))

    def then(self, order: Sequence[int], lengths: tuple[int, ...]) -> Alike:
        """The same for rows that were copied from these, which have such lengths now; those of one text from one text.
        Copies of rows that nothing is known of may stand behind them."""
        if order and not 0 <= min(order) <= max(order) < len(lengths):
            raise IndexError(f"there are {len(lengths)} rows, counted from 0, found {list(order)[:12]}")
        found, filled, now = Alike(len(order), self.each), lengths_of(lengths), array("l", order)
        mine, at, new = (places.buffer_info()[0] for places in (self._places, now, found._places))
        library().inherit(self.each, mine, filled.at, len(order), at, new)
        return found

    def of(self, rows: Sequence[int], others: Sequence[int]) -> list[int]:
        """How far these rows are like the others, one by one."""
        places, each = self._places, self.each
        return [
            places[row * each + other % each] if row // each == other // each else 0
            for row, other in zip(rows, others, strict=True)
        ]


def clear(layers: int, kept: Described, lines: Sequence[int]) -> None:
    """Give back the memory of some lines, whose numbers nobody needs any more."""
    if not lines:
        return
    at = array("l", lines)
    library().clear(layers, ctypes.addressof(kept), len(lines), at.buffer_info()[0], PAGE)


def no_peaks(rows: int, size: int) -> Peaks:
    """Room for the largest score of each block of so many rows."""
    return floats(rows, _blocks(size))


@cache
def _blocks(size: int) -> int:
    found: int = library().blocks_size(size)
    return found


def log_sum(scores: Float[Tensor, "rows size"], peaks: Peaks | None = None) -> tuple[Float[Tensor, "rows 1"], bool]:
    """log Σ e^score of each row; whether all of them are numbers. If they are, `peaks` has the largest score of each
    block then."""
    scores = whole(scores)
    found = floats(scores.shape[0], 1)
    good = library().log_sum(*scores.shape, scores.data_ptr(), found.data_ptr(), pointer(peaks))
    return found, good == scores.shape[0]


def best(
    scores: Float[Tensor, "rows size"], count: int, peaks: Peaks | None = None
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The best of each row, the best first, and where they stand; of equal ones, the earlier comes first.

    Where scores are at most as large as the `peaks` of their blocks, most blocks need not be looked at.
    """
    scores = whole(scores)
    rows, size = scores.shape
    count = min(count, size)
    values, places = floats(rows, count), torch.empty(rows, count, dtype=torch.long, device="cpu")
    library().best(rows, size, scores.data_ptr(), pointer(peaks), count, values.data_ptr(), places.data_ptr())
    return values, places


def continuations(
    ruled: Float[Tensor, "rows size"],
    less: Float[Tensor, "rows 1"] | None,
    before: Sequence[float],
    scores: Float[Tensor, "rows size"],
    whole_scores: Float[Tensor, "rows 1"],
    texts: int,
    count: int,
    peaks: Peaks | None = None,
) -> tuple[Sequence[float], Sequence[int], Sequence[int], Sequence[float]]:
    """The largest of all ruled - less + before of each text, of which each has as many rows: these, their rows among
    those of the text, their places in the row, and scores - whole there. As many for each text, one after the other.
    The ruled scores are at most as large as the `peaks` of their blocks, if these are known."""
    rows, size = ruled.shape
    count = min(count, rows // texts * size)
    totals, said = (array("f", bytes(texts * count * 4)) for _ in range(2))
    parents, tokens = (array("l", bytes(texts * count * 8)) for _ in range(2))
    parts, had = (ruled, less, scores, whole_scores), array("f", before)
    given = [None if part is None else whole(part) for part in parts]  # held, so that addresses stay valid
    by_rules, off, all_scores, sums = map(pointer, given)
    asked = by_rules, off, had.buffer_info()[0], all_scores, sums, pointer(peaks)
    found = (part.buffer_info()[0] for part in (totals, parents, tokens, said))
    library().continuations(texts, rows // texts, size, *asked, count, *found)
    return totals, parents, tokens, said
