"""Attention, feed-forward, the block of the two, and blocks in a row."""

import enum
from dataclasses import dataclass

from regard.transformer.config.common import Activation, Norm, NormOrder
from regard.transformer.config.position import (
    ALiBi,
    Relative,
    RelativeAndSegment,
    RelativeBuckets,
    RelativeWaves,
    Rotary,
)
from regard.transformer.mask import Band, Causal, Everything, Window


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Multi-head attention, to oneself or across."""

    heads: int
    """How many heads ask (queries)."""
    key_value_heads: int
    """How many heads answer (keys and values): each serves heads / key_value_heads queries."""
    head_dim: int
    """The size of one head's query, key and value."""
    scale: float
    """What query·key is multiplied by: 1/√head_dim in the paper, 1 in T5."""
    bias: bool
    """Whether the projections of query, key and value have a bias."""
    output_bias: bool
    """Whether the output projection has a bias."""
    position: Relative | RelativeAndSegment | None
    """What the block itself makes of the positions that its stack gives (`Stack.position`)."""
    dropout: float = 0.0
    """Dropout of the attention weights."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Dense:
    """down(activation(up(x)))."""

    dim: int
    """The inner size."""
    activation: Activation
    """What stands between the two layers."""
    bias: bool
    """Whether the layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner values."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Gated:
    """down(activation(gate(x)) · up(x)) (Shazeer 2020)."""

    dim: int
    """The inner size."""
    activation: Activation
    """What the gate goes through."""
    bias: bool
    """Whether the layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner values."""
    output_dropout: float = 0.0
    """Dropout of what comes out, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a stack: attention, cross-attention where there is an encoder to look at, feed-forward."""

    attention: Attention
    """Attention of the row to itself."""
    cross_attention: Attention | None
    """Attention to the encoder's output."""
    feedforward: Dense | Gated
    """The layer that treats each position alone."""
    norm: Norm
    """The norm of every sublayer."""
    order: NormOrder
    """Where that norm stands."""
    mask: Everything | Window | Band
    """A narrowing of the stack's mask for this block alone (GPT-3's local bands)."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Every layer has a block of its own."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Layers that follow each other use the same blocks again (ALBERT; with one group, a Universal Transformer)."""

    groups: int
    """How many groups of layers there are: those of a group share all parameters."""
    inner: int
    """How many blocks one turn of a group has."""


class Begin(enum.Enum):
    """What a network with memory remembers before the first segment of a text."""

    EMPTY = "empty"
    ZEROS = "zeros"
    """Vectors of zeros, which are attended to like any others (Transformer-XL)."""


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Blocks also attend to what they read in the segment before (Dai et al. 2019)."""

    length: int | None
    """How many tokens are remembered; all of them, if it is left open."""
    begin: Begin
    """What is remembered at first."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks in a row."""

    layers: int
    """How many blocks the vectors pass through."""
    sharing: Apart | Groups
    """Which of them are one and the same."""
    blocks: tuple[Block, ...]
    """The kinds of block, repeated in turn until there are enough. Most networks have one kind."""
    mask: Everything | Causal
    """Who may look at whom: everything for an encoder, causal for a decoder."""
    position: Rotary | RelativeBuckets | RelativeWaves | ALiBi | None
    """Positions that enter in every block, shared by all of them."""
    memory: Recurrence | None
    """What is remembered from one segment of a long text to the next."""
    final_norm: Norm | None
    """A norm after the last block, usual where the norms stand before their sublayers."""
    final_dropout: float = 0.0
    """Dropout after the final norm."""
    layer_dropout: float = 0.0
    """The chance that a whole block is skipped in training (Fan et al. 2019)."""
