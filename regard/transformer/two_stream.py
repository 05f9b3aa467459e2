"""The network of XLNet (Yang et al. 2019): an encoder that guesses tokens in any order.

Each token has two vectors. The content stream has seen the token; the query stream has not, it starts from one trained
vector and knows only where it stands. Both pass through the same blocks and attend to the content stream:

    content   h ──> sees all that the order allows, and itself         what others may attend to
    query     g ──> sees all that the order allows, never itself       what guesses the token

Without guessing it is an encoder with relative positions and a memory.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, head
from regard.transformer.attention import Looking, Source
from regard.transformer.batch_layout import Rows
from regard.transformer.block import Block
from regard.transformer.cache import Memory
from regard.transformer.embedding import Embedding
from regard.transformer.head_base import Scored
from regard.transformer.mask import Itself
from regard.transformer.network import Network, Output
from regard.transformer.packing import AnyMask, TokenIds, enter
from regard.transformer.position import Waves
from regard.transformer.relative_attention import RelativeAttention
from regard.transformer.stack import Stack

Vectors = Float[Tensor, "tokens model"]


class TwoStream(Network):
    """Embedding, an encoder for one stream or two, head."""

    def __init__(self, design: config.TwoStream) -> None:
        super().__init__()
        self.config = design
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.guess = nn.Parameter(torch.empty(design.model_dim))
        """What every vector of the query stream starts from."""
        self.encoder = Stack(design.encoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def new_memory(self) -> Memory | None:
        """An empty memory: pass it with each segment of a long text."""
        return self.encoder.new_memory()

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        memory: Memory | None = None,
        *,
        segments: TokenIds | None = None,
        rows: Rows | None = None,
        guess: bool = False,
        scored: Scored = Scored.ALL,
    ) -> Output:
        """Read the tokens. `mask` says which are real and, as `Explicit`, in which order they are guessed.

        With `guess`, what comes out is the query stream: at each place, what can be known of the token without it.
        """
        entered = enter(tokens, mask, rows, memory)
        content = self.embedding(entered.tokens, entered.rows)
        looking = self.encoder.looking(entered.rows, entered.mask, content.dtype)
        if segments is not None:
            assert isinstance(looking.position, Waves)
            looking = replace(looking, position=replace(looking.position, segments=entered.pack(segments)))
        query = self.embedding.dropout(self.guess.expand_as(content)) if guess else None
        content, query = self._read(content, query, looking, memory)
        out = self.encoder.final_dropout(content if query is None else query)
        return self._output(out, entered, memory, scored=scored)

    def _read(
        self, content: Vectors, query: Vectors | None, looking: Looking, memory: Memory | None
    ) -> tuple[Vectors, Vectors | None]:
        """Both streams through all blocks; the query stream attends to what the content stream was before the block."""
        own = replace(looking, mask=looking.mask | Itself())
        for layer, block in enumerate(self.encoder.blocks):
            assert isinstance(block, Block)
            assert isinstance(block.attention, RelativeAttention)
            everything = block.attention.recall(content, looking, memory.own[layer] if memory else None)
            if query is not None:
                query = _through(block, query, everything, looking)
            content = _through(block, content, everything, own)
        return content, query


def _through(block: Block, asking: Vectors, everything: Source, looking: Looking) -> Vectors:
    """One stream through one block."""
    attention = block.attention
    assert isinstance(attention, RelativeAttention)
    asking = block.attention_residual(asking, lambda x: attention.second(x, everything, looking))
    return block.feedforward_residual(asking, block.feedforward)
