"""Configs of attention, feed-forward layer, block and stack."""

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
    """Multi-head self-attention or cross-attention."""

    heads: int
    """Number of query heads."""
    key_value_heads: int
    """Number of key/value heads; each is shared by heads / key_value_heads query heads."""
    head_dim: int
    """Size of the query, key and value of one head."""
    scale: float
    """Factor on query·key: 1/√head_dim in the paper, 1 in T5."""
    bias: bool
    """Whether the projections of query, key and value have a bias."""
    output_bias: bool
    """Whether the output projection has a bias."""
    position: Relative | RelativeAndSegment | None
    """How the attention uses the relative encodings of its stack (`Stack.position`); None if it has none."""
    dropout: float = 0.0
    """Dropout of the attention weights."""
    output_dropout: float = 0.0
    """Dropout of the output, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A feed-forward layer: down(activation(up(x)))."""

    dim: int
    """Inner size."""
    activation: Activation
    """Activation between the two linear layers."""
    bias: bool
    """Whether the linear layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner activations."""
    output_dropout: float = 0.0
    """Dropout of the output, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Gated:
    """A gated feed-forward layer: down(activation(gate(x)) · up(x)) (Shazeer 2020)."""

    dim: int
    """Inner size."""
    activation: Activation
    """Activation of the gate."""
    bias: bool
    """Whether the linear layers have a bias."""
    dropout: float = 0.0
    """Dropout of the inner activations."""
    output_dropout: float = 0.0
    """Dropout of the output, before it is added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a stack: self-attention, cross-attention (where there is an encoder) and feed-forward."""

    attention: Attention
    """Self-attention."""
    cross_attention: Attention | None
    """Attention to the encoder output."""
    feedforward: Dense | Gated
    """The position-wise feed-forward layer."""
    norm: Norm
    """Norm of every sublayer."""
    order: NormOrder
    """Position of that norm."""
    mask: Everything | Window | Band
    """Mask of this block, combined (&) with that of the stack (locally banded layers of GPT-3)."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """No sharing: every layer has its own parameters."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Consecutive layers share parameters (ALBERT; with one group, a Universal Transformer)."""

    groups: int
    """Number of groups of layers; the layers of a group share all parameters."""
    inner: int
    """Number of different blocks in a group, applied in turn."""


class Begin(enum.Enum):
    """Initial segment memory, before the first segment of a text."""

    EMPTY = "empty"
    ZEROS = "zeros"
    """Zero vectors, which are attended to like any others (Transformer-XL)."""


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Segment recurrence: blocks also attend to the hidden states of the segment before (Dai et al. 2019)."""

    length: int | None
    """Number of tokens in the memory; None for all."""
    begin: Begin
    """Initial memory."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack of blocks: an encoder or a decoder."""

    layers: int
    """Number of layers."""
    sharing: Apart | Groups
    """Which layers share parameters."""
    blocks: tuple[Block, ...]
    """Block configs, repeated cyclically over the layers. Most networks have one."""
    mask: Everything | Causal
    """Attention mask: everything for an encoder, causal for a decoder."""
    position: Rotary | RelativeBuckets | RelativeWaves | ALiBi | None
    """Position encoding of attention, shared by all blocks."""
    memory: Recurrence | None
    """Segment recurrence over the segments of a long text."""
    final_norm: Norm | None
    """Norm after the last block, usual in pre-norm stacks."""
    final_dropout: float = 0.0
    """Dropout after the final norm."""
    layer_dropout: float = 0.0
    """Probability that a block is skipped in training (LayerDrop, Fan et al. 2019)."""
