"""Networks that write: one more token of every row in one call.

After every pass through the weights of a network the caches of a CPU hold nothing else: whatever Python does between
two calls takes ten times as long as it does by itself. So a step of writing is one call, from tokens to scores.
"""

from __future__ import annotations

import ctypes
from array import array

import torch
from torch import Tensor, nn

from regard.engine.compiled import InPanels
from regard.engine.embedding import CompiledEmbedding
from regard.engine.kept import CompiledCache
from regard.engine.listeners import Listeners
from regard.engine.parts import QuickLanguageModel
from regard.engine.stack import CompiledStack
from regard.native.kernels import check_tokens, floats
from regard.native.library import library
from regard.native.pages import again
from regard.transformer.attention import Source
from regard.transformer.cache import Cache, Memory
from regard.transformer.door import AnyMask, TargetIds, TargetMask, TokenIds
from regard.transformer.network import DecoderOnly, EncoderDecoder, Output
from regard.transformer.rows import Rows
from regard.transformer.scores import Scored


class Step:
    """One more token of every row, from tokens to scores."""

    def __init__(self, embedding: CompiledEmbedding, decoder: CompiledStack, head: QuickLanguageModel) -> None:
        self.embedding, self.decoder, self.head = embedding, decoder, head
        matrix = head.get_submodule("matrix")
        assert isinstance(matrix, InPanels)
        self.matrix = matrix.matrix
        self.listeners = Listeners(module for part in (embedding, decoder, head) for module in part.modules())

    def __call__(
        self, tokens: Tensor, rows: Rows | None, source: Source | None, cache: Cache | Memory | None
    ) -> Output | None:
        """What the network returns; nothing, if something is asked that one call does not know."""
        if not isinstance(cache, CompiledCache) or rows is None or tokens.shape != (rows.batch,) or self.listeners:
            return None
        starts = cache.lengths
        if len(starts) != rows.batch or rows.tokens != rows.batch or tokens.dtype is not torch.long:
            return None
        if source is not None and source.rows.batch * source.copies != rows.batch:
            return None
        now = Rows(rows.lengths, starts, tokens.device)
        looking = self.decoder.knows(now, None, source, cache)
        if looking is None or now.end > self.embedding.most or not tokens.is_cpu:
            return None
        tokens, positions, at = tokens.contiguous(), self.embedding.vectors(now), array("l", starts)
        asked = self.decoder.asked(looking, source, cache)
        hidden, scores = floats(rows.batch, self.matrix.inputs), again.room(rows.batch, self.matrix.outputs)
        good = library().read_next(
            ctypes.addressof(self.embedding.structure), tokens.data_ptr(),
            None if positions is None else positions.data_ptr(), at.buffer_info()[0], *asked.told,
            ctypes.addressof(self.matrix), hidden.data_ptr(), scores.data_ptr(),
        )  # fmt: skip
        if good < rows.batch:  # nothing was read
            for kept in cache.own:
                kept.lengths = starts
        check_tokens(tokens, good, self.embedding.structure)
        return Output(hidden, scores, None, cache, source)


class QuickDecoderOnly(DecoderOnly):
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
        if mask is None and segments is None and self.head is self.step.head:
            output = self.step(tokens, rows, source, cache)
            if output is not None:
                return output
        return super().forward(tokens, mask, cache, segments=segments, rows=rows, source=source, scored=scored)


class QuickEncoderDecoder(EncoderDecoder):
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
        if isinstance(source, Source) and target_mask is None and self.head is self.step.head:
            output = self.step(target, target_rows, source, cache)
            if output is not None:
                return output
        return super().forward(
            source, target, mask, target_mask, cache, rows=rows, target_rows=target_rows, scored=scored
        )


def writer(network: nn.Module) -> nn.Module:
    """The network, taking its steps in one call, if all its parts are compiled."""
    match network:
        case DecoderOnly() if (step := _step(network.embedding, network.decoder, network.head)) is not None:
            return QuickDecoderOnly(network, step)
        case EncoderDecoder() if (step := _step(network.target, network.decoder, network.head)) is not None:
            return QuickEncoderDecoder(network, step)
        case _:
            return network


def _step(embedding: nn.Module, decoder: nn.Module, head: nn.Module | None) -> Step | None:
    if not isinstance(embedding, CompiledEmbedding) or embedding.projection is not None:
        return None
    if not isinstance(decoder, CompiledStack) or not isinstance(head, QuickLanguageModel):
        return None
    known = head.transform is None and isinstance(head.get_submodule("matrix"), InPanels)
    return Step(embedding, decoder, head) if known else None
