"""A network with fused modules computes the same as without."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from unit.transformer.small_networks import VOCABULARY, close, decoder_only, encoder_decoder, encoder_only, made, text

from regard.training.modules.dropout import Dropout
from regard.training.modules.fused_modules import TrainingKernel, fuse_modules, lm_head_loss
from regard.transformer import config
from regard.transformer.attention_kernel import AttentionKernel
from regard.transformer.residual import Residual

NETWORKS = {
    "encoder": encoder_only("learned"),
    "decoder": decoder_only("rotary"),
    "both": encoder_decoder("sinusoidal"),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("short", [0, 10**6])
def test_a_quickened_network_computes_the_same(name, short, monkeypatch):
    network = made(NETWORKS[name])
    monkeypatch.setattr("regard.training.modules.fused_modules.MAX_EAGER_SCORES", short)
    quick = copy.deepcopy(network)
    fuse_modules(quick)
    assert not any(type(part) in (nn.Dropout, AttentionKernel) for part in quick.modules())
    assert [name for name, _ in quick.named_parameters()] == [name for name, _ in network.named_parameters()]
    tokens = [text(3, 6)] if name != "both" else [text(3, 6), text(3, 5)]
    real = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    for mask in (None, real):
        one, other = (each(*tokens, mask).hidden for each in (network, quick))
        close(one, other, 1e-12)
        weights = torch.randn_like(one)
        gradients = [
            torch.autograd.grad((out * weights).sum(), list(each.parameters()), allow_unused=True)
            for each, out in ((network, one), (quick, other))
        ]
        for mine, plain in zip(*gradients, strict=True):
            if mine is not None:
                close(mine, plain, 1e-10)


@pytest.mark.parametrize("order", [config.NormOrder.PRE, config.NormOrder.POST])
def test_residual_of_a_sublayer_under_autocast(order):
    """The kernel reads float32, and under autocast the sublayer returns bfloat16."""
    linear, results = nn.Linear(8, 8), []
    residual = Residual(order, config.LayerNorm(epsilon=1e-5), 8, 0.5)
    holder = nn.ModuleList([residual])
    fuse_modules(holder)
    x = torch.randn(6, 8)

    def sublayer(value, convert=False):
        with torch.autocast("cpu", torch.bfloat16):
            output = linear(value)
        assert output.dtype == torch.bfloat16
        return output.float() if convert else output

    for convert in (False, True):
        torch.manual_seed(1)
        output = holder[0].train()(x, partial(sublayer, convert=convert))
        output.square().sum().backward()
        results.append((output.detach(), linear.weight.grad.clone()))
        linear.zero_grad()
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
    assert results[0][0].isfinite().all()


def test_dropout_keeps_its_places_and_rates():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other, self.kernel = nn.Dropout(0.25), nn.Dropout(0.5), AttentionKernel(1.0, 0.125)

    parts = Parts().eval()
    fuse_modules(parts)
    assert isinstance(parts.one, Dropout)
    assert [part.drop_threshold / 65536 for part in (parts.one, parts.other)] == [0.25, 0.5]
    assert isinstance(parts.kernel, TrainingKernel)
    assert parts.kernel.drop.drop_threshold / 65536 == 0.125
    assert not any(part.training for part in parts.modules())


def test_attention_weights_are_dropped_in_training():
    kernel = TrainingKernel(1.0, 0.5).train()
    torch.manual_seed(0)
    query, value = torch.zeros(1, 1, 2000, 4), torch.eye(4)[None, None]
    answer = kernel(query, torch.zeros(1, 1, 4, 4), value, None, None)  # each weight is 1/4, or dropped, or doubled
    assert set(answer.unique().tolist()) == {0.0, 0.5}
    assert 0.45 < (answer == 0).float().mean() < 0.55


def test_the_loss_of_a_head_is_that_of_its_scores():
    transform = config.Transform(activation=config.Activation.GELU, norm=None)
    head = config.LanguageModel(
        vocabulary=VOCABULARY,
        transform=transform,
        scale=0.7,
        weights=config.Weights.OWN,
        bias=config.OutputBias.LEARNT,
    )
    network = made(decoder_only("rotary", head=head))
    tokens = text(3, 6)
    output = network(tokens)
    expected = functional.cross_entropy(output.logits.flatten(0, 1), tokens.flatten(), reduction="sum")
    hidden = network.without_head()(tokens).hidden.flatten(0, 1)
    close(lm_head_loss(network.head, hidden, tokens.flatten()), expected, 1e-12)
