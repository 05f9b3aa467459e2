"""Long files are written with steady memory, and in order, however long one of their texts may take."""

import gc
import itertools
import sys
from collections import Counter

import pytest
from unit.generation.networks import network, translates
from unit.tasks import models

from regard.generation import Beam, Given, Greedy, Sample, Settings, Stopped, generate
from regard.generation.result import Hypothesis, Result
from regard.generation.running_batch import Writing
from regard.tasks import generate as tasks_generate
from regard.tasks import translate as tasks_translate
from regard.tasks.results import Written

WINDOW = 8
KINDS = {Given, Writing, Result, Hypothesis, Written, tasks_generate.Prompt, tasks_translate.Piece}
SLOW = 3
"""The texts that begin with this token take far longer than all others."""


def alive():
    """How many inputs and results there are in memory."""
    gc.collect()
    of_all = Counter(map(type, gc.get_objects()))
    return Counter({kind: of_all[kind] for kind in KINDS})


def quick_but_for_some(row):
    return Stopped.TEXT if row.tokens[0] != SLOW else None


@pytest.mark.parametrize(
    ("kind", "search"),
    [("rotary", Greedy()), ("translating", Beam(size=3, best=3)), ("rotary", Sample(seed=1, count=2))],
    ids=["greedy", "beam", "sample"],
)
def test_no_more_than_two_windows_are_held(kind, search):
    """Of inputs that never end, every thirteenth of which holds up the others."""
    read = 0

    def endless():
        nonlocal read
        for number in itertools.count():
            read += 1
            first = SLOW if number % 13 == 0 else 4 + number % 3
            yield Given([first, number % 19], [number % 19, 2] if translates(kind) else None)

    before = alive()
    settings = Settings(search=search, stop=[quick_but_for_some], limit=9)
    results = generate(network(kind), endless(), settings, window=WINDOW)
    lengths, most = [], Counter()
    for number, result in enumerate(itertools.islice(results, 90)):
        assert result.number == number
        assert read - number <= 2 * WINDOW
        lengths.append(len(result.tokens))
        if number in (12, 30, 64):  # behind a slow one, between two, before one
            most |= alive() - before
    assert [length > 1 for length in lengths] == [number % 13 == 0 for number in range(90)]
    each = len(result.hypotheses)
    assert most[Given] <= 2 * WINDOW
    assert most[Writing] <= 2 * WINDOW * search.count
    assert most[Result] <= 2 * WINDOW
    assert most[Hypothesis] <= 2 * WINDOW * each


LINES = ["", *(" ".join(["dog", "horse", "tree"][: 1 + n % 3] * (1 + n % 5)) + f" {n}" for n in range(8))]


@pytest.mark.parametrize("task", ["translate", "generate"])
def test_a_long_file_is_written_as_a_short_one(task, tmp_path):
    """Each line as it is alone, in order; what is in memory does not grow with what was read."""
    if task == "translate":
        ready = models.opened(models.translating(tmp_path)).translator(tasks_translate.Wish(limit=3))
        write = ready.translate
    else:
        ready = models.opened(models.continuing(tmp_path)).generator(tasks_generate.Wish(limit=3))
        write = ready.generate
    known = [next(write([line])) for line in LINES]
    expected = [(one.text, one.tokens) for one in known]
    assert len(set(expected)) > 6
    before, blocks, most = alive(), [], Counter()
    for count in (30, 200):
        results = write(itertools.islice(itertools.cycle(LINES), count), window=WINDOW)
        for number, result in enumerate(results):
            assert (result.text, result.tokens) == expected[number % len(LINES)], number
            if number % 50 == 20:
                most |= alive() - before
        assert number == count - 1
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert max(most.values()) <= 2 * WINDOW + 1
    assert blocks[1] - blocks[0] < 170  # of 170 more lines: one piece of memory kept for each would be seen
