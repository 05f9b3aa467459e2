"""A decode step (one new token of every sequence) in one native call.

After a pass through all weights, the CPU caches hold nothing else: whatever Python does between two calls takes twice
as long as usual, or longer. So a decode step is one call, from tokens to logits.
"""

from __future__ import annotations

import ctypes
from array import array

import torch
from torch import Tensor, nn

from regard.engine.hooks import HookDetector
from regard.engine.kv_cache import NativeCache
from regard.engine.modules_native import PackedLinear
from regard.engine.modules_torch import InferenceLanguageModel
from regard.engine.native_embedding import NativeEmbedding
from regard.engine.native_stack import NativeStack
from regard.native.ctypes_structs import pointer
from regard.native.library import library
from regard.native.ops import check_tokens, empty_float32
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, Memory
from regard.transformer.head_base import LogitsAt
from regard.transformer.network import DecoderOnly, EncoderDecoder
from regard.transformer.network_base import Output
from regard.transformer.packing import AnyMask, TargetIds, TargetMask, TokenIds


class DecodeStep:
    """One new token of every sequence, from tokens to logits."""

    def __init__(self, embedding: NativeEmbedding, decoder: NativeStack, head: InferenceLanguageModel) -> None:
        self.embedding, self.decoder, self.head = embedding, decoder, head
        self.forward_hooks = HookDetector(child for module in (embedding, decoder, head) for child in module.modules())

    def matches(self, *modules: nn.Module | None) -> bool:
        """Return whether these are its modules: the user may have replaced one of them."""
        own = (self.embedding, self.decoder, self.head)
        return all(module is other for module, other in zip(own, modules, strict=True))

    def __call__(
        self, tokens: Tensor, layout: BatchLayout | None, source: EncoderOutput | None, cache: Cache | Memory | None
    ) -> Output | None:
        """Return the network's output, or None if the arguments are not supported by the native call or invalid."""
        if not isinstance(cache, NativeCache) or layout is None or self.forward_hooks:
            return None
        batch, starts = layout.batch_size, cache.lengths
        if tokens.shape != (batch,) or layout.num_tokens != batch or layout.longest != 1 or len(starts) != batch:
            return None
        if source is not None and source.layout.batch_size * source.copies != batch:
            return None
        layout = BatchLayout(layout.lengths, starts, tokens.device)
        context, linear = self.decoder.native_context(layout, None, source, cache), self.head.get_submodule("linear")
        if context is None or not self.embedding.supports(layout) or not isinstance(linear, PackedLinear):
            return None
        embedding = self.embedding.make_struct()
        if embedding is None or not tokens.is_cpu or tokens.dtype is not torch.long:
            return None
        hidden, logits = empty_float32(batch, linear.in_features), empty_float32(batch, linear.out_features)
        tokens, position_ids = tokens.contiguous(), array("l", starts)
        position_table = self.embedding.position_table(layout)
        descriptor = self.decoder.describe_batch(context, source, cache)
        valid_count = library().decode_step(
            ctypes.addressof(embedding), tokens.data_ptr(), pointer(position_table), position_ids.buffer_info()[0],
            *descriptor.arguments, ctypes.addressof(linear.struct), hidden.data_ptr(), logits.data_ptr(),
        )  # fmt: skip
        if valid_count < batch:  # a token id is out of range, and nothing was computed
            for layer in cache.layers:
                layer.lengths = starts
        check_tokens(tokens, valid_count, embedding)
        return Output(hidden, logits, None, cache, source)


class NativeDecoderOnly(DecoderOnly):
    """The same network with the same submodules; decode steps are one native call."""

    def __init__(self, original: DecoderOnly, decode_step: DecodeStep) -> None:
        self.__dict__.update(original.__dict__)
        self.decode_step = decode_step

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        cache: Cache | Memory | None = None,
        *,
        segments: TokenIds | None = None,
        layout: BatchLayout | None = None,
        source: EncoderOutput | None = None,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        """Run the network on the tokens; each attends to itself and to the tokens before it."""
        if mask is None and segments is None and self.decode_step.matches(self.embedding, self.decoder, self.head):
            output = self.decode_step(tokens, layout, source, cache)
            if output is not None:
                return output
        return super().forward(
            tokens, mask, cache, segments=segments, layout=layout, source=source, logits_at=logits_at
        )


class NativeEncoderDecoder(EncoderDecoder):
    """The same network with the same submodules; decode steps are one native call."""

    def __init__(self, original: EncoderDecoder, decode_step: DecodeStep) -> None:
        self.__dict__.update(original.__dict__)
        self.decode_step = decode_step

    def forward(
        self,
        source: TokenIds | EncoderOutput,
        target: TargetIds,
        mask: AnyMask = None,
        target_mask: TargetMask = None,
        cache: Cache | None = None,
        *,
        layout: BatchLayout | None = None,
        target_layout: BatchLayout | None = None,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        """Run the network on the source (or the output of `encode`) and the target prefix."""
        matches = self.decode_step.matches(self.target, self.decoder, self.head)
        if matches and isinstance(source, EncoderOutput) and target_mask is None:
            output = self.decode_step(target, target_layout, source, cache)
            if output is not None:
                return output
        return super().forward(
            source, target, mask, target_mask, cache, layout=layout, target_layout=target_layout, logits_at=logits_at
        )


def with_decode_step(network: nn.Module) -> nn.Module:
    """Return the network with native decode steps, or unchanged if one of its modules does not support them."""
    if type(network) is DecoderOnly:
        step = _make_decode_step(network.embedding, network.decoder, network.head)
        return network if step is None else NativeDecoderOnly(network, step)
    if type(network) is EncoderDecoder:
        step = _make_decode_step(network.target, network.decoder, network.head)
        return network if step is None else NativeEncoderDecoder(network, step)
    return network


def _make_decode_step(embedding: nn.Module, decoder: nn.Module, head: nn.Module | None) -> DecodeStep | None:
    if not isinstance(embedding, NativeEmbedding) or embedding.projection is not None:
        return None
    if (
        not isinstance(decoder, NativeStack)
        or not isinstance(head, InferenceLanguageModel)
        or head.transform is not None
    ):
        return None
    return DecodeStep(embedding, decoder, head)
