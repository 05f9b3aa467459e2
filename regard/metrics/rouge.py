"""ROUGE (Lin 2004): the words that a summary shares with a reference, as the package rouge-score counts them. 0 to 100.

ROUGE-1, ROUGE-2   F1 of words and of pairs of neighbouring words
ROUGE-L            F1 of the longest common subsequence of words
ROUGE-Lsum         the same by sentences, which are lines: the union of the subsequences with all lines of the summary

With several references, the best score counts. Words are lower-case letters a to z and digits, without stemming.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from regard.metrics.label_metrics import f1

NOT_IN_WORDS = re.compile(r"[^a-z0-9]+")
Words = list[str]


def rouge_metrics(references: Sequence[Sequence[str]], summaries: Sequence[str]) -> dict[str, float]:
    """Compute the mean of each score over all summaries. `references` has one or several for each summary."""
    kinds: dict[str, Callable[[str, str], float]] = {
        "rouge1": lambda reference, summary: rouge_n(reference, summary, 1),
        "rouge2": lambda reference, summary: rouge_n(reference, summary, 2),
        "rougeL": rouge_l,
        "rougeLsum": rouge_lsum,
    }
    return {
        name: 100
        * sum(
            max(score(reference, summary) for reference in several)
            for several, summary in zip(references, summaries, strict=True)
        )
        / max(1, len(summaries))
        for name, score in kinds.items()
    }


def split_words(text: str) -> Words:
    """Return the words of a text: runs of letters and digits in lower case."""
    return NOT_IN_WORDS.sub(" ", text.lower()).split()


def rouge_n(reference: str, summary: str, n: int) -> float:
    """F1 of the n-grams."""
    actual, predicted = _ngrams(split_words(reference), n), _ngrams(split_words(summary), n)
    return f1((actual & predicted).total(), predicted.total(), actual.total())


def _ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def rouge_l(reference: str, summary: str) -> float:
    """F1 of the longest common subsequence."""
    actual, predicted = split_words(reference), split_words(summary)
    return f1(int(_lcs_table(actual, predicted)[-1, -1]), len(predicted), len(actual))


def rouge_lsum(reference: str, summary: str) -> float:
    """F1 of the union of longest common subsequences, over the lines of the reference."""
    actual, predicted = [[split_words(line) for line in text.split("\n") if line] for text in (reference, summary)]
    left_actual = Counter(word for line in actual for word in line)
    left_predicted = Counter(word for line in predicted for word in line)
    num_actual, num_predicted, hits = left_actual.total(), left_predicted.total(), 0
    for line in actual:
        shared = sorted({index for other in predicted for index in _lcs_indices(line, other)})
        for word in (line[index] for index in shared):
            if left_actual[word] > 0 and left_predicted[word] > 0:  # each word counts once
                hits += 1
                left_actual[word] -= 1
                left_predicted[word] -= 1
    return f1(hits, num_predicted, num_actual)


def _lcs_table(left: Words, right: Words) -> np.ndarray:
    """Return the lengths of the longest common subsequences of all prefixes."""
    vocabulary = {word: index for index, word in enumerate({*left, *right})}
    left_ids = np.array([vocabulary[word] for word in left], dtype=np.int64)
    right_ids = np.array([vocabulary[word] for word in right], dtype=np.int64)
    table = np.zeros((len(left) + 1, len(right) + 1), dtype=np.int64)
    for row, word in enumerate(left_ids):
        matched = np.where(right_ids == word, table[row, :-1] + 1, table[row, 1:])
        table[row + 1, 1:] = np.maximum.accumulate(matched)
    return table


def _lcs_indices(left: Words, right: Words) -> list[int]:
    """Return the indices in `left` of one longest common subsequence."""
    table, row, column, indices = _lcs_table(left, right), len(left), len(right), []
    while row and column:
        if left[row - 1] == right[column - 1]:
            row, column = row - 1, column - 1
            indices.append(row)
        elif table[row, column - 1] > table[row - 1, column]:
            column -= 1
        else:
            row -= 1
    return indices
