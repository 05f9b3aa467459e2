"""Random mixes of inputs. test_generation.py runs this in a process of its own, where no shapes are checked: faster.

python tests/promises/mixes.py 1000            in float64
python tests/promises/mixes.py 1000 int8       compiled by the engine: float32 or int8
"""

import copy
import functools
import random
import sys

from unit.generation.networks import KINDS, network, translates

from regard.engine import Precision, compile
from regard.generation import (
    BatchSize,
    BeamSearch,
    DecodingOptions,
    EarlyStopping,
    Inputs,
    MinNewTokens,
    NoRepeatNgram,
    RandomSampling,
    Repetition,
    RepetitionPenalty,
    SuppressSequences,
    Temperature,
    TopK,
    TopP,
    generate,
)

NUM_INPUTS = 6
PRECISION = sys.argv[2] if len(sys.argv) > 2 and sys.argv[0] == __file__ else "fp64"
TOLERANCE = {"fp64": 1e-9, "float32": 1e-4, "int8": 1e-2}[PRECISION]
"""Tolerance of the scores. In int8, a difference in the last digit may change the rounding of a value."""
OPTIONS = [
    DecodingOptions(eos_token_ids=[2, 5, 6], max_new_tokens=4),
    DecodingOptions(
        eos_token_ids=[2, 5, 6], max_new_tokens=4, logits_processors=[NoRepeatNgram(1), RepetitionPenalty(1.4)]
    ),
    DecodingOptions(
        eos_token_ids=[2],
        max_new_tokens=4,
        logits_processors=[MinNewTokens(3, [2]), SuppressSequences([[4], [7, 8]])],
        stopping_criteria=[Repetition(max_ngram_size=2, repeats=2)],
    ),
    DecodingOptions(
        search=RandomSampling(seed=1),
        eos_token_ids=[2, 5, 6],
        max_new_tokens=4,
        logits_processors=[Temperature(1.5), TopK(9)],
    ),
    DecodingOptions(
        search=RandomSampling(seed=2, num_samples=3),
        eos_token_ids=[2, 5, 6, 9],
        max_new_tokens=3,
        logits_processors=[TopP(0.9)],
    ),
    DecodingOptions(search=BeamSearch(beam=3), eos_token_ids=[2, 5, 6], max_new_tokens=4),
    DecodingOptions(
        search=BeamSearch(beam=2, n_best=2, length_penalty=0.3, early_stopping=EarlyStopping.WHEN_FULL),
        eos_token_ids=[2, 5, 6, 9],
        max_new_tokens=4,
    ),
    DecodingOptions(
        search=BeamSearch(beam=4, n_best=3, early_stopping=EarlyStopping.NEVER),
        eos_token_ids=[2, 5],
        max_new_tokens=3,
        logits_processors=[NoRepeatNgram(2)],
    ),
]


@functools.cache
def tested_network(kind):
    """The network in float64, or compiled."""
    if PRECISION == "fp64":
        return network(kind)
    return compile(copy.deepcopy(network(kind)).float(), Precision(PRECISION))


@functools.cache
def make_inputs(kind, number):
    rng = random.Random(number)
    source = [rng.randrange(23) for _ in range(1 + number % 5)] if translates(kind) else None
    return Inputs([rng.randrange(23) for _ in range(1 + number * 5 % 8)], source)


@functools.cache
def single_result(kind, number, option):
    """The result of one input in a batch of its own."""
    return next(generate(tested_network(kind), [make_inputs(kind, number)], OPTIONS[option]))


def assert_same(result, expected):
    """The same tokens and stop reasons, and the same scores up to rounding."""
    assert (result.max_new_tokens, len(result.hypotheses)) == (expected.max_new_tokens, len(expected.hypotheses))
    for ours, reference in zip(result.hypotheses, expected.hypotheses, strict=True):
        assert (ours.tokens, ours.stopped) == (reference.tokens, reference.stopped)
        assert abs(ours.score - reference.score) < TOLERANCE
        assert all(abs(a - b) < TOLERANCE for a, b in zip(ours.token_scores, reference.token_scores, strict=True))


def check_mix(kind, option, rng):
    """Some inputs in random order, with a random batch size: each result must be the same as in a batch of its own."""
    numbers = [rng.randrange(NUM_INPUTS) for _ in range(rng.randint(2, 5))]
    batch_size = BatchSize(sequences=rng.choice([1, 6, 9, 12, 40]), tokens=rng.choice([None, 40, 100]))
    inputs = [make_inputs(kind, number) for number in numbers]
    buffer_size = rng.choice([1, 3, 100])
    results = list(
        generate(tested_network(kind), inputs, OPTIONS[option], batch_size=batch_size, buffer_size=buffer_size)
    )
    assert [result.index for result in results] == list(range(len(numbers)))
    for number, result in zip(numbers, results, strict=True):
        assert_same(result, single_result(kind, number, option))


if __name__ == "__main__":
    count, rng = int(sys.argv[1]), random.Random(0)
    for turn in range(count):
        check_mix(KINDS[turn % len(KINDS)], rng.randrange(len(OPTIONS)), rng)
    print(f"{count} mixes: all results as in a batch of one")
