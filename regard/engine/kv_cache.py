"""KV cache with native row operations."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.native.arena import DENSE_MMAP_BYTES, PAGE_BYTES, SPARSE_MMAP_BYTES, allocate_sparse
from regard.native.ctypes_structs import KVCacheView
from regard.native.ops import copy_cache_rows, release_cache_rows
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, LayerKVCache, RowPermutation

CacheTensor = Float[Tensor, "rows heads capacity dim"]
CacheTable = ctypes.Array[KVCacheView]
SMALL_CAPACITY, LARGE_CAPACITY = 32, 256
"""A cache tensor that has to grow gets the small capacity if that is enough, otherwise at least the large one."""


class NativeLayerKVCache(LayerKVCache):
    """The KV cache of one layer. Rows are copied by native code, up to their lengths.

    A large cache tensor uses memory only for the positions that are filled: untouched pages use none. So a tensor that
    has to grow gets more capacity than most sequences fill. Then one sequence may be much longer than the others, and
    nothing is copied again after every few tokens. But the operating system zeroes each page on first touch, so
    sentences get a small tensor first.
    """

    def __init__(self, struct: KVCacheView | None = None) -> None:
        super().__init__()
        self.struct = KVCacheView() if struct is None else struct
        """The addresses and strides of the key and value tensors."""

    def reorder(self, permutation: RowPermutation) -> None:
        """Reorder, drop or duplicate rows."""
        self.lengths = permutation.lengths(self.lengths)
        if permutation.copy_to is None:
            self._relocate(permutation.order, self.lengths, len(permutation.order))
        else:
            copy_cache_rows(1, self.struct, self.struct, permutation.copy_from, permutation.copy_to, self.lengths)

    def take(self, rows: Sequence[int], out: LayerKVCache | None = None) -> LayerKVCache:
        """Return a copy of these rows, in a new cache or in the empty cache `out`."""
        result = NativeLayerKVCache() if out is None else out
        assert isinstance(result, NativeLayerKVCache)
        if self.key is not None:
            result.lengths = tuple(self.lengths[row] for row in rows)
            result._allocate((len(rows), self.key.shape[1], result.longest, self.key.shape[3]), self.key.dtype)
            copy_cache_rows(1, self.struct, result.struct, rows, range(len(rows)), result.lengths)
        return result

    @property
    def capacity(self) -> int:
        """The number of positions of a row."""
        return 0 if self.key is None else self.key.shape[2]

    def view(self, rows: slice) -> tuple[Tensor, Tensor, int]:
        """Return the keys and values of these rows up to the length of the longest, and that length.

        Positions after the end of shorter rows are uninitialized. The native kernels do not read them; torch multiplies
        them by 0, which gives NaN if they are not finite, so they are set to 0 here.
        """
        keys, values, longest = super().view(rows)
        with torch.inference_mode():  # the cache tensors may be inference tensors
            for row, length in enumerate(self.lengths[rows]):
                if length < longest:
                    keys[row, :, length:], values[row, :, length:] = 0, 0
        return keys, values, longest

    def pages_per_head(self, length: int) -> int:
        """Return the number of pages of each head that a row of this length has touched, in a large cache tensor."""
        assert self.key is not None
        return -(-length * self.key.stride(2) * self.key.element_size() // PAGE_BYTES)

    def ensure_capacity(self, rows: int, longest: int) -> None:
        """Grow the cache tensors if they have fewer rows or a smaller capacity."""
        assert self.key is not None
        num_rows, _, capacity, _ = self.key.shape
        if num_rows < rows or capacity < longest:
            self._grow(self.lengths, max(num_rows, rows), max(capacity, longest), self.key[:0, :, 0])

    def _grow(self, filled: tuple[int, ...], num_rows: int, capacity: int, like: Float[Tensor, "_ heads dim"]) -> None:
        if self.key is None:
            self._allocate((num_rows, like.shape[1], capacity, like.shape[2]), like.dtype)
        else:
            capacity = SMALL_CAPACITY if capacity <= SMALL_CAPACITY else max(capacity, LARGE_CAPACITY)
            self._relocate(range(len(filled)), filled, num_rows, capacity)

    def _copy_rows_from(self, other: LayerKVCache) -> None:
        assert self.key is not None
        assert other.key is not None
        if isinstance(other, NativeLayerKVCache) and other.key.dtype == self.key.dtype:
            rows, offset = range(len(other.lengths)), len(self.lengths)
            target_rows = range(offset, offset + len(rows))
            copy_cache_rows(1, other.struct, self.struct, rows, target_rows, self.lengths + other.lengths)
        else:  # the other cache was filled by torch modules
            super()._copy_rows_from(other)

    def _relocate(self, rows: Sequence[int], lengths: tuple[int, ...], num_rows: int, capacity: int = 0) -> None:
        """Move these rows to the beginning of new cache tensors. Default: the same capacity."""
        assert self.key is not None
        old = self.key, self.value, KVCacheView.from_buffer_copy(self.struct)  # referenced until the rows are copied
        _, heads, old_capacity, dim = self.key.shape
        self._allocate((num_rows, heads, capacity or old_capacity, dim), self.key.dtype)
        copy_cache_rows(1, old[2], self.struct, rows, range(len(rows)), lengths)

    def _allocate(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        """Allocate new cache tensors. From the large capacity on they use memory only for the pages that are filled."""
        mmap_from_bytes = SPARSE_MMAP_BYTES if shape[2] >= LARGE_CAPACITY else DENSE_MMAP_BYTES
        self.key, self.value = (allocate_sparse(shape, dtype, mmap_from_bytes) for _ in range(2))
        struct = cache_struct(self.key, self.value)
        ctypes.memmove(ctypes.addressof(self.struct), ctypes.addressof(struct), ctypes.sizeof(struct))


def cache_struct(key: CacheTensor, value: CacheTensor) -> KVCacheView:
    """Return the addresses and strides of cache tensors as a C struct."""
    batch_stride, head_stride, key_stride, _ = key.stride()
    return KVCacheView(
        key.data_ptr(), value.data_ptr(), key.dtype == torch.bfloat16, key.shape[1],
        batch_stride, head_stride, key_stride,
    )  # fmt: skip


class NativeCache(Cache):
    """The KV caches of all layers. An operation on all of them is one native call.

    When rows are removed, cache rows that use more pages than they need release them. Otherwise a cache would come to
    use as much memory as if all its rows were as long as the longest sequence that each of them ever held.
    """

    layers: list[NativeLayerKVCache]  # type: ignore[assignment]
    cross_layers: list[NativeLayerKVCache]  # type: ignore[assignment]

    def __init__(self, num_layers: int) -> None:
        super().__init__(num_layers)
        self.layer_views, self.cross_layer_views = (KVCacheView * num_layers)(), (KVCacheView * num_layers)()
        """The addresses and strides of each layer's cache tensors, as C arrays."""
        self.layers, self.cross_layers = (
            [NativeLayerKVCache(view) for view in table] for table in (self.layer_views, self.cross_layer_views)
        )

    def reserve(self, layout: BatchLayout, key_templates: Sequence[Float[Tensor, "_ heads dim"]]) -> tuple[int, ...]:
        """Reserve capacity for new tokens in all layers. Return the lengths before."""
        first, *others = self.layers
        past_lengths = first.reserve(layout, key_templates[0])
        lengths, longest = first.lengths, first.longest
        for layer, key_template in zip(others, key_templates[1:], strict=True):
            if layer.capacity < longest:
                layer.reserve(layout, key_template)
            layer.lengths = lengths
        return past_lengths

    def append_rows(self, other: Cache, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Append rows of another cache."""
        native = isinstance(other, NativeCache) and _dtypes(other) == _dtypes(self)
        if not native or (self._copies, other._copies) != (copies, 1):
            super().append_rows(other, rows, copies)
            return
        assert isinstance(other, NativeCache)
        source_rows = range(len(other.lengths)) if rows is None else rows
        _check_rows(source_rows, len(other.lengths))
        repeated = [row for row in source_rows for _ in range(copies)]
        _copy_rows_all_layers(self.layers, self.layer_views, other.layers, other.layer_views, repeated)
        _copy_rows_all_layers(
            self.cross_layers, self.cross_layer_views, other.cross_layers, other.cross_layer_views, source_rows
        )

    def _reorder(self, layers: Sequence[LayerKVCache], order: Sequence[int]) -> None:
        filled = [layer for layer in layers if isinstance(layer, NativeLayerKVCache) and not layer.empty]
        if not filled or list(order) == list(range(len(filled[0].lengths))):
            return
        old_lengths = filled[0].lengths
        _check_rows(order, len(old_lengths))
        permutation = RowPermutation(order, len(old_lengths), filled[0].device)
        if permutation.copy_to is None:  # one layer after the other: each frees its tensors before the next allocates
            for layer in filled:
                layer.reorder(permutation)
            return
        lengths = permutation.lengths(old_lengths)
        for layer in filled:
            layer.lengths = lengths
        table = self.layer_views if layers is self.layers else self.cross_layer_views
        pages, large = filled[0].pages_per_head, filled[0].capacity >= LARGE_CAPACITY
        fewer = large and len(order) < len(old_lengths)
        # Target rows that need fewer pages than before are released before the copy. The rows at the end are released
        # after it, because they may be among the copied ones.
        if fewer:
            shrinking = [row for row in permutation.copy_to if pages(old_lengths[row]) > pages(lengths[row])]
            release_cache_rows(len(layers), table, shrinking)
        if permutation.copy_to:
            copy_cache_rows(len(layers), table, table, permutation.copy_from, permutation.copy_to, lengths)
        if fewer:
            unused = [row for row in range(len(order), len(old_lengths)) if pages(old_lengths[row]) > 1]
            release_cache_rows(len(layers), table, unused)


def _check_rows(rows: Sequence[int], count: int) -> None:
    if rows and not 0 <= min(rows) <= max(rows) < count:
        raise IndexError(f"row index out of range: the cache has {count} rows, found {list(rows)[:12]}")


def _dtypes(cache: NativeCache) -> list[torch.dtype | None]:
    return [None if layer.key is None else layer.key.dtype for layer in (*cache.layers, *cache.cross_layers)]


def _copy_rows_all_layers(
    layers: Sequence[NativeLayerKVCache],
    table: CacheTable,
    other_layers: Sequence[NativeLayerKVCache],
    other_table: CacheTable,
    rows: Sequence[int],
) -> None:
    """Append rows of the other layers to these layers."""
    pairs = [pair for pair in zip(layers, other_layers, strict=True) if not pair[0].empty]
    if not pairs or not rows:
        return
    old_lengths, new_lengths = pairs[0][0].lengths, tuple(pairs[0][1].lengths[row] for row in rows)
    offset, lengths = len(old_lengths), old_lengths + new_lengths
    for layer, _ in pairs:
        layer.ensure_capacity(len(lengths), max(new_lengths))
        layer.lengths = lengths
    copy_cache_rows(len(layers), other_table, table, rows, range(offset, len(lengths)), lengths)
