"""Whole blocks in one call of the compiled parts: between small products, calling each takes as long as it does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.engine.hooks import Listeners
from regard.engine.kv_cache import Table, described
from regard.engine.modules_native import CompiledDense, CompiledGated, CompiledResidual, InPanels
from regard.engine.modules_torch import CrossProjection, SelfProjection
from regard.engine.native_attention import KNOWN_MASKS, QuickAttention
from regard.native import ctypes_structs
from regard.native.ctypes_structs import lengths_of
from regard.native.library import library
from regard.native.ops import bias_strides, whole
from regard.transformer.attention import Looking, Source
from regard.transformer.block import Block
from regard.transformer.cache import Kept, Remembered
from regard.transformer.config import NormOrder
from regard.transformer.mask import Causal
from regard.transformer.position import Rotation

Part = TypeVar("Part", bound=nn.Module)
ORDERS = {NormOrder.POST: 0, NormOrder.PRE: 1, NormOrder.BOTH: 2}
"""The numbers by which block.c knows them."""


class CompiledBlock(Block):
    """The same block, made of the same parts. It is computed part by part where the compiled call does not know what is
    asked, and where somebody listens to one of the parts."""

    def __init__(self, plain: Block) -> None:
        self.__dict__.update(plain.__dict__)  # its parts are those of the plain one: none is made anew
        self.structure = _structure(plain)
        own, attention = self.structure.own, _a(QuickAttention, plain.attention)
        self.like = torch.empty(0, own.key_heads, own.dim, dtype=attention.numbers, device="cpu")
        """What its keys are like."""
        self.address = ctypes.addressof(self.structure)
        self.listeners = Listeners(part for part in plain.modules() if part is not plain)

    def forward(
        self,
        x: Tensor,
        looking: Looking,
        source: Source | None = None,
        kept: Kept | Remembered | None = None,
        kept_source: Kept | None = None,
    ) -> Tensor:
        """Pass the tokens of a batch through the layer."""
        if not self.knows(looking, source, kept, kept_source):
            return super().forward(x, looking, source, kept, kept_source)
        assert not isinstance(kept, Remembered)
        filled = Filled()
        if kept is not None:
            before = kept.extend(looking.rows, self.like)
            filled.own, filled.before, filled.keys = _table(kept), before, kept.lengths
        if kept_source is not None and source is not None and self.cross_attention is not None:
            self.answer(source, kept_source)
            filled.source, filled.source_keys = _table(kept_source), kept_source.lengths
        return run([self], x, looking, source, filled)

    def answer(self, source: Source, kept: Kept) -> None:
        """Keep what a source answers, unless that was done before."""
        if kept.empty and self.cross_attention is not None:
            kept.append(*self.cross_attention.project.answering(source.vectors), source.rows)

    def knows(
        self, looking: Looking, source: Source | None, kept: Kept | Remembered | None, kept_source: Kept | None
    ) -> bool:
        """Whether the compiled call knows what is asked, and nobody listens to a part."""
        if self.listeners or type(looking.mask) not in KNOWN_MASKS or isinstance(kept, Remembered):
            return False
        return self.cross_attention is None or (source is not None and kept_source is not None)


@dataclass
class Filled:
    """The caches of some blocks, and how far their rows are filled, which is the same for all."""

    own: Table | None = None
    before: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    source: Table | None = None
    source_keys: tuple[int, ...] = ()


def run(
    blocks: Sequence[CompiledBlock],
    x: Tensor,
    looking: Looking,
    source: Source | None,
    filled: Filled,
    last: ctypes_structs.Norm | None = None,
) -> Tensor:
    """Pass the tokens of a batch through some blocks, all of which know what is asked, and the norm behind them."""
    given = whole(x)
    found = torch.empty_like(given)
    told = Told(blocks, looking, source, filled, last)
    library().run_stack(*told.all, given.data_ptr(), found.data_ptr())
    return found


class Told:
    """What C is told of a batch that is passed through some blocks. Hold it as long as C works with it."""

    def __init__(
        self,
        blocks: Sequence[CompiledBlock],
        looking: Looking,
        source: Source | None,
        filled: Filled,
        last: ctypes_structs.Norm | None,
    ) -> None:
        batch, none = _batch(looking, source), (ctypes_structs.Kept * len(blocks))()
        lengths = [lengths_of(some) for some in (filled.before, filled.keys, filled.source_keys)]
        batch.before, batch.keys, batch.source_keys = (some.at if some.count else None for some in lengths)
        at = (ctypes_structs.POINTER * len(blocks))(*(block.address for block in blocks))
        parts = (at, batch, filled.own or none, filled.source or none)
        norm = None if last is None else ctypes.addressof(last)
        self.all = (len(blocks), *map(ctypes.addressof, parts), norm)
        self.held = parts, lengths, looking


def _table(kept: Kept) -> Table:
    """Where the keys and values of one block are."""
    assert kept.key is not None
    assert kept.value is not None
    return (ctypes_structs.Kept * 1)(described(kept.key, kept.value))


def compiled_block(block: Block) -> CompiledBlock | None:
    """The block in one call, if all its parts are known to it."""
    attentions = [block.attention] if block.cross_attention is None else [block.attention, block.cross_attention]
    feedforward = block.get_submodule("feedforward")  # no longer of the kind that a plain block has
    known = all(isinstance(part, QuickAttention) for part in attentions)
    known = known and isinstance(block.attention.get_submodule("project"), SelfProjection)
    return CompiledBlock(block) if known and isinstance(feedforward, CompiledDense | CompiledGated) else None


def _structure(block: Block) -> ctypes_structs.Block:
    across, other = block.cross_attention, ctypes_structs.Asking()
    if across is not None and block.cross_attention_residual is not None:
        project = _a(CrossProjection, across.get_submodule("project"))
        other = _asking(across, project, project.query, block.cross_attention_residual)
    same = _a(SelfProjection, block.attention.get_submodule("project"))
    own = _asking(block.attention, same, same.matrix, block.attention_residual)
    return ctypes_structs.Block(own.project.inputs, own, other, _feedforward(block))


def _feedforward(block: Block) -> ctypes_structs.Feedforward:
    part, residual = block.get_submodule("feedforward"), _residual(block.feedforward_residual)
    if isinstance(part, CompiledDense):
        return ctypes_structs.Feedforward(False, 0, part.up.matrix, part.down.matrix, residual)
    gated = _a(CompiledGated, part)
    return ctypes_structs.Feedforward(True, gated.activation, gated.gate_up.matrix, gated.down.matrix, residual)


def _asking(
    attention: nn.Module, project: SelfProjection | CrossProjection, query: nn.Module, residual: nn.Module
) -> ctypes_structs.Asking:
    part = _a(QuickAttention, attention)
    return ctypes_structs.Asking(
        _a(InPanels, query).matrix,
        _a(InPanels, part.get_submodule("output")).matrix,
        project.heads[0],
        project.heads[1],
        project.head_dim,
        part.kernel.scale,
        part.numbers == torch.bfloat16,
        _residual(residual),
    )


def _residual(part: nn.Module) -> ctypes_structs.Residual:
    residual = _a(CompiledResidual, part)
    after = ctypes_structs.Norm() if residual.output_norm is None else residual.output_norm.norm
    return ctypes_structs.Residual(ORDERS[residual.order], residual.norm.norm, after)


def _a(kind: type[Part], part: nn.Module) -> Part:
    assert isinstance(part, kind)
    return part


def _batch(looking: Looking, source: Source | None) -> ctypes_structs.Batch:
    """What the batch is, worked out once for all blocks."""
    key = ("batch", id(looking.mask))
    if key not in looking.known:
        rows = lengths_of(looking.rows.lengths)
        found = ctypes_structs.Batch(looking.rows.tokens, rows.count, rows.at, rows.begin_at)
        found.causal = isinstance(looking.mask, Causal)
        held: tuple[Tensor, ...] = ()
        if isinstance(looking.position, Rotation):
            held = whole(looking.position.cosine), whole(looking.position.sine)
            found.cosine, found.sine = (part.data_ptr() for part in held)
        elif isinstance(looking.position, Tensor):
            held = (whole(looking.position),)
            found.bias = held[0].data_ptr()
            found.bias_row, found.bias_head, found.bias_query = bias_strides(held[0])
        asking = lengths_of(() if source is None else source.asking(looking.rows).lengths)
        if source is not None:
            found.texts, found.asking, found.first_asking = asking.count, asking.at, asking.begin_at
        looking.known[key] = looking.mask, found, held, rows, asking  # held, so that addresses stay valid
    batch: ctypes_structs.Batch = looking.known[key][1]
    return batch
