"""Choices and norms that several parts of a network share."""

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
    """Where the norm stands relative to the residual connection."""

    POST = "post"
    """norm(x + sublayer(x)): the 2017 paper, BERT, BART."""
    PRE = "pre"
    """x + sublayer(norm(x)): GPT-2, T5, Llama."""
    BOTH = "both"
    """x + norm(sublayer(norm(x))): a norm on either side of the sublayer."""


class Layout(enum.Enum):
    """How sines and cosines share a vector."""

    INTERLEAVED = "interleaved"
    """sin, cos, sin, cos, …: as the paper writes it."""
    HALVES = "halves"
    """All sines, then all cosines: as the paper's own code, and Marian, computed it."""


class Weights(enum.Enum):
    """Whether a matrix is its own or borrowed."""

    OWN = "own"
    TIED = "tied"


class OutputBias(enum.Enum):
    """The bias that a language-modelling head adds to its logits."""

    NONE = "none"
    LEARNT = "learnt"
    FIXED = "fixed"
    """Part of the model, not trained: BART's and Marian's `final_logits_bias`."""


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al. 2016)."""

    epsilon: float
    """Added to the variance, so that a constant vector does not divide by zero."""


@dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """Divide by the root of the mean square, and scale (Zhang and Sennrich 2019)."""

    epsilon: float
    """Added to the mean square."""


Norm = LayerNorm | RMSNorm
