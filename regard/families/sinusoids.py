"""The sinusoidal position table, which some published checkpoints store although it is not learned."""

import torch
from torch import Tensor

from regard.transformer import position
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Layout, Sinusoidal


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the position encodings (length × dim): sines in the first half of each vector, cosines in the second."""
    formula = position.Sinusoidal(Sinusoidal(layout=Layout.HALVES, length=length), dim)
    return formula(BatchLayout.of([length]), torch.float64)
