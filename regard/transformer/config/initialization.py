"""How untrained parameters start, as published."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Normal:
    """All matrices from a normal distribution, biases zero, norms one (BERT, BART, Llama)."""

    deviation: float
    """The standard deviation."""


@dataclass(frozen=True, kw_only=True)
class ScaledNormal:
    """As Normal, with what is added to the residual stream made smaller by √(2·layers) (GPT-2)."""

    deviation: float
    """The standard deviation."""


@dataclass(frozen=True, kw_only=True)
class FanIn:
    """Deviations that follow from the size of the input, so that scores need no scale (T5)."""

    factor: float
    """A factor on all of them."""


@dataclass(frozen=True, kw_only=True)
class Glorot:
    """Uniform, with a width that keeps the variance forward and backward (Glorot and Bengio 2010; 2017's own)."""


@dataclass(frozen=True, kw_only=True)
class ByWidth:
    """Normal, with deviations that follow from the width and the depth of the stack (CLIP).

    As transformers has it: query, key and value get the factor 1/√(2·layers). OpenAI's own code gave it to the
    attention's output instead.
    """

    deviation: float
    """The deviation of tables and of the patches' layer."""
    factor: float
    """A factor on all deviations."""


Initialization = Normal | ScaledNormal | FanIn | Glorot | ByWidth
