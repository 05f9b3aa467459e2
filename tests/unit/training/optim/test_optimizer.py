import copy

import pytest
import torch

from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.training.optim.optimizer import (
    AdafactorConfig,
    AdamWConfig,
    MuonConfig,
    Optimizers,
    freeze,
    parameter_groups,
)
from regard.transformer.network import build

SIZES = dict(vocab_size=20, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=12)


def translator():
    return build(
        transformer_2017(vocabulary=20, layers=(2, 2), model_dim=8, heads=2, inner_dim=12, dropout=0.0), seed=1
    )


def encoder():
    return build(FAMILIES["bert"].read_config(SIZES, "BertForMaskedLM")[0], seed=1)


def give_gradients(network, seed):
    draw = torch.Generator().manual_seed(seed)
    for value in network.parameters():
        value.grad = torch.randn(value.shape, generator=draw, dtype=value.dtype) if value.requires_grad else None


def steps(network, optimizers, count=3, factor=0.5):
    for number in range(count):
        give_gradients(network, number)
        optimizers.step(factor)


def same(one, other):
    pairs = zip(one.named_parameters(), other.parameters(), strict=True)
    return [name for (name, a), b in pairs if not torch.equal(a, b)]


def by_hand_adamw(value, gradients, rate, betas, epsilon, decay):
    """Algorithm 2 of Loshchilov and Hutter (2019)."""
    mean, square = torch.zeros_like(value), torch.zeros_like(value)
    for t, gradient in enumerate(gradients, 1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        corrected, scale = mean / (1 - betas[0] ** t), (square / (1 - betas[1] ** t)).sqrt() + epsilon
        value = value - rate * (corrected / scale + decay * value)
    return value


def test_adamw_is_the_algorithm_of_the_paper():
    network = translator().double()
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    drawn = {name: [] for name in before}
    optimizers = Optimizers(network, AdamWConfig(lr=0.02, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3))
    for number in range(4):
        give_gradients(network, number)
        for name, value in network.named_parameters():
            drawn[name].append(value.grad)
        optimizers.step(0.5)
    for name, value in network.named_parameters():
        if not value.requires_grad:
            continue
        decay = 0.3 if value.ndim > 1 else 0.0  # norms and biases have no weight decay
        expected = by_hand_adamw(before[name], drawn[name], 0.01, (0.8, 0.9), 1e-6, decay)
        torch.testing.assert_close(value.detach(), expected, rtol=1e-10, atol=1e-12)


def test_adafactor_is_torchs():
    ours, theirs = translator(), translator()
    matrices = [value for value in theirs.parameters() if value.requires_grad and value.ndim > 1]
    vectors = [value for value in theirs.parameters() if value.requires_grad and value.ndim == 1]
    oracle = torch.optim.Adafactor(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=0.01
    )
    optimizers = Optimizers(ours, AdafactorConfig(lr=0.02, weight_decay=0.1))
    for number in range(3):
        give_gradients(ours, number), give_gradients(theirs, number)
        optimizers.step(0.5), oracle.step()
    assert same(ours, theirs) == []


class PlainMuon:
    """The definition, matrix by matrix, in float64."""

    def __init__(self, weights, rate, momentum, decay):
        self.rate, self.momentum, self.decay = rate, momentum, decay
        self.means = [(weight, torch.zeros_like(weight, dtype=torch.float64)) for weight in weights]

    @torch.no_grad()
    def step(self):
        for weight, mean in self.means:
            gradient = weight.grad.double()
            mean.mul_(self.momentum).add_((1 - self.momentum) * gradient)
            x = self.momentum * mean + (1 - self.momentum) * gradient
            x = x / x.norm()
            for _ in range(5):
                a = x @ x.T
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            wide = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.copy_(weight * (1 - self.rate * self.decay) - self.rate * wide * x)


def test_muon_is_torchs_but_for_its_sixteen_bits():
    ours, theirs = encoder(), encoder()
    optimizers = Optimizers(ours, MuonConfig(lr=0.04, momentum=0.9))
    inside = [value for name, value in theirs.named_parameters() if ".blocks." in name and value.ndim == 2]
    muon = torch.optim.Muon(inside, lr=0.04, momentum=0.9, weight_decay=0.0)
    before = [value.detach().clone() for value in inside]
    give_gradients(ours, 0), give_gradients(theirs, 0)
    optimizers.step(1.0), muon.step()
    found = [value for name, value in ours.named_parameters() if ".blocks." in name and value.ndim == 2]
    for start, one, other in zip(before, found, inside, strict=True):
        mine, its = (one - start).detach(), (other - start).detach()
        assert (mine - its).norm() < 0.05 * its.norm()


def test_muon_in_sixteen_bits_errs_as_torchs_does():
    ours, theirs = encoder().float(), encoder().float()
    optimizers = Optimizers(ours, MuonConfig(lr=0.04, momentum=0.9), matmul_dtype=torch.bfloat16)
    inside = [value for name, value in theirs.named_parameters() if ".blocks." in name and value.ndim == 2]
    muon = torch.optim.Muon(inside, lr=0.04, momentum=0.9, weight_decay=0.0)
    exact = Optimizers(other := encoder().float(), MuonConfig(lr=0.04, momentum=0.9))
    before = [value.detach().clone() for value in inside]
    for network in (ours, theirs, other):
        give_gradients(network, 0)
    optimizers.step(1.0), muon.step(), exact.step(1.0)
    changes = [
        [value.detach() for name, value in network.named_parameters() if ".blocks." in name and value.ndim == 2]
        for network in (ours, theirs, other)
    ]
    for start, mine, its, plain in zip(before, *changes, strict=True):
        assert 0 < (mine - plain).norm() < 1.5 * (its - plain).norm()  # about as far from the exact result as torch's
        assert (mine - its).norm() < 0.05 * (its - start).norm()


def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest():
    ours, theirs = encoder(), encoder()
    design = MuonConfig(lr=0.04, momentum=0.9, weight_decay=0.1, adamw=AdamWConfig(lr=0.002, weight_decay=0.2))
    inside = [value for name, value in theirs.named_parameters() if ".blocks." in name and value.ndim == 2]
    tables = [value for name, value in theirs.named_parameters() if ".blocks." not in name and value.ndim == 2]
    vectors = [value for value in theirs.parameters() if value.ndim == 1]
    assert len(inside) == 3 * 6
    muon = PlainMuon(inside, rate=0.02, momentum=0.9, decay=0.1)
    adamw = torch.optim.AdamW(
        [{"params": tables, "weight_decay": 0.2}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.001,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )
    optimizers = Optimizers(ours, design)
    for number in range(3):
        give_gradients(ours, number), give_gradients(theirs, number)
        optimizers.step(0.5), muon.step(), adamw.step()
    for name, value in ours.named_parameters():
        torch.testing.assert_close(value, theirs.get_parameter(name), rtol=1e-4, atol=1e-5, msg=name)


def test_muon_makes_the_update_nearly_orthogonal():
    """Jordan 2024: the singular values of an update are close to 1, whatever those of the gradient are."""
    network = encoder()
    optimizers = Optimizers(network, MuonConfig(lr=1.0, weight_decay=0.0))
    weight = network.get_parameter("encoder.blocks.1.feedforward.up.weight")
    before = weight.detach().clone()
    give_gradients(network, 0)
    optimizers.step(1.0)
    change = (weight.detach() - before) / max(1, weight.shape[0] / weight.shape[1]) ** 0.5
    singular = torch.linalg.svdvals(change.double())
    assert float(singular.min()) > 0.5
    assert float(singular.max()) < 1.5


def test_every_parameter_is_in_one_group():
    for network in (translator(), encoder()):
        for design in (AdamWConfig(), AdafactorConfig(), MuonConfig()):
            names = [name for group in parameter_groups(network, design, 0.9) for name in group.names]
            assert sorted(names) == sorted(n for n, value in network.named_parameters() if value.requires_grad)


def test_layers_learn_slower_the_lower_they_are():
    speeds = {name: group.lr_scale for group in parameter_groups(encoder(), AdamWConfig(), 0.5) for name in group.names}
    assert speeds["head.transform.dense.weight"] == 1
    assert speeds["encoder.blocks.2.attention.output.weight"] == 0.5
    assert speeds["encoder.blocks.0.feedforward.up.bias"] == 0.125
    assert speeds["embedding.tokens.weight"] == 0.0625


@torch.no_grad()
def test_layer_wise_rates_reach_the_parameters():
    """With one step of Adam from zero moments, every entry changes by its learning rate."""
    network = encoder()
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    optimizers = Optimizers(network, AdamWConfig(lr=1e-3), layer_decay=0.5)
    give_gradients(network, 0)
    optimizers.step(1.0)
    moved = {name: float((value - before[name]).abs().max()) for name, value in network.named_parameters()}
    assert moved["head.transform.dense.weight"] == pytest.approx(1e-3, rel=1e-3)
    assert moved["encoder.blocks.0.feedforward.up.weight"] == pytest.approx(1.25e-4, rel=1e-3)


def test_frozen_parts_do_not_change():
    network = encoder()
    freeze(network, ["embedding", "encoder.blocks.1"])
    before = copy.deepcopy(network)
    optimizers = Optimizers(network, AdamWConfig(weight_decay=0.5))
    steps(network, optimizers)
    changed = set(same(network, before))
    assert changed
    assert not any(name.startswith(("embedding.", "encoder.blocks.1.")) for name in changed)


def test_a_part_that_is_not_there_cannot_be_frozen():
    with pytest.raises(ValueError, match=r"no module 'encoder.blocks.7'; top-level modules: embedding, encoder, head"):
        freeze(encoder(), ["encoder.blocks.7"])


def test_a_prefix_of_a_name_is_no_part():
    """`encoder.blocks.1` is not `encoder.blocks.10`."""
    network = build(FAMILIES["bert"].read_config({**SIZES, "num_hidden_layers": 11}, "BertForMaskedLM")[0])
    freeze(network, ["encoder.blocks.1"])
    assert network.get_parameter("encoder.blocks.10.feedforward.up.bias").requires_grad


def test_nothing_left_to_train():
    network = encoder()
    freeze(network, ["embedding", "encoder", "head"])
    with pytest.raises(ValueError, match=r"no trainable parameters: training\.freeze covers the whole network"):
        Optimizers(network, AdamWConfig())


@pytest.mark.parametrize("design", [AdamWConfig(weight_decay=0.1), AdafactorConfig(), MuonConfig()])
def test_what_is_remembered_can_be_put_back(design):
    """Three steps equal one step, a new optimizer with the state of the old one, and two more steps."""
    ours, theirs = encoder(), encoder()
    steps(theirs, Optimizers(theirs, design), 3)
    first = Optimizers(ours, design)
    give_gradients(ours, 0)
    first.step(0.5)
    kept = {name: value.clone() for name, value in first.state_dict().items()}
    second = Optimizers(ours, design)
    second.load_state_dict(kept)
    for number in (1, 2):
        give_gradients(ours, number)
        second.step(0.5)
    assert same(ours, theirs) == []
