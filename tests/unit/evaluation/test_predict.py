"""Labels, tags and answers from a network with fixed logits: those of each token id."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.training.tiny_data import batch, ids

from regard.data.example import Answer, Question
from regard.evaluation import predict

CLS = 1


class FixedLogits:
    """A network that returns for each token the logits of its id, or for each row those of its first token."""

    reads_segments = False

    def __init__(self, table, rowwise=False):
        self.table, self.rowwise = torch.tensor(table), rowwise

    def __call__(self, tokens, layout):
        logits = self.table[tokens]
        return SimpleNamespace(logits=logits[layout.first_indices] if self.rowwise else logits)


def test_labels_by_the_number_of_their_example():
    network = FixedLogits([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]], rowwise=True)
    second = batch(tokens=ids([0, 1]))
    second.indices[:] = 7
    found = predict.predict_labels(network, [batch(tokens=ids([1], [2, 1, 1])), second])
    assert found == {0: 0, 1: 1, 7: 1}


def test_the_tag_of_a_word_is_that_of_its_first_token():
    tokens, words = ids([0, 3, 4, 2, 0]), ids([-1, 0, 0, 1, -1])
    found = predict.predict_tags(
        FixedLogits([[0.0] * 5, *torch.eye(5)[1:].tolist()]), [batch(tokens=tokens, words=words, example=ids([5]))]
    )
    assert found == {5: {0: 3, 1: 2}}


def test_of_several_windows_the_one_counts_in_which_a_word_has_most_around_it():
    """Each token has a unique id, so that the tag shows from which window it was taken."""
    first, second = [0, 1, 2, 3, 0], [0, 5, 6, 7, 0]
    words = ids([-1, 0, 1, 2, -1], [-1, 1, 2, 3, -1])
    table = torch.eye(8).tolist()
    found = predict.predict_tags(
        FixedLogits(table), [batch(tokens=ids(first, second), words=words, example=ids([0], [0]))]
    )
    assert found == {0: {0: 1, 1: 2, 2: 6, 3: 7}}


def question(context, *answers):
    spans = tuple(Answer(text=text, start=context.index(text)) for text in answers)
    return Question(file=Path("q.json"), line=1, id="1", question="?", context=context, answers=spans)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.booleans()), min_size=1, max_size=40).filter(
        lambda rows: any(allowed for *_, allowed in rows)
    )
)
def test_the_best_span_by_trying_all_of_them(rows):
    scores = torch.tensor([row[:2] for row in rows], dtype=torch.float64)
    allowed = torch.tensor([row[2] for row in rows])
    best = max(
        rows[first][0] + rows[last][1]
        for first in range(len(rows))
        for last in range(first, min(len(rows), first + 30))
        if rows[first][2] and rows[last][2]
    )
    score, first, last = predict.best_span(scores, allowed)
    assert score == pytest.approx(best)
    assert allowed[first]
    assert allowed[last]
    assert first <= last < first + 30
    assert scores[first, 0] + scores[last, 1] == score


def rows_of(context, *windows, first=(CLS, CLS)):
    """A row for each window of words, after the CLS token and a question."""
    offsets = [(start := context.index(word), start + len(word)) for word in context.split()]
    tokens = [[cls, 2, *(10 + word for word in window)] for cls, window in zip(first, windows, strict=True)]
    return batch(
        tokens=ids(*tokens),
        begins=ids(*([0, 0, *(offsets[word][0] for word in window)] for window in windows)),
        ends=ids(*([0, 0, *(offsets[word][1] for word in window)] for window in windows)),
        example=ids(*([0] for _ in windows)),
    )


@pytest.mark.parametrize("direction", [1, -1])
def test_answers_from_the_window_with_the_highest_score(direction):
    context = "one two three four five"
    table = torch.zeros(15, 2)
    table[12, 0], table[13, 1] = 3.0, 2.0  # three … four
    table[10, 0] = 4.0  # one, which is not in the window of "four"
    table[CLS], table[2] = 9.0, 8.0  # neither is part of the context
    rows = rows_of(context, *[[0, 1, 2], [1, 2, 3, 4]][::direction])
    assert predict.predict_answers(FixedLogits(table.tolist()), [rows], [question(context, "two")], CLS) == {
        0: "three four"
    }


@pytest.mark.parametrize(("no_answer_logit", "expected"), [(2.4, "three four"), (2.6, "")])
def test_no_answer_where_it_has_the_higher_score_in_every_window(no_answer_logit, expected):
    context = "one two three four five"
    table = torch.zeros(15, 2)
    table[12, 0], table[13, 1] = 3.0, 2.0
    table[CLS] = no_answer_logit
    rows = rows_of(context, [0, 1, 2], [1, 2, 3, 4])
    questions = [question(context), question("another", "another")]
    assert predict.predict_answers(FixedLogits(table.tolist()), [rows], questions, CLS) == {0: expected}


@pytest.mark.parametrize("first", [(CLS, 3), (3, CLS)])
def test_one_window_that_has_no_answer_does_not_decide(first):
    """Without a CLS token, the first token of a row stands for "no answer"."""
    context = "one two three four five"
    table = torch.zeros(15, 2)
    table[12, 0], table[13, 1] = 3.0, 2.0
    table[CLS], table[3] = 9.0, 1.0
    rows = rows_of(context, [0, 1, 2], [1, 2, 3, 4], first=first)
    assert predict.predict_answers(FixedLogits(table.tolist()), [rows], [question(context)], None) == {0: "three four"}
