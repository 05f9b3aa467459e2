"""The native training kernels and their gradients, against the equations in float64."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from unit.transformer.small_networks import VOCABULARY, made, text

from regard import transformer_2017
from regard.families.registry import FAMILIES
from regard.native.ctypes_structs import DropoutRng, RowLengths
from regard.native.library import available
from regard.native.training_ops import (
    activation_dropout,
    cross_entropy_forward_backward,
    dropout,
    dropout_add,
    make_dropout_rng,
    rdrop_forward_backward,
    training_attention,
)
from regard.training.modules import fused_modules
from regard.training.modules.fused_modules import TrainingResidual, fuse_modules
from regard.transformer.attention_kernel import attention_weights
from regard.transformer.config import Activation
from regard.transformer.feedforward import ACTIVATIONS

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not available")

SEED = st.integers(0, 10**6)
NOTHING = DropoutRng(0, 0, 0, 1.0)
SOME = DropoutRng(12345, 678, 20000, 65536 / 45536)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@st.composite
def attention_cases(draw):
    causal = draw(st.booleans())
    rows = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), min_size=1, max_size=4))
    pairs = [(queries, queries + more if causal else max(1, more)) for queries, more in rows]
    return causal, pairs, draw(st.integers(1, 3)), 8 * draw(st.integers(1, 5)), draw(SEED)


def dropped(pairs, heads, dim, causal, query, key, lengths):
    """Return the factor of each attention weight (0 or the scale), from outputs for values that are unit vectors."""
    factors = [torch.zeros(heads, queries, keys, dtype=torch.float64) for queries, keys in pairs]
    for begin in range(0, max(keys for _, keys in pairs), dim):
        value = torch.cat([torch.eye(keys, begin + dim)[:, begin:] for _, keys in pairs])
        value = value[:, None].expand(-1, heads, -1).contiguous()
        one, other = (
            training_attention(query, key, value, *lengths, 0.3, causal, each).view(-1, heads, dim).transpose(0, 1)
            for each in (SOME, NOTHING)
        )
        for row, shown in enumerate((one / other).split([queries for queries, _ in pairs], dim=1)):
            keys = factors[row][:, :, begin : begin + dim].shape[2]
            factors[row][:, :, begin : begin + dim] = shown[:, :, :keys].double().nan_to_num()
    return factors


@pytest.mark.parametrize("drops", [False, True])
@given(case=attention_cases())
@settings(max_examples=40)
def test_attention_and_its_gradients(drops, case):
    causal, pairs, heads, dim, seed = case
    queries, keys = zip(*pairs, strict=True)
    lengths = RowLengths(queries), RowLengths(keys)
    together = numbers(sum(queries), 3, heads, dim, seed=seed)  # as a fused projection gives it: strided views
    query = together[:, 1].requires_grad_()
    key, value = (numbers(sum(keys), heads, dim, seed=seed + n).requires_grad_() for n in (1, 2))
    by = [torch.ones(heads, q, k, dtype=torch.float64) for q, k in pairs]
    if drops:
        by = dropped(pairs, heads, dim, causal, query.detach(), key.detach(), lengths)
    found = training_attention(query, key, value, *lengths, 0.3, causal, SOME if drops else NOTHING)
    answers = []
    for row, (q, k, v) in enumerate(zip(query.split(queries), key.split(keys), value.split(keys), strict=True)):
        visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))[None, None] if causal else None
        turned = [part.transpose(0, 1)[None].double() for part in (q, k, v)]
        used = attention_weights(*turned[:2], 0.3, visible) * by[row]
        answers.append((used @ turned[2])[0].transpose(0, 1).flatten(1))
    expected = torch.cat(answers)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    slope = numbers(*found.shape, seed=seed + 3)
    mine = torch.autograd.grad((found * slope).sum(), (query, key, value))
    theirs = torch.autograd.grad((expected * slope).sum(), (query, key, value))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5 * math.sqrt(max(queries)))


def deviation(found, expected, count):
    """Return how many standard deviations the frequency among `count` samples is away from the expected one."""
    return abs(found - expected) / math.sqrt(expected * (1 - expected) / count)


def test_weights_are_dropped_at_random_in_every_row_head_and_query():
    """With the given probability; independent of neighbours, other heads, queries and sequences."""
    rows, heads, length, probability = 40, 4, 32, SOME.drop_threshold / 65536
    pairs = [(length, length)] * rows
    lengths = (RowLengths([length] * rows),) * 2
    zeros = torch.zeros(rows * length, heads, 32)
    factors = torch.stack(dropped(pairs, heads, 32, False, zeros, zeros, lengths))
    gone = factors == 0
    assert deviation(gone.double().mean().item(), probability, gone.numel()) < 4
    assert factors[~gone].tolist() == pytest.approx([SOME.scale] * int((~gone).sum()), rel=1e-5)
    for axis in range(4):
        for shift in (1, 2, 3, 8, 16):
            if shift < gone.shape[axis]:
                both = gone.narrow(axis, shift, gone.shape[axis] - shift) & gone.narrow(
                    axis, 0, gone.shape[axis] - shift
                )
                assert deviation(both.double().mean().item(), probability**2, both.numel()) < 4.5


@given(rows=st.integers(1, 20), dim=st.integers(1, 50), seed=SEED)
@settings(max_examples=40)
def test_dropout_and_sum(rows, dim, seed):
    x, sublayer_output = (numbers(rows, dim, seed=seed + n).requires_grad_() for n in (0, 1))
    found = dropout_add(x, sublayer_output, SOME)
    factor = ((found - x) / sublayer_output).detach()
    kept = factor.abs() > 0.5
    torch.testing.assert_close(found, x + sublayer_output * kept * SOME.scale)
    slope = numbers(rows, dim, seed=seed + 2)
    back = torch.autograd.grad((found * slope).sum(), (x, sublayer_output))
    torch.testing.assert_close(back[0], slope)
    torch.testing.assert_close(back[1], slope * kept * SOME.scale)


@pytest.mark.parametrize("activation", Activation)
@given(count=st.integers(1, 70), seed=SEED, loud=st.sampled_from([0.01, 1.0, 30.0]), drops=st.booleans())
@settings(max_examples=30)
def test_activations_with_dropout_and_their_gradients(activation, count, seed, loud, drops):
    x = (loud * numbers(count, seed=seed)).requires_grad_()
    found = activation_dropout(x, activation, SOME if drops else NOTHING)
    by = dropout(torch.ones(count), SOME).double() if drops else 1.0  # the same random state
    exact = x.detach().double().requires_grad_()
    expected = ACTIVATIONS[activation](exact) * by
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    slope = numbers(count, seed=seed + 1)
    (mine,) = torch.autograd.grad((found * slope).sum(), x)
    (theirs,) = torch.autograd.grad((expected * slope).sum(), exact)
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", Activation)
def test_activations_far_out_and_where_nothing_is_a_number(activation):
    x = torch.tensor([-1e30, -200.0, -90.0, -50.0, 0.0, 50.0, 90.0, 200.0, 1e30, math.nan]).requires_grad_()
    found = activation_dropout(x, activation, NOTHING)
    expected = ACTIVATIONS[activation](x.detach().double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_what_is_dropped_depends_on_the_seed_alone():
    x = torch.ones(1000)
    assert torch.equal(dropout(x, SOME), dropout(x, SOME))
    assert not torch.equal(dropout(x, SOME), dropout(x, DropoutRng(12346, 678, 20000, SOME.scale)))
    assert not torch.equal(dropout(x, SOME), dropout(x, DropoutRng(12345, 679, 20000, SOME.scale)))
    torch.manual_seed(3)
    one, other = make_dropout_rng(100), make_dropout_rng(100)
    torch.manual_seed(3)
    again = make_dropout_rng(100)
    assert (one.seed_low, one.seed_high) == (again.seed_low, again.seed_high) != (other.seed_low, other.seed_high)


@given(
    tokens=st.integers(1, 20),
    vocabulary=st.integers(1, 2100),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    seed=SEED,
    loud=st.sampled_from([1.0, 30.0]),
)
@settings(max_examples=40)
def test_loss(tokens, vocabulary, smoothing, seed, loud):
    scores = loud * numbers(tokens, vocabulary, seed=seed)
    targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(seed))
    exact = scores.double().requires_grad_()
    expected = functional.cross_entropy(exact, targets, reduction="sum", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(expected, exact)
    found = cross_entropy_forward_backward(scores, targets, smoothing)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    torch.testing.assert_close(scores.double(), gradient, rtol=1e-5, atol=1e-6)


@given(
    tokens=st.integers(1, 20),
    vocabulary=st.integers(1, 2100),
    smoothing=st.sampled_from([0.0, 0.1]),
    weight=st.sampled_from([0.0, 1.0, 5.0]),
    seed=SEED,
)
@settings(max_examples=40)
def test_rdrop_loss(tokens, vocabulary, smoothing, weight, seed):
    pair = 3 * torch.stack([numbers(tokens, vocabulary, seed=seed + n) for n in (0, 1)], dim=1)
    targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(seed))
    exact = [scores.double().requires_grad_() for scores in pair.unbind(1)]
    logs = [scores.log_softmax(dim=1) for scores in exact]
    apart = sum(functional.kl_div(logs[n], logs[1 - n], reduction="sum", log_target=True) for n in (0, 1))
    losses = [functional.cross_entropy(x, targets, reduction="sum", label_smoothing=smoothing) for x in exact]
    expected = losses[0] + losses[1] + weight / 2 * apart
    gradients = torch.autograd.grad(expected, exact)
    found = rdrop_forward_backward(pair, targets, smoothing, weight)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    for one, other in zip(pair.unbind(1), gradients, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


NETWORKS = {
    "encoder": ("bert", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)),
    "decoder": ("gpt2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=16)),
    "turning": ("llama", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)),
    "both": ("transformer", None),
}


def network_of(name):
    family, values = NETWORKS[name]
    if values is None:
        return made(transformer_2017(vocabulary=VOCABULARY, layers=(2, 2), model_dim=32, heads=4, dropout=0.0))
    heads = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
    return made(FAMILIES[family].read_config(values | {"vocab_size": VOCABULARY}, heads[family])[0])


def learnt(network):
    return [value for value in network.parameters() if value.requires_grad]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_trains_with_them_is_the_same_network(name, monkeypatch):
    """Outputs and gradients of sequences of mixed lengths, against the original network in float64."""
    attention_calls, activation_calls = [], []
    monkeypatch.setattr(
        fused_modules, "training_attention", lambda *args: attention_calls.append(0) or training_attention(*args)
    )
    monkeypatch.setattr(
        fused_modules, "activation_dropout", lambda *args: activation_calls.append(0) or activation_dropout(*args)
    )
    network = network_of(name).eval()
    fused = copy.deepcopy(network).float()
    fuse_modules(fused)
    tokens = [text(3, 6)] if name != "both" else [text(3, 6), text(3, 5)]
    real = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    one, other = network(*tokens, real).hidden, fused(*tokens, real).hidden
    assert len(attention_calls) == (6 if name == "both" else 2)
    assert any(isinstance(part, TrainingResidual) for part in fused.modules())
    assert len(activation_calls) == (4 if name == "both" else 2)
    torch.testing.assert_close(other.double(), one, rtol=1e-4, atol=1e-4)
    slope = torch.randn_like(one)
    gradients = [
        torch.autograd.grad((out * slope.to(out.dtype)).sum(), learnt(each), allow_unused=True)
        for each, out in ((network, one), (fused, other))
    ]
    for exact, mine in zip(*gradients, strict=True):
        if exact is not None:
            assert (mine.double() - exact).abs().max() <= 1e-4 * (1 + exact.abs().max())
