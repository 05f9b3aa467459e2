import pytest
from unit.transformer.reference_network import normalized
from unit.transformer.small_networks import (
    LAYER_NORM,
    MODEL,
    RMS_NORM,
    close,
    dropout_as_factor,
    gradients,
    numbers,
    randomized,
)

from regard.transformer.config import NormOrder
from regard.transformer.residual import Residual


def formula(order, design, residual, x, sublayer, keep):
    def norm(x):
        return normalized(design, residual.norm, x)

    return {
        NormOrder.POST: lambda: norm(x + keep * sublayer(x)),
        NormOrder.PRE: lambda: x + keep * sublayer(norm(x)),
        NormOrder.BOTH: lambda: x + keep * normalized(design, residual.output_norm, sublayer(norm(x))),
    }[order]()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("design", [LAYER_NORM, RMS_NORM], ids=["layer", "rms"])
@pytest.mark.parametrize("order", NormOrder)
def test_each_order_is_its_formula_with_dropout_before_the_sum(order, design, training):
    residual = randomized(Residual(order, design, MODEL, dropout=0.3)).train(training)
    x, matrix = numbers(5, MODEL).requires_grad_(), numbers(MODEL, MODEL, seed=1)
    inputs = [x, *residual.parameters()]
    with dropout_as_factor():
        one = residual(x, lambda x: x.sin() @ matrix)
    other = formula(order, design, residual, x, lambda x: x.sin() @ matrix, keep=0.7 if training else 1.0)
    close(one, other, 1e-12)
    for mine, theirs in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        assert mine.abs().max() > 0
        close(mine, theirs, 1e-11)
