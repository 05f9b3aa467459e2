"""Each rule against the one of transformers that published configs mean, and those it has none for by definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation import logits_process as theirs
from unit.transformer.small_networks import examples

from regard.generation.logits_processors import (
    Begin,
    EndAtLimit,
    Forbid,
    Forbidding,
    MinLength,
    MinP,
    NoRepeat,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
    apply,
    only_forbid,
)
from regard.generation.sequence import Row

VOCABULARY, GIVEN, LIMIT = 9, 2, 6
PAIRS = {
    "temperature": (Temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
    "top-k": (TopK(3), theirs.TopKLogitsWarper(3)),
    "top-k of all": (TopK(50), theirs.TopKLogitsWarper(50)),
    "top-p": (TopP(0.8), theirs.TopPLogitsWarper(0.8)),
    "top-p of almost nothing": (TopP(0.0), theirs.TopPLogitsWarper(0.0)),
    "min-p": (MinP(0.3), theirs.MinPLogitsWarper(0.3)),
    "repetition": (RepetitionPenalty(1.7), theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    "praise": (RepetitionPenalty(0.5), theirs.RepetitionPenaltyLogitsProcessor(0.5)),
    "no word twice": (NoRepeat(1), theirs.NoRepeatNGramLogitsProcessor(1)),
    "no pair twice": (NoRepeat(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    "no triple twice": (NoRepeat(3), theirs.NoRepeatNGramLogitsProcessor(3)),
    "forbidden": (
        Forbid([[3], [1, 2], [2, 2, 1], [0] * 9]),
        theirs.NoBadWordsLogitsProcessor([[3], [1, 2], [2, 2, 1], [0] * 9]),
    ),
    "minimum": (MinLength(3, [4, 5]), theirs.MinNewTokensLengthLogitsProcessor(GIVEN, 3, [4, 5])),
    "end at the limit": (EndAtLimit(5), theirs.ForcedEOSTokenLogitsProcessor(GIVEN + LIMIT, 5)),
}


def numbers(data, rows):
    """Logits of which some are equal and one is forbidden already."""
    values = st.sampled_from([-3.0, -1.5, -0.25, 0.0, 0.5, 1.0, 2.5, 4.0])
    lines = data.draw(st.lists(st.lists(values, min_size=9, max_size=9), min_size=rows, max_size=rows))
    logits = torch.tensor(lines, dtype=torch.float64)
    logits += torch.linspace(0, 0.01, VOCABULARY, dtype=torch.float64)  # which of equals is first is nobody's promise
    logits[0, 7] = -torch.inf
    return logits


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
@examples(40)
def test_rules_are_those_of_transformers(name, data):
    mine, other = PAIRS[name]
    count, length = data.draw(st.integers(1, 3)), data.draw(st.integers(GIVEN, GIVEN + LIMIT - 1))
    words = st.lists(st.integers(0, 3), min_size=length, max_size=length)
    tokens = data.draw(st.lists(words, min_size=count, max_size=count))
    logits = numbers(data, count)
    found = mine(logits.clone(), [Row(row, GIVEN, LIMIT) for row in tokens])
    torch.testing.assert_close(found, other(torch.tensor(tokens), logits), rtol=0, atol=1e-12)


def test_rows_of_different_lengths_are_ruled_each_for_itself():
    rows = [Row([1, 2, 1], 1, 9), Row([2, 1, 2, 1, 3], 1, 5), Row([7], 1, 9)]
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0))
    rules = [RepetitionPenalty(2.0), NoRepeat(2), Forbid([[2, 1, 8]]), MinLength(3, [4]), Begin([6, 5]), EndAtLimit(0)]
    together = apply(rules, logits.clone(), rows)
    for number, row in enumerate(rows):
        assert torch.equal(together[number : number + 1], apply(rules, logits[number : number + 1].clone(), [row]))


def test_a_beginning_is_written_word_for_word():
    begin, logits = Begin([6, 5]), torch.zeros(3, VOCABULARY)
    found = begin(logits, [Row([1], 1, 9), Row([1, 6], 1, 9), Row([1, 6, 5], 1, 9)])
    assert found[0].isfinite().nonzero().flatten().tolist() == [6]
    assert found[1].isfinite().nonzero().flatten().tolist() == [5]
    assert torch.equal(found[2], logits[2])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Temperature(0.0), "more than 0, found 0.0; for the likeliest token, use Greedy"),
        (lambda: TopK(0), "at least one token must be left"),
        (lambda: TopP(1.5), "top-p is a share from 0 to 1, found 1.5"),
        (lambda: MinP(-0.1), "min-p is a share from 0 to 1, found -0.1"),
        (lambda: RepetitionPenalty(0.0), "more than 0"),
        (lambda: NoRepeat(0), "at least one token"),
        (lambda: Forbid([[1], []]), "at least one token"),
        (lambda: Forbid([[1, 99]])(torch.zeros(1, 9), [Row([1], 1, 9)]), r"\[1, 99\] is not in a vocabulary of 9"),
        (lambda: Begin([99])(torch.zeros(1, 9), [Row([1], 1, 9)]), "token 99 is forced, but the vocabulary has 9"),
    ],
)
def test_what_cannot_be_says_why(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()


@pytest.mark.parametrize("name", PAIRS)
def test_rules_that_only_forbid(name):
    """They leave every other score as it is, and find the same tokens in log-probabilities. The others do neither, or
    not both, and do not say so."""
    rule = PAIRS[name][0]
    rows = [Row(tokens=[1, 2, *written], given=GIVEN, limit=LIMIT) for written in ([], [1, 2, 2, 1, 3], [0, 4, 5])]
    logits = 3 * torch.randn(len(rows), VOCABULARY, generator=torch.Generator().manual_seed(2))
    found, shifted = (rule(given.clone(), rows) for given in (logits, logits.log_softmax(dim=1)))
    forbidden = found.isneginf()
    harmless = torch.equal(found[~forbidden], logits[~forbidden]) and torch.equal(forbidden, shifted.isneginf())
    assert harmless == isinstance(rule, Forbidding) == only_forbid([rule])
    assert not only_forbid([rule, Temperature(2.0)])
