"""The chunked loss against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from regard.native.bf16 import bf16_available
from regard.training.losses import cross_entropy as module
from regard.training.losses import rdrop
from regard.training.losses.cross_entropy import linear_cross_entropy
from regard.training.losses.rdrop import rdrop_cross_entropy


def made(tokens, vocabulary, dim, bias, seed):
    torch.manual_seed(seed)
    x = torch.randn(tokens, dim, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocabulary, dim, dtype=torch.float64, requires_grad=True)
    b = torch.randn(vocabulary, dtype=torch.float64, requires_grad=True) if bias else None
    return x, weight, b, torch.randint(vocabulary, (tokens,))


@settings(derandomize=True, deadline=None)
@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 30),
    dim=st.integers(1, 9),
    bias=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    held=st.integers(1, 400),
)
def test_loss_and_gradients_are_torchs(tokens, vocabulary, dim, bias, smoothing, held):
    x, weight, b, targets = made(tokens, vocabulary, dim, bias, seed=tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_LOGITS", held)
        ours = linear_cross_entropy(x, weight, b, targets, smoothing)
    logits = functional.linear(x, weight, b)
    theirs = functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    inputs = [x, weight] + ([b] if bias else [])
    for mine, other in zip(torch.autograd.grad(3 * ours, inputs), torch.autograd.grad(3 * theirs, inputs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_large_scores_do_not_overflow():
    x = torch.tensor([[500.0, -500.0]], requires_grad=True)
    weight = torch.eye(2)
    loss = linear_cross_entropy(x, weight, None, torch.tensor([1]))
    loss.backward()
    assert loss.item() == 1000
    assert x.grad.tolist() == [[1, -1]]


def test_only_the_gradients_that_are_wanted_are_computed(monkeypatch):
    x, weight, b, targets = made(5, 7, 3, True, seed=0)
    loss = linear_cross_entropy(x, weight.detach(), b.detach(), targets)
    (gradient,) = torch.autograd.grad(loss, x)
    expected = functional.cross_entropy(functional.linear(x, weight, b), targets, reduction="sum")
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x)[0])
    monkeypatch.setattr(
        module.GradientAccumulator, "add_probabilities", lambda *_: pytest.fail("gradients are not needed")
    )
    with torch.no_grad():
        linear_cross_entropy(x, weight, b, targets)


def test_a_tied_matrix_gets_both_gradients():
    _, weight, _, targets = made(6, 7, 3, False, seed=1)
    ids = torch.tensor([0, 1, 2, 3, 4, 5])
    ours = linear_cross_entropy(functional.embedding(ids, weight).tanh(), weight, None, targets, 0.1)
    logits = functional.embedding(ids, weight).tanh() @ weight.T
    theirs = functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(torch.autograd.grad(ours, weight), torch.autograd.grad(theirs, weight))


def disagreement(one, other):
    """½ · (KL(p ‖ q) + KL(q ‖ p)), from two matrices of logits."""
    p, q = one.softmax(-1), other.softmax(-1)
    return ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2


@settings(derandomize=True, deadline=None)
@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 30),
    bias=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    weight=st.sampled_from([0.0, 1.0, 5.0]),
    held=st.integers(1, 1600),
)
def test_agreement_is_its_definition(tokens, vocabulary, bias, smoothing, weight, held):
    first, matrix, b, targets = made(tokens, vocabulary, 5, bias, seed=tokens)
    second = (first + torch.randn_like(first) / 2).detach().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdrop, "CHUNK_LOGITS", held)
        ours = rdrop_cross_entropy(torch.stack([first, second]), matrix, b, targets, smoothing, weight)
    scores = [functional.linear(x, matrix, b) for x in (first, second)]
    theirs = weight * disagreement(*scores) + sum(
        functional.cross_entropy(one, targets, reduction="sum", label_smoothing=smoothing) for one in scores
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    inputs = [first, second, matrix] + ([b] if bias else [])
    for mine, other in zip(torch.autograd.grad(3 * ours, inputs), torch.autograd.grad(3 * theirs, inputs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not bf16_available(), reason="this CPU does not compute in bfloat16")
@pytest.mark.parametrize("twice", [False, True])
def test_in_bfloat16(monkeypatch, twice):
    """Inputs that bfloat16 represents exactly: equal loss; gradients differ by the rounding of the logit gradients."""
    x, weight, b, targets = made(50, 70, 24, True, seed=1)
    x, weight, b = (value.detach().bfloat16().float().requires_grad_() for value in (x, weight, b))
    other = x.detach().roll(1, dims=0)
    monkeypatch.setattr(module, "CHUNK_LOGITS", 2000)  # several chunks
    found = []
    for kind in (module.VocabularyProjection, module.Bf16VocabularyProjection):
        if twice:
            loss = rdrop_cross_entropy(torch.stack([x, other]), weight, b, targets, 0.1, 2.0, kind)
        else:
            loss = linear_cross_entropy(x, weight, b, targets, 0.1, kind)
        found.append((loss, torch.autograd.grad(loss, [x, weight, b])))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=0)
    for exact, rounded in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0.01 * float(exact.abs().max()))
    assert not torch.equal(found[0][1][0], found[1][1][0])  # it was really computed in bfloat16
