"""The base class of networks, and their output."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, Memory
from regard.transformer.head_base import HeadOutput, HeadWithTokens, LogitsAt, PerTokenHead
from regard.transformer.interface import LengthLimits, Predicts, Reads
from regard.transformer.packing import PackedBatch
from regard.transformer.stack import Stack

LOGITS_CHUNK = 128
"""Number of tokens whose logits are computed at a time if padding has to be restored: enough for an efficient GEMM."""


@dataclass(frozen=True)
class Output:
    """Output of a network. Padded input gives padded output (zeros at padding), packed input gives packed output."""

    hidden: Float[Tensor, "*tokens model"]
    """Hidden states after the last block."""
    logits: Float[Tensor, "*scored labels"] | None = None
    """Logits of the head: per token; per sequence with `LogitsAt.LAST` or a sequence-level head; else None."""
    sequence_logits: Float[Tensor, "batch sentence_labels"] | None = None
    """Sequence-level logits of a head that has both."""
    cache: Cache | Memory | None = None
    """The cache that was passed in, extended by the new tokens."""
    source: EncoderOutput | None = None
    """The encoder output. Pass it as `source` in the next step, and the encoder does not run again."""
    pooled: Float[Tensor, "batch dim"] | None = None
    """A vector for each sequence or image: BERT's pooler output, CLIP's features before they are normalised."""


NetworkT = TypeVar("NetworkT", bound="Network")


class Network(nn.Module):
    """Base class of all networks: config, head, the members of `NetworkInterface`, gradient checkpointing."""

    config: config.Network
    head: nn.Module | None

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return self.config.reads

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return self.config.predicts

    @property
    def model_dim(self) -> int:
        """Size of the hidden states."""
        return self.config.model_dim

    @property
    def limits(self) -> tuple[LengthLimits | None, LengthLimits]:
        """The vocabulary and the maximum lengths of the source (None without one) and of the other tokens."""
        return self.config.limits

    @property
    def max_length(self) -> int | None:
        """Maximum sequence length in training: of learned positions, or of an encoder with rotary ones."""
        lengths = [side.max_positions for side in self.limits if side is not None and side.max_positions is not None]
        position = getattr(getattr(self.config, "encoder", None), "position", None)
        return min([*lengths, position.length] if isinstance(position, config.Rotary) else lengths, default=None)

    @property
    def num_labels(self) -> int:
        """Number of labels or tags of the head; 0 if it has none."""
        return getattr(getattr(self.config, "head", None), "labels", 0)

    @property
    def reads_segments(self) -> bool:
        """Whether the network has segment embeddings."""
        return getattr(getattr(self, "embedding", None), "segments", None) is not None

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
            return Output(hidden_out, logits.sequence_logits, None, cache, source, logits.pooled)
        return Output(hidden_out, packed.unpack(logits.token_logits), logits.sequence_logits, cache, source)
