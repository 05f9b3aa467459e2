"""Mixes of texts, run by test_generation.py in a Python of its own: quick, for no shapes are checked there.

python tests/promises/mixes.py 1000            in float64
python tests/promises/mixes.py 1000 int8       prepared by the engine: fp32 or int8
"""

import copy
import functools
import random
import sys

from unit.generation.networks import KINDS, network, translates

from regard.engine import Precision, prepare
from regard.generation import (
    AtOnce,
    Beam,
    Forbid,
    Given,
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
)

TEXTS = 6
PRECISION = sys.argv[2] if len(sys.argv) > 2 and sys.argv[0] == __file__ else "fp64"
CLOSE = {"fp64": 1e-9, "fp32": 1e-4, "int8": 1e-2}[PRECISION]
"""By how much scores may differ. In bytes, a last digit may decide to which of two levels a number goes."""
SETTINGS = [
    Settings(end=[2, 5, 6], limit=4),
    Settings(end=[2, 5, 6], limit=4, rules=[NoRepeat(1), RepetitionPenalty(1.4)]),
    Settings(end=[2], limit=4, rules=[MinLength(3, [2]), Forbid([[4], [7, 8]])], stop=[Repeat(size=2, times=2)]),
    Settings(search=Sample(seed=1), end=[2, 5, 6], limit=4, rules=[Temperature(1.5), TopK(9)]),
    Settings(search=Sample(seed=2, count=3), end=[2, 5, 6, 9], limit=3, rules=[TopP(0.9)]),
    Settings(search=Beam(size=3), end=[2, 5, 6], limit=4),
    Settings(search=Beam(size=2, best=2, length_penalty=0.3, until=Until.FULL), end=[2, 5, 6, 9], limit=4),
    Settings(search=Beam(size=4, best=3, until=Until.IMPOSSIBLE), end=[2, 5], limit=3, rules=[NoRepeat(2)]),
]


@functools.cache
def writer(kind):
    """The network, as it is or prepared."""
    if PRECISION == "fp64":
        return network(kind)
    return prepare(copy.deepcopy(network(kind)).float(), Precision(PRECISION))


@functools.cache
def given(kind, number):
    draw = random.Random(number)
    source = [draw.randrange(23) for _ in range(1 + number % 5)] if translates(kind) else None
    return Given([draw.randrange(23) for _ in range(1 + number * 5 % 8)], source)


@functools.cache
def alone(kind, number, setting):
    return next(generate(writer(kind), [given(kind, number)], SETTINGS[setting]))


def same(one, other):
    """The same tokens for the same reasons, the same scores but for rounding."""
    assert (one.limit, len(one.hypotheses)) == (other.limit, len(other.hypotheses))
    for mine, others in zip(one.hypotheses, other.hypotheses, strict=True):
        assert (mine.tokens, mine.stopped) == (others.tokens, others.stopped)
        assert abs(mine.score - others.score) < CLOSE
        assert all(abs(a - b) < CLOSE for a, b in zip(mine.token_scores, others.token_scores, strict=True))


def mix(kind, setting, draw):
    """Some texts in some order, some of them written at once: each must come out as it does alone."""
    numbers = [draw.randrange(TEXTS) for _ in range(draw.randint(2, 5))]
    at_once = AtOnce(rows=draw.choice([1, 6, 9, 12, 40]), tokens=draw.choice([None, 40, 100]))
    texts = [given(kind, number) for number in numbers]
    window = draw.choice([1, 3, 100])
    found = list(generate(writer(kind), texts, SETTINGS[setting], at_once=at_once, window=window))
    assert [result.number for result in found] == list(range(len(numbers)))
    for number, result in zip(numbers, found, strict=True):
        same(result, alone(kind, number, setting))


if __name__ == "__main__":
    mixes, chance = int(sys.argv[1]), random.Random(0)
    for turn in range(mixes):
        mix(KINDS[turn % len(KINDS)], chance.randrange(len(SETTINGS)), chance)
    print(f"{mixes} mixes, each text as alone")
