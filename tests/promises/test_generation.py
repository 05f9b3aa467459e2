"""A text is continued in the same way alone and in any company; with a cache and without."""

import functools
import random

import pytest
from unit.generation.networks import KINDS, network, translates

from regard.generation import (
    AtOnce,
    Beam,
    Forbid,
    Given,
    Greedy,
    MinLength,
    NoRepeat,
    Repeat,
    RepetitionPenalty,
    Sample,
    Settings,
    Temperature,
    TopK,
    TopP,
    Until,
    generate,
    reading,
    stream,
)
from regard.generation.result import Result

MIXES = 1000
TEXTS = 12
SETTINGS = [
    Settings(end=[2, 5, 6], limit=6),
    Settings(end=[2, 5, 6], limit=5, rules=[NoRepeat(1), RepetitionPenalty(1.4)]),
    Settings(end=[2], limit=4, rules=[MinLength(3, [2]), Forbid([[4], [7, 8]])], stop=[Repeat(size=2, times=2)]),
    Settings(search=Sample(seed=1), end=[2, 5, 6], limit=7, rules=[Temperature(1.5), TopK(9)]),
    Settings(search=Sample(seed=2, count=3), end=[2, 5, 6, 9], limit=5, rules=[TopP(0.9)]),
    Settings(search=Beam(size=3), end=[2, 5, 6], limit=6),
    Settings(search=Beam(size=2, best=2, length_penalty=0.3, until=Until.FULL), end=[2, 5, 6, 9], limit=5),
    Settings(search=Beam(size=4, best=3, until=Until.IMPOSSIBLE), end=[2, 5], limit=4, rules=[NoRepeat(2)]),
]


@functools.cache
def given(kind, number):
    draw = random.Random(number)
    source = [draw.randrange(23) for _ in range(1 + number % 7)] if translates(kind) else None
    return Given([draw.randrange(23) for _ in range(1 + number * 5 % 8)], source)


@functools.cache
def alone(kind, number, setting):
    return next(generate(network(kind), [given(kind, number)], SETTINGS[setting]))


def same(one, other):
    assert one.limit == other.limit
    for mine, others in zip(one.hypotheses, other.hypotheses, strict=True):
        assert mine.tokens == others.tokens
        assert mine.stopped is others.stopped
        assert mine.score == pytest.approx(others.score, abs=1e-9)
        assert mine.token_scores == pytest.approx(others.token_scores, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_any_company_changes_nothing(kind):
    """A thousand mixes of texts, their order, settings, and how many of them are written at once."""
    draw = random.Random(kind)
    for mix in range(MIXES // len(KINDS) + 1):
        setting = mix % len(SETTINGS)
        numbers = [draw.randrange(TEXTS) for _ in range(draw.randint(2, 7))]
        at_once = AtOnce(rows=draw.choice([1, 4, 6, 9, 40]), tokens=draw.choice([None, 40, 100]))
        found = list(
            generate(
                network(kind),
                [given(kind, number) for number in numbers],
                SETTINGS[setting],
                at_once=at_once,
                window=draw.choice([1, 3, 100]),
            )
        )
        assert [result.number for result in found] == list(range(len(numbers)))
        for number, result in zip(numbers, found, strict=True):
            same(result, alone(kind, number, setting))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("memory", "two streams")])
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_with_a_cache_is_without(kind, setting, monkeypatch):
    """Transformer-XL's memory is part of its definition, and XLNet has no cache: see test_generation.py of parity."""
    texts = [given(kind, number) for number in range(5)]
    cached = list(generate(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=8)))
    monkeypatch.setattr(reading, "begin", reading.Rereading)
    again = list(generate(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=8)))
    for one, other in zip(cached, again, strict=True):
        same(one, other)


@pytest.mark.parametrize("kind", ["rotary", "translating", "memory"])
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_a_stream_takes_nothing_back(kind, setting):
    texts = [given(kind, number) for number in range(6)]
    told, results = {}, {}
    for event in stream(network(kind), texts, SETTINGS[setting], at_once=AtOnce(rows=12), window=4):
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


def test_memory_is_steady_however_long_the_file(monkeypatch):
    """No more inputs are read than two windows ahead of the results."""
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield given("rotary", read % TEXTS)

    results = generate(network("rotary"), endless(), Settings(search=Greedy(), end=[2, 5], limit=6), window=8)
    for number in range(60):
        assert next(results).number == number
        assert read - number <= 2 * 8 + 1
