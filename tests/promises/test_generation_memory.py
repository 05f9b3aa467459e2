"""Files of any length need a constant amount of memory, and results come in order, however long one input takes."""

import gc
import itertools
import sys
from collections import Counter

import pytest
from unit.generation.networks import network, translates
from unit.tasks import models

from regard.generation import BeamSearch, DecodingOptions, GreedySearch, Inputs, RandomSampling, StopReason, generate
from regard.generation.result import DecodingResult, Hypothesis
from regard.generation.running_batch import Request
from regard.tasks.generate import Generation
from regard.tasks.generator import EncodedPrompt
from regard.tasks.translate import Translation
from regard.tasks.translator import SourceChunk

BUFFER_SIZE = 8
COUNTED = {
    Inputs,
    Request,
    DecodingResult,
    Hypothesis,
    Generation,
    Translation,
    EncodedPrompt,
    SourceChunk,
}
SLOW = 3
"""Inputs whose first token is this one take far longer than all others."""


def count_objects():
    """The number of inputs and results in memory, by class."""
    gc.collect()
    counts = Counter(map(type, gc.get_objects()))
    return Counter({kind: counts[kind] for kind in COUNTED})


def stop_unless_slow(sequence):
    return StopReason.TEXT if sequence.tokens[0] != SLOW else None


@pytest.mark.parametrize(
    ("kind", "search"),
    [
        ("rotary", GreedySearch()),
        ("translating", BeamSearch(beam=3, n_best=3)),
        ("rotary", RandomSampling(seed=1, num_samples=2)),
    ],
    ids=["greedy", "beam", "sample"],
)
def test_at_most_two_buffers_are_in_memory(kind, search):
    """With an endless iterator of inputs; every thirteenth is slow and delays the others."""
    read = 0

    def endless():
        nonlocal read
        for number in itertools.count():
            read += 1
            first = SLOW if number % 13 == 0 else 4 + number % 3
            yield Inputs([first, number % 19], [number % 19, 2] if translates(kind) else None)

    before = count_objects()
    options = DecodingOptions(search=search, stopping_criteria=[stop_unless_slow], max_new_tokens=9)
    results = generate(network(kind), endless(), options, buffer_size=BUFFER_SIZE)
    lengths, peak = [], Counter()
    for number, result in enumerate(itertools.islice(results, 90)):
        assert result.index == number
        assert read - number <= 2 * BUFFER_SIZE
        lengths.append(len(result.tokens))
        if number in (12, 30, 64):  # after a slow input, between two, before one
            peak |= count_objects() - before
    assert [length > 1 for length in lengths] == [number % 13 == 0 for number in range(90)]
    num_hypotheses = len(result.hypotheses)
    assert peak[Inputs] <= 2 * BUFFER_SIZE
    assert peak[Request] <= 2 * BUFFER_SIZE * search.num_samples
    assert peak[DecodingResult] <= 2 * BUFFER_SIZE
    assert peak[Hypothesis] <= 2 * BUFFER_SIZE * num_hypotheses


LINES = ["", *(" ".join(["dog", "horse", "tree"][: 1 + n % 3] * (1 + n % 5)) + f" {n}" for n in range(8))]


@pytest.mark.parametrize("task", ["translate", "generate"])
def test_memory_does_not_grow_with_the_length_of_a_file(task, tmp_path):
    """Each result is the same as for its line alone, in order."""
    if task == "translate":
        model = models.opened(models.translating(tmp_path))
        run = model.prepare("translate", max_new_tokens=3).run
    else:
        model = models.opened(models.continuing(tmp_path))
        run = model.prepare("generate", max_new_tokens=3).run
    single = [next(run([line])) for line in LINES]
    expected = [(result.text, result.tokens) for result in single]
    assert len(set(expected)) > 6
    before, blocks, peak = count_objects(), [], Counter()
    for count in (30, 200):
        results = run(itertools.islice(itertools.cycle(LINES), count), buffer_size=BUFFER_SIZE)
        for number, result in enumerate(results):
            assert (result.text, result.tokens) == expected[number % len(LINES)], number
            if number % 50 == 20:
                peak |= count_objects() - before
        assert number == count - 1
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert max(peak.values()) <= 2 * BUFFER_SIZE + 1
    assert blocks[1] - blocks[0] < 170  # 170 more lines: one block kept for each line would exceed this
