"""Standard deviations are measured on matrices large enough for a sampling error of less than a tenth."""

import math
from dataclasses import replace

import pytest
import torch
from unit.transformer.small_networks import BLOCK, CROSS, GATED, WORDS, encoder_decoder, stack

from regard.transformer import config
from regard.transformer.config import Weights
from regard.transformer.initialization import initialize
from regard.transformer.mask import Causal
from regard.transformer.network import build

DIM, INNER, HEADS, HEAD, WORDS_KNOWN, LAYERS = 90, 150, 5, 26, 400, 3
ATTENTION = config.Attention(
    heads=HEADS, key_value_heads=HEADS, head_dim=HEAD, scale=1.0, bias=True, output_bias=True, position=None
)


def designed(scheme):
    """An encoder-decoder with all kinds of parameters and an untied output layer."""
    block = replace(BLOCK, attention=ATTENTION, feedforward=replace(GATED, dim=INNER))
    small = encoder_decoder("learned")
    tokens = config.Tokens(vocabulary=WORDS_KNOWN, padding=None)
    position = config.Learned(length=200, offset=0)
    buckets = config.RelativeBuckets(buckets=64, distance=128)
    return replace(
        small,
        model_dim=DIM,
        source=replace(small.source, tokens=tokens, dim=DIM, position=position, segments=300),
        target=replace(small.target, tokens=tokens, dim=DIM, position=position),
        encoder=replace(stack(), layers=LAYERS, blocks=(block,), position=buckets),
        decoder=replace(
            stack(),
            layers=LAYERS,
            blocks=(replace(CROSS, attention=ATTENTION, cross_attention=ATTENTION, feedforward=block.feedforward),),
            mask=Causal(),
        ),
        head=replace(WORDS, vocabulary=WORDS_KNOWN, weights=Weights.OWN),
        initialization=scheme,
    )


def kind(name):
    """The kind of a parameter, by its name: norm, bias, table, buckets, query, key, value, output, up, gate or down."""
    *path, owner, last = name.split(".")
    if last == "bias" or "norm" in owner:
        return "bias" if last == "bias" else "norm"
    if owner in ("tokens", "segments") or name == "head.output.weight":
        return "tokens"
    if owner == "position":
        return "buckets" if "encoder" in path else "positions"
    return owner


SCHEMES = {
    "normal": (config.Normal(deviation=0.02), lambda _: 0.02),
    "scaled": (
        config.ScaledNormal(deviation=0.05),
        lambda kind: 0.05 / math.sqrt(2 * LAYERS) if kind in ("output", "down") else 0.05,
    ),
    "fan in": (
        config.FanIn(factor=0.8),
        {
            "tokens": 0.8,
            "positions": 0.8 * DIM**-0.5,
            "buckets": 0.8 * DIM**-0.5,
            "query": 0.8 * (DIM * HEAD) ** -0.5,
            "key": 0.8 * DIM**-0.5,
            "value": 0.8 * DIM**-0.5,
            "output": 0.8 * (HEADS * HEAD) ** -0.5,
            "up": 0.8 * DIM**-0.5,
            "gate": 0.8 * DIM**-0.5,
            "down": 0.8 * INNER**-0.5,
        }.__getitem__,
    ),
    "glorot": (
        config.Glorot(),
        {
            "tokens": DIM**-0.5,
            "positions": DIM**-0.5,
            "buckets": HEADS**-0.5,
            **dict.fromkeys(["query", "key", "value", "output"], math.sqrt(2 / (DIM + HEADS * HEAD))),
            **dict.fromkeys(["up", "gate", "down"], math.sqrt(2 / (DIM + INNER))),
        }.__getitem__,
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_parameter_starts_as_its_scheme_says(scheme):
    design, deviation = SCHEMES[scheme]
    covered = set()
    for name, value in build(designed(design), seed=1).named_parameters():
        what = kind(name)
        covered.add(what)
        if what in ("norm", "bias"):
            assert torch.equal(value, torch.full_like(value, float(what == "norm"))), name
            continue
        expected, chance = deviation(what), 1 / math.sqrt(2 * value.numel())
        assert value.std().item() == pytest.approx(expected, rel=5 * chance), name
        assert abs(value.mean().item()) < 5 * expected / math.sqrt(value.numel()), name
        uniform = scheme == "glorot" and what not in ("tokens", "positions", "buckets")
        largest = value.abs().max().item() / expected
        if uniform:
            assert 0.99 * math.sqrt(3) < largest <= math.sqrt(3) * 1.0001, name
        elif value.numel() > 1000:
            assert largest > 2.5, name
    assert covered == {
        "norm",
        "bias",
        "tokens",
        "positions",
        "buckets",
        "query",
        "key",
        "value",
        "output",
        "up",
        "gate",
        "down",
    }


def test_no_two_matrices_are_alike():
    drawn = [value for name, value in build(designed(SCHEMES["normal"][0])).named_parameters() if value.ndim == 2]
    assert len({value[0, 0].item() for value in drawn}) == len(drawn)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_seed_gives_one_network_and_another_seed_another(scheme):
    design = designed(SCHEMES[scheme][0])
    one, same, other = (dict(build(design, seed=seed).named_parameters()) for seed in (1, 1, 2))
    for name, value in one.items():
        assert torch.equal(value, same[name])
        assert torch.equal(value, other[name]) == (kind(name) in ("norm", "bias"))


def test_the_numbers_do_not_depend_on_the_dtype():
    design = designed(SCHEMES["glorot"][0])
    narrow, wide = build(design, seed=1), build(design, seed=1, dtype=torch.float64)
    for name, value in narrow.named_parameters():
        assert torch.equal(value.double(), wide.get_parameter(name))


def test_only_these_are_drawn_and_the_others_left_as_they_are():
    design = designed(SCHEMES["normal"][0])
    made = build(design, seed=1)
    with torch.no_grad():
        for value in made.parameters():
            value.fill_(7.0)
    chosen = {"head.output.weight", "encoder.blocks.1.attention.project.key.weight", "decoder.final_norm.weight"}
    initialize(made, design, seed=2, only=chosen)
    changed = {name for name, value in made.named_parameters() if not torch.equal(value, torch.full_like(value, 7.0))}
    assert changed == chosen
    assert made.head.output.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_building_does_not_touch_the_global_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(encoder_decoder(), seed=9)
    assert torch.equal(torch.rand(3), expected)
