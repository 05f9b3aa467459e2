"""bf16 matrix multiplication against its definition: factors are rounded to bf16, then multiplied exactly."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.native import bf16

pytestmark = pytest.mark.skipif(not bf16.bf16_available(), reason="this CPU has no AVX-512 BF16")

SIZE = st.integers(1, 50)


def numbers(rows, columns, seed, transposed):
    values = torch.randn(rows * columns, generator=torch.Generator().manual_seed(seed))
    return values.view(columns, rows).t() if transposed else values.view(rows, columns)


def rounded(x):
    return x.bfloat16().double()


@given(rows=SIZE, depth=SIZE, columns=SIZE, left=st.booleans(), right=st.booleans(), bias=st.booleans())
@example(rows=777, depth=601, columns=129, left=True, right=True, bias=True)  # more than one chunk in every direction
@example(rows=25, depth=513, columns=33, left=False, right=False, bias=True)
@settings(max_examples=80)
def test_a_product(rows, depth, columns, left, right, bias):
    a, b = numbers(rows, depth, 1, left), numbers(depth, columns, 2, right)
    bias_values = numbers(1, columns, 3, False)[0] if bias else None
    found = bf16.matmul(a, bf16.PackedBf16Matrix.pack(b), bias_values)
    expected = rounded(a) @ rounded(b) + (0 if bias_values is None else bias_values.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * depth**0.5)
    more = bf16.matmul(a, bf16.PackedBf16Matrix.pack(b), out=found.clone(), accumulate=True)
    torch.testing.assert_close(
        more.double(), found.double() + rounded(a) @ rounded(b), rtol=1e-5, atol=1e-5 * depth**0.5
    )


@given(rows=SIZE, inputs=SIZE, outputs=SIZE, bias=st.booleans())
@settings(max_examples=30)
def test_a_layer_and_its_gradients(rows, inputs, outputs, bias):
    x = numbers(rows, inputs, 1, False).requires_grad_()
    weight = numbers(outputs, inputs, 2, False).requires_grad_()
    bias_values = numbers(1, outputs, 3, False)[0].requires_grad_() if bias else None
    gradient = numbers(rows, outputs, 4, False)
    leaves = [leaf for leaf in (x, weight, bias_values) if leaf is not None]
    found = torch.autograd.grad((bf16.linear(x, weight, bias_values) * gradient).sum(), leaves)
    expected = [rounded(gradient) @ rounded(weight), rounded(gradient).T @ rounded(x), gradient.double().sum(dim=0)]
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


def test_only_the_gradients_that_are_wanted_are_computed(monkeypatch):
    x, weight = numbers(5, 8, 1, False), numbers(7, 8, 2, False).requires_grad_()
    output, calls = bf16.linear(x, weight, None), []
    matmul = bf16.matmul
    monkeypatch.setattr(bf16, "matmul", lambda *args, **kwargs: calls.append(1) or matmul(*args, **kwargs))
    output.sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit(threads):
    a, b = bf16.PackedBf16Matrix.pack(numbers(300, 64, 1, False)), numbers(500, 300, 2, False)
    expected, before = bf16.matmul(b, a), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(bf16.matmul(b, a), expected)
    finally:
        torch.set_num_threads(before)


def test_nan_propagates():
    x = numbers(4, 64, 1, False)
    x[2, 13] = torch.nan
    found = bf16.matmul(x, bf16.PackedBf16Matrix.pack(numbers(64, 40, 2, False)))
    assert not found[2].isfinite().any()
    assert found[[0, 1, 3]].isfinite().all()
