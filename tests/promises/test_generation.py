"""A text is continued in the same way alone and in any company; with a cache and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from promises.mixes import SETTINGS, alone, given, same
from unit.generation.networks import KINDS, network

from regard.generation import AtOnce, decoder_state, generate, stream
from regard.generation.result import Result

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("native", ["1", "0"], ids=["compiled", "by torch"])
@pytest.mark.parametrize("precision", ["fp64", "fp32", "int8"])
@pytest.mark.parametrize("mixes", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_any_company_changes_nothing(mixes, precision, native):
    """Mixes of texts, their order, settings, and how many of them are written at once."""
    if precision == "fp64" and native == "0":
        pytest.skip("nothing is compiled for float64")
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    run = subprocess.run(
        [sys.executable, str(TESTS / "promises" / "mixes.py"), str(mixes), precision],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "REGARD_NATIVE": native},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == f"{mixes} mixes, each text as alone\n"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("memory", "two streams")])
@pytest.mark.parametrize("setting", [1, 3, 4, 6, 7])
def test_with_a_cache_is_without(kind, setting, monkeypatch):
    """Transformer-XL's memory is part of its definition, and XLNet has no cache: see test_generation.py of parity."""
    texts = [given(kind, number) for number in range(4)]
    cached = list(generate(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=8)))
    monkeypatch.setattr(decoder_state, "begin", decoder_state.Rereading)
    again = list(generate(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=8)))
    for one, other in zip(cached, again, strict=True):
        same(one, other)


@pytest.mark.parametrize("kind", ["rotary", "translating"])
@pytest.mark.parametrize("setting", [0, 4, 5, 6, 7])
def test_a_stream_takes_nothing_back(kind, setting):
    texts = [given(kind, number) for number in range(4)]
    told, results = {}, {}
    for event in stream(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=12), window=3):
        if isinstance(event, Result):
            results[event.number] = event
        else:
            assert event.number not in results
            told.setdefault((event.number, event.sample), []).extend(event.tokens)
    assert sorted(results) == list(range(len(texts)))
    for number, result in results.items():
        same(result, alone(kind, number, setting))
        samples = SETTINGS[setting].search.count
        for sample in range(samples):
            wanted = result.hypotheses[sample] if samples > 1 else result.best
            assert tuple(told[number, sample]) == wanted.tokens
