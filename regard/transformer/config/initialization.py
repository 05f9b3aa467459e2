"""Configs of parameter initialisation, as published."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Normally distributed matrices, zero biases, weights of norms one (BERT, BART, Llama)."""

    deviation: float
    """Standard deviation."""


@dataclass(frozen=True, kw_only=True)
class ScaledNormal:
    """As Normal; matrices whose output is added to the residual stream are divided by √(2·layers) (GPT-2)."""

    deviation: float
    """Standard deviation."""


@dataclass(frozen=True, kw_only=True)
class FanIn:
    """Normal, with standard deviations that depend on the input size, so that attention needs no scale (T5)."""

    factor: float
    """Factor on all standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Glorot:
    """Uniform, with a range that preserves the variance in the forward and backward pass (Glorot and Bengio 2010).

    Used by the 2017 Transformer.
    """


@dataclass(frozen=True, kw_only=True)
class ByWidth:
    """Normal, with standard deviations that depend on the width and the depth of the stack (CLIP).

    As in the transformers library, the query, key and value projections get the factor 1/√(2·layers). OpenAI's code
    applies it to the output projection of attention instead.
    """

    deviation: float
    """Standard deviation of embeddings and of the patch projection."""
    factor: float
    """Factor on all standard deviations."""


Initialization = Normal | ScaledNormal | FanIn | Glorot | ByWidth
