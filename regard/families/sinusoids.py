"""Sines and cosines of positions as a table, which some published files hold though nothing in it is learnt."""

import torch
from torch import Tensor

from regard.transformer import position
from regard.transformer.batch_layout import Rows
from regard.transformer.config import Layout, Sinusoidal


def sinusoids(length: int, dim: int) -> Tensor:
    """The vectors of all positions: sines in the first half, cosines in the second."""
    formula = position.Sinusoidal(Sinusoidal(layout=Layout.HALVES, length=length), dim)
    return formula(Rows.of([length]), torch.float64)
