"""Networks that write: one more token of every row in one call.

After every pass through the weights of a network the caches of a CPU hold nothing else: whatever Python does between
two calls takes twice as long as it does by itself, or longer. So a step of writing is one call, from tokens to scores.
(Networks with a shortlist, whose scores are another matter for every text, call their parts one by one.)
"""

from __future__ import annotations

import ctypes
from array import array

import torch
from torch import Tensor, nn

from regard.engine.hooks import Listeners
from regard.engine.kv_cache import CompiledCache
from regard.engine.modules_native import InPanels
from regard.engine.modules_torch import QuickLanguageModel
from regard.engine.native_embedding import CompiledEmbedding
from regard.engine.native_stack import CompiledStack
from regard.native.arena import again
from regard.native.ctypes_structs import pointer
from regard.native.library import library
from regard.native.ops import check_tokens, floats
from regard.transformer.attention import Source
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache, Memory
from regard.transformer.head_base import Scored
from regard.transformer.network import DecoderOnly, EncoderDecoder, Output
from regard.transformer.packing import AnyMask, TargetIds, TargetMask, TokenIds


class Step:
    """One more token of every row, from tokens to scores."""

    def __init__(self, embedding: CompiledEmbedding, decoder: CompiledStack, head: QuickLanguageModel) -> None:
        self.embedding, self.decoder, self.head = embedding, decoder, head
        self.listeners = Listeners(module for part in (embedding, decoder, head) for module in part.modules())

    def of(self, *parts: nn.Module | None) -> bool:
        """Whether these are its parts: somebody may have put others in their places."""
        return all(mine is part for mine, part in zip((self.embedding, self.decoder, self.head), parts, strict=True))

    def __call__(
        self, tokens: Tensor, rows: Rows | None, source: Source | None, cache: Cache | Memory | None
    ) -> Output | None:
        """What the network returns; nothing, if something is wrong, or is asked that one call does not know."""
        if not isinstance(cache, CompiledCache) or rows is None or self.listeners:
            return None
        batch, starts = rows.batch, cache.lengths
        if tokens.shape != (batch,) or rows.tokens != batch or rows.longest != 1 or len(starts) != batch:
            return None
        if source is not None and source.rows.batch * source.copies != batch:
            return None
        now = Rows(rows.lengths, starts, tokens.device)
        looking, matrix = self.decoder.knows(now, None, source, cache), self.head.get_submodule("matrix")
        if looking is None or not self.embedding.knows(now) or not isinstance(matrix, InPanels):
            return None
        embedding = self.embedding.structure()
        if embedding is None or not tokens.is_cpu or tokens.dtype is not torch.long:
            return None
        hidden, scores = floats(batch, matrix.inputs), again.room(batch, matrix.outputs)
        tokens, at, positions = tokens.contiguous(), array("l", starts), self.embedding.vectors(now)
        told = self.decoder.told(looking, source, cache)
        good = library().read_next(
            ctypes.addressof(embedding), tokens.data_ptr(), pointer(positions), at.buffer_info()[0], *told.all,
            ctypes.addressof(matrix.matrix), hidden.data_ptr(), scores.data_ptr(),
        )  # fmt: skip
        if good < batch:  # nothing was read
            for kept in cache.own:
                kept.lengths = starts
        check_tokens(tokens, good, embedding)
        return Output(hidden, scores, None, cache, source)


class CompiledDecoderOnly(DecoderOnly):
    """The same network, made of the same parts."""

    def __init__(self, plain: DecoderOnly, step: Step) -> None:
        self.__dict__.update(plain.__dict__)
        self.step = step

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        cache: Cache | Memory | None = None,
        *,
        segments: TokenIds | None = None,
        rows: Rows | None = None,
        source: Source | None = None,
        scored: Scored = Scored.ALL,
    ) -> Output:
        """Read the tokens, each seeing those before it."""
        if mask is None and segments is None and self.step.of(self.embedding, self.decoder, self.head):
            output = self.step(tokens, rows, source, cache)
            if output is not None:
                return output
        return super().forward(tokens, mask, cache, segments=segments, rows=rows, source=source, scored=scored)


class CompiledEncoderDecoder(EncoderDecoder):
    """The same network, made of the same parts."""

    def __init__(self, plain: EncoderDecoder, step: Step) -> None:
        self.__dict__.update(plain.__dict__)
        self.step = step

    def forward(
        self,
        source: TokenIds | Source,
        target: TargetIds,
        mask: AnyMask = None,
        target_mask: TargetMask = None,
        cache: Cache | None = None,
        *,
        rows: Rows | None = None,
        target_rows: Rows | None = None,
        scored: Scored = Scored.ALL,
    ) -> Output:
        """Read the source (or what `encode` made of it) and the target so far."""
        ours = self.step.of(self.target, self.decoder, self.head)
        if ours and isinstance(source, Source) and target_mask is None:
            output = self.step(target, target_rows, source, cache)
            if output is not None:
                return output
        return super().forward(
            source, target, mask, target_mask, cache, rows=rows, target_rows=target_rows, scored=scored
        )


def compiled_writer(network: nn.Module) -> nn.Module:
    """The network, taking its steps in one call, if it is one that writes and all its parts are compiled."""
    if type(network) is DecoderOnly:
        step = _step(network.embedding, network.decoder, network.head)
        return network if step is None else CompiledDecoderOnly(network, step)
    if type(network) is EncoderDecoder:
        step = _step(network.target, network.decoder, network.head)
        return network if step is None else CompiledEncoderDecoder(network, step)
    return network


def _step(embedding: nn.Module, decoder: nn.Module, head: nn.Module | None) -> Step | None:
    if not isinstance(embedding, CompiledEmbedding) or embedding.projection is not None:
        return None
    if not isinstance(decoder, CompiledStack) or not isinstance(head, QuickLanguageModel) or head.transform is not None:
        return None
    return Step(embedding, decoder, head)
