"""The output for an input is independent of the other inputs in the batch, and the same with and without a cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from promises.mixes import OPTIONS, assert_same, make_inputs, single_result
from unit.generation.networks import KINDS, network

from regard.generation import BatchSize, generate, stream
from regard.generation.result import DecodingResult
from regard.transformer.decoder_state import UncachedState

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("native", ["1", "0"], ids=["native", "torch"])
@pytest.mark.parametrize("precision", ["fp64", "float32", "int8"])
@pytest.mark.parametrize("mixes", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_results_are_independent_of_the_batch(mixes, precision, native):
    """Random mixes of inputs, orders, options and batch sizes."""
    if precision == "fp64" and native == "0":
        pytest.skip("float64 has no native kernels")
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    run = subprocess.run(
        [sys.executable, str(TESTS / "promises" / "mixes.py"), str(mixes), precision],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "REGARD_NATIVE": native},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == f"{mixes} mixes: all results as in a batch of one\n"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("memory", "two streams")])
@pytest.mark.parametrize("option", [1, 3, 4, 6, 7])
def test_the_cache_changes_nothing(kind, option, monkeypatch):
    """Transformer-XL's memory is part of its definition, and XLNet has no cache: see test_generation.py of parity."""
    inputs = [make_inputs(kind, number) for number in range(4)]
    cached = list(generate(network(kind), inputs, OPTIONS[option], batch_size=BatchSize(sequences=8)))
    monkeypatch.setattr(type(network(kind)), "new_decoder_state", lambda *args: UncachedState(*args))
    uncached = list(generate(network(kind), inputs, OPTIONS[option], batch_size=BatchSize(sequences=8)))
    for result, expected in zip(cached, uncached, strict=True):
        assert_same(result, expected)


@pytest.mark.parametrize("kind", ["rotary", "translating"])
@pytest.mark.parametrize("option", [0, 4, 5, 6, 7])
def test_streamed_tokens_never_change(kind, option):
    inputs = [make_inputs(kind, number) for number in range(4)]
    streamed, results = {}, {}
    for event in stream(network(kind), inputs, OPTIONS[option], batch_size=BatchSize(sequences=12), buffer_size=3):
        if isinstance(event, DecodingResult):
            results[event.index] = event
        else:
            assert event.index not in results
            streamed.setdefault((event.index, event.sample_index), []).extend(event.tokens)
    assert sorted(results) == list(range(len(inputs)))
    for index, result in results.items():
        assert_same(result, single_result(kind, index, option))
        num_samples = OPTIONS[option].search.num_samples
        for sample_index in range(num_samples):
            expected = result.hypotheses[sample_index] if num_samples > 1 else result.best
            assert tuple(streamed[index, sample_index]) == expected.tokens
