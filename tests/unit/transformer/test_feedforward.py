from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import activate, apply_linear
from unit.transformer.small_networks import (
    DENSE,
    GATED,
    MODEL,
    close,
    dropout_as_factor,
    few,
    gradients,
    numbers,
    randomized,
)

from regard.transformer import config, feedforward
from regard.transformer.config import Activation


@pytest.mark.parametrize("activation", Activation)
@given(x=st.floats(-30, 30))
@few
def test_each_activation_is_its_formula(activation, x):
    x = torch.tensor([x], dtype=torch.float64)
    close(feedforward.ACTIVATIONS[activation](x), activate(activation, x), 1e-12)


def by_formula(design, module, x, factor=1.0):
    if isinstance(design, config.Gated):
        inner = activate(design.activation, apply_linear(module.gate, x)) * apply_linear(module.up, x)
    else:
        inner = activate(design.activation, apply_linear(module.up, x))
    return apply_linear(module.down, inner * factor)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [DENSE, GATED], ids=["dense", "gated"])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_each_layer_is_its_formula_with_gradients_for_any_leading_axes(kind, bias, shape):
    design = replace(kind, bias=bias)
    module = randomized(feedforward.build(design, MODEL))
    assert {name.rpartition(".")[2] for name, _ in module.named_parameters()} == {"weight"} | (
        {"bias"} if bias else set()
    )
    x = numbers(*shape, MODEL).requires_grad_()
    inputs = [x, *module.parameters()]
    one, other = module(x), by_formula(design, module, x)
    close(one, other, 1e-12)
    for mine, theirs in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        close(mine, theirs, 1e-11)


@pytest.mark.parametrize("kind", [DENSE, GATED], ids=["dense", "gated"])
def test_dropout_falls_on_the_inner_values_in_training_alone(kind):
    design = replace(kind, dropout=0.3, output_dropout=0.9)
    module = randomized(feedforward.build(design, MODEL))
    x = numbers(5, MODEL)
    with dropout_as_factor():
        close(module.train()(x), by_formula(design, module, x, 0.7), 1e-12)
        close(module.eval()(x), by_formula(design, module, x), 1e-12)
