"""Complete networks: encoder-only, decoder-only and encoder-decoder.

The input is a padded batch with a mask, or a packed batch with its `BatchLayout`. Padding is removed before the first
layer and restored in the output, so no layer computes it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, Union

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, head
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, Memory
from regard.transformer.embedding import Embedding
from regard.transformer.head_base import HeadOutput, HeadWithTokens, LogitsAt, PerTokenHead
from regard.transformer.initialization import initialize
from regard.transformer.packing import AnyMask, PackedBatch, TargetIds, TargetMask, TokenIds, pack, pack_images
from regard.transformer.patches import Images, MaskedImages, Patches
from regard.transformer.position import Learned
from regard.transformer.stack import Stack

if TYPE_CHECKING:
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream

    AnyNetwork = Union["EncoderOnly", "DecoderOnly", "EncoderDecoder", TwoStream, DualEncoder]  # noqa: UP007 - quotes

LOGITS_CHUNK = 128
"""Number of tokens whose logits are computed at a time if padding has to be restored: enough for an efficient GEMM."""


@dataclass(frozen=True)
class Output:
    """Output of a network. Padded input gives padded output (zeros at padding), packed input gives packed output."""

    hidden: Float[Tensor, "*tokens model"]
    """Hidden states after the last block."""
    logits: Float[Tensor, "*scored labels"] | None = None
    """Logits of the head: per token; per sequence with `LogitsAt.LAST` or a sequence-level head."""
    sequence_logits: Float[Tensor, "batch sentence_labels"] | None = None
    """Sequence-level logits of a head that has both."""
    cache: Cache | Memory | None = None
    """The cache that was passed in, extended by the new tokens."""
    source: EncoderOutput | None = None
    """The encoder output. Pass it as `source` in the next step, and the encoder does not run again."""


NetworkT = TypeVar("NetworkT", bound="Network")


class Network(nn.Module):
    """Base class of all networks: config, head, and the switch for gradient checkpointing."""

    config: config.Network
    head: nn.Module | None

    def train(self: NetworkT, mode: bool = True) -> NetworkT:
        """Switch to training mode. Weights that are transposed views of a memory-mapped file are copied.

        Optimisers are faster on contiguous weights. If one weight has to be copied, all are, so that the file can be
        closed.
        """
        weights = list(self.parameters()) if mode else []
        if not all(weight.is_contiguous() for weight in weights):
            for weight in weights:
                weight.data = weight.data.clone(memory_format=torch.contiguous_format)
        return super().train(mode)

    def without_head(self: NetworkT) -> NetworkT:
        """Return the same network without its head, all modules shared: for a caller that replaces the head."""
        body = copy.copy(self)
        body._modules = {**self._modules, "head": None}
        return body

    def set_gradient_checkpointing(self, enabled: bool = True) -> None:
        """Switch gradient checkpointing: less memory in training, but the forward pass of each block runs twice."""
        for stack in self.modules():
            if isinstance(stack, Stack):
                stack.gradient_checkpointing = enabled

    def apply_head(self, hidden: Float[Tensor, "tokens model"], packed: PackedBatch) -> HeadOutput:
        """Apply the head to the hidden states of a batch."""
        if isinstance(self.head, HeadWithTokens):
            return self.head(hidden, packed.layout, packed.tokens)
        return HeadOutput() if self.head is None else self.head(hidden, packed.layout)

    def _output(
        self,
        hidden: Tensor,
        packed: PackedBatch,
        cache: Cache | Memory | None = None,
        source: EncoderOutput | None = None,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        hidden_out = packed.unpack(hidden)
        assert hidden_out is not None
        if logits_at is LogitsAt.LAST:
            if len(hidden) > packed.layout.batch_size:
                last_token_layout = BatchLayout.of((1,) * packed.layout.batch_size, packed.layout.device)
                hidden, packed = hidden[packed.layout.last_indices], replace(packed, layout=last_token_layout)
            return Output(hidden_out, self.apply_head(hidden, packed).token_logits, None, cache, source)
        if isinstance(self.head, PerTokenHead) and packed.indices is not None and not torch.is_grad_enabled():
            chunks = (self.head(chunk, packed.layout).token_logits for chunk in torch.split(hidden, LOGITS_CHUNK))
            return Output(hidden_out, packed.unpack_chunks(chunks), None, cache, source)
        logits = self.apply_head(hidden, packed)
        if logits.token_logits is None:
            return Output(hidden_out, logits.sequence_logits, None, cache, source)
        return Output(hidden_out, packed.unpack(logits.token_logits), logits.sequence_logits, cache, source)


class EncoderOnly(Network):
    """Embedding, encoder and head: BERT, ViT."""

    def __init__(self, design: config.EncoderOnly) -> None:
        super().__init__()
        self.config = design
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.encoder = Stack(design.encoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def forward(
        self,
        tokens: TokenIds | Images | MaskedImages,
        mask: AnyMask = None,
        *,
        segments: TokenIds | None = None,
        layout: BatchLayout | None = None,
    ) -> Output:
        """Encode tokens or images. `mask` is a tensor that is True at real tokens, or a mask of `mask.py`."""
        patches = self.embedding.tokens
        if isinstance(patches, Patches):
            packed = pack_images(tokens, mask, layout, patches)
        elif isinstance(tokens, MaskedImages) or tokens.is_floating_point():
            raise ValueError("this network expects token ids, found images")
        else:
            packed = pack(tokens, mask, layout)
        _check_length(packed.layout, self.embedding)
        x = self.embedding(packed.tokens, packed.layout, packed.pack(segments))
        return self._output(self.encoder(x, packed.layout, packed.mask), packed)


class DecoderOnly(Network):
    """Embedding, decoder and head: GPT-2, Llama."""

    def __init__(self, design: config.DecoderOnly) -> None:
        super().__init__()
        self.config = design
        self.model_dim = design.model_dim
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def new_cache(self) -> Cache | Memory:
        """Create an empty cache. Pass it to every decode step, together with the new tokens only."""
        return self.decoder.new_memory() or self.decoder.new_cache()

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
        """Decode the tokens, each attending to those before it; with a cache, also to those of earlier steps."""
        if not isinstance(cache, Cache):
            batch_size = layout.batch_size if layout else len(tokens)
            cache = self.decoder.init_memory(cache, batch_size, self.embedding.example_hidden(self.model_dim))
        packed = pack(tokens, mask, layout, cache)
        _check_length(packed.layout, self.embedding)
        _check_encoder_output(packed.layout, source)
        x = self.embedding(packed.tokens, packed.layout, packed.pack(segments))
        return self._output(
            self.decoder(x, packed.layout, packed.mask, source, cache), packed, cache, source, logits_at
        )


class EncoderDecoder(Network):
    """An encoder for the source, a decoder for the target: Vaswani et al. 2017, BART, T5, Marian."""

    def __init__(self, design: config.EncoderDecoder) -> None:
        super().__init__()
        self.config = design
        self.source = Embedding(design.source, design.model_dim)
        self.target = Embedding(design.target, design.model_dim, shared=self.source.tokens)
        self.encoder = Stack(design.encoder, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.target.tokens) if design.head else None

    def new_cache(self) -> Cache:
        """Create an empty cache. Pass it to every decode step, together with the new target tokens only."""
        return self.decoder.new_cache()

    def encode(self, tokens: TokenIds, mask: AnyMask = None, *, layout: BatchLayout | None = None) -> EncoderOutput:
        """Encode the source, once for all decode steps."""
        packed = pack(tokens, mask, layout)
        _check_length(packed.layout, self.source)
        x = self.source(packed.tokens, packed.layout)
        return EncoderOutput(self.encoder(x, packed.layout, packed.mask), packed.layout)

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
        """Decode the target. `source` are the source tokens, or the output of `encode`."""
        if not isinstance(source, EncoderOutput):
            source = self.encode(source, mask, layout=layout)
        packed = pack(target, target_mask, target_layout, cache)
        _check_encoder_output(packed.layout, source)
        _check_length(packed.layout, self.target)
        x = self.target(packed.tokens, packed.layout)
        return self._output(
            self.decoder(x, packed.layout, packed.mask, source, cache), packed, cache, source, logits_at
        )


def _check_encoder_output(layout: BatchLayout, source: EncoderOutput | None) -> None:
    """Check that the batch has `source.copies` target sequences for each source."""
    if source is not None and layout.batch_size != source.layout.batch_size * source.copies:
        raise ValueError(
            f"{source.layout.batch_size * source.copies} source sequences but {layout.batch_size} target sequences"
        )


def _check_length(layout: BatchLayout, embedding: Embedding) -> None:
    """Check that learned positions cover the batch. Computed positions (sinusoidal, rotary) have no limit."""
    if isinstance(embedding.position, Learned) and layout.end_position > embedding.position.length:
        num_positions = embedding.position.length
        raise ValueError(
            f"a sequence of {layout.end_position} tokens exceeds the {num_positions} learned positions of this network"
        )


def build_on_meta(design: config.Network) -> AnyNetwork:
    """Build the network of a config on the meta device: all modules and shapes, without allocating memory."""
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream  # imports this file

    with torch.device("meta"):
        match design:
            case config.EncoderOnly():
                return EncoderOnly(design)
            case config.DecoderOnly():
                return DecoderOnly(design)
            case config.EncoderDecoder():
                return EncoderDecoder(design)
            case config.TwoStream():
                return TwoStream(design)
            case config.DualEncoder():
                return DualEncoder(design)


def build(
    design: config.Network, *, seed: int = 0, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> AnyNetwork:
    """Build the network of a config, and initialise its parameters by the config's scheme and this seed."""
    network = build_on_meta(design).to_empty(device=device).to(dtype)
    initialize(network, design, seed)
    return network
