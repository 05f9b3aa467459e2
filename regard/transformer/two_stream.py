"""The network of XLNet (Yang et al. 2019): permutation language modelling with two streams.

Each token has two hidden states. The content stream starts from the token's embedding. The query stream starts from one
learned vector, the same for all tokens, and knows only the position of its token. Both pass through the same blocks and
attend to the content stream:

    content   h ──> attends to all that the order allows, and itself       keys and values of other tokens
    query     g ──> attends to all that the order allows, never itself     predicts the token

Without the query stream it is an encoder with relative positions and a segment memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from regard.transformer import config, head
from regard.transformer.attention import AttentionContext, EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.block import Block
from regard.transformer.cache import Memory
from regard.transformer.decoder_state import TwoStreamState
from regard.transformer.embedding import Embedding
from regard.transformer.head_base import HiddenStates, LogitsAt
from regard.transformer.mask import Diagonal
from regard.transformer.network_base import Network, Output
from regard.transformer.packing import AnyMask, TokenIds, pack
from regard.transformer.position import RelativeEncoding
from regard.transformer.relative_attention import RelativeAttention
from regard.transformer.stack import Stack


class TwoStream(Network):
    """Embedding, an encoder for one or two streams, and head."""

    alignment_address: str | None = None
    """There is no source to align with."""
    scores_in_one_pass = False
    """A decode step uses the query stream, and all tokens attend to each new one."""

    def __init__(self, design: config.TwoStream) -> None:
        super().__init__()
        self.config = design
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.guess = nn.Parameter(torch.empty(design.model_dim))
        """Initial vector of the query stream (`mask_emb` of XLNet)."""
        self.encoder = Stack(design.encoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def new_memory(self) -> Memory | None:
        """Create an empty segment memory. Pass it with each segment of a long text."""
        return self.encoder.new_memory()

    @property
    def reads_segments(self) -> bool:
        """Whether attention distinguishes segments."""
        return getattr(self.encoder.blocks[0].attention, "segments", None) is not None

    def new_decoder_state(self, sources: Sequence[Sequence[int]] | None = None) -> TwoStreamState:
        """Return a state without tokens; `sources` are ignored."""
        del sources
        return TwoStreamState(self)

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        memory: Memory | None = None,
        *,
        segments: TokenIds | None = None,
        layout: BatchLayout | None = None,
        query_stream: bool = False,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        """Encode the tokens. `mask` marks the real tokens; an `Explicit` mask sets the factorisation order.

        With `query_stream`, the output is the query stream: at each position a prediction that does not depend on the
        token there.
        """
        packed = pack(tokens, mask, layout, memory)
        content = self.embedding(packed.tokens, packed.layout)
        context = self.encoder.attention_context(packed.layout, packed.mask, content.dtype)
        if segments is not None:
            assert isinstance(context.position, RelativeEncoding)
            context = replace(context, position=replace(context.position, segments=packed.pack(segments)))
        query = self.embedding.dropout(self.guess.expand_as(content)) if query_stream else None
        content, query = self._run_blocks(content, query, context, memory)
        out = self.encoder.final_dropout(content if query is None else query)
        return self._output(out, packed, memory, logits_at=logits_at)

    def _run_blocks(
        self, content: HiddenStates, query: HiddenStates | None, context: AttentionContext, memory: Memory | None
    ) -> tuple[HiddenStates, HiddenStates | None]:
        """Run both streams through all blocks. The query stream attends to the content stream before the block."""
        content_context = replace(context, mask=context.mask | Diagonal())
        for layer, block in enumerate(self.encoder.blocks):
            assert isinstance(block, Block)
            assert isinstance(block.attention, RelativeAttention)
            keys_from = block.attention.with_memory(content, context, memory.layers[layer] if memory else None)
            if query is not None:
                query = _run_block(block, query, keys_from, context)
            content = _run_block(block, content, keys_from, content_context)
        return content, query


def _run_block(block: Block, stream: HiddenStates, keys_from: EncoderOutput, context: AttentionContext) -> HiddenStates:
    """Run one stream through one block."""
    attention = block.attention
    assert isinstance(attention, RelativeAttention)
    stream = block.attention_residual(stream, lambda x: attention.attend(x, keys_from, context))
    return block.feedforward_residual(stream, block.feedforward)
