"""Enums and norms that several configs share."""

import enum
from dataclasses import dataclass


class Activation(enum.Enum):
    """The non-linearity of a feed-forward layer or a head."""

    RELU = "relu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    TANH = "tanh"
    QUICK_GELU = "quick_gelu"


class NormOrder(enum.Enum):
    """Position of the norm relative to the residual connection."""

    POST = "post"
    """norm(x + sublayer(x)): the 2017 paper, BERT, BART."""
    PRE = "pre"
    """x + sublayer(norm(x)): GPT-2, T5, Llama."""
    BOTH = "both"
    """x + norm(sublayer(norm(x))): a norm before and after the sublayer."""


class Layout(enum.Enum):
    """Order of sines and cosines in a sinusoidal encoding."""

    INTERLEAVED = "interleaved"
    """sin, cos, sin, cos, …: as in the paper."""
    HALVES = "halves"
    """All sines, then all cosines: as in the code of the paper's authors, and in Marian."""


class Weights(enum.Enum):
    """Whether a matrix is tied to that of another module."""

    OWN = "own"
    TIED = "tied"


class OutputBias(enum.Enum):
    """The bias that a language-modelling head adds to its logits."""

    NONE = "none"
    LEARNT = "learnt"
    FIXED = "fixed"
    """Part of the model, not trained: `final_logits_bias` of BART and Marian."""


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al. 2016)."""

    epsilon: float
    """Added to the variance, to avoid division by zero for a constant vector."""


@dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """Divide by the root of the mean square, and scale (Zhang and Sennrich 2019)."""

    epsilon: float
    """Added to the mean square."""


Norm = LayerNorm | RMSNorm
