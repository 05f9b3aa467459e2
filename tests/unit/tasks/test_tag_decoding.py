"""Decoding of tags: against all sequences, and the transitions against the reader of tag schemes."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.formats import Scheme
from regard.data.tag_schemes import to_bio
from regard.metrics.entity_metrics import entities
from regard.tasks.tag_decoding import allowed_transitions, decode_tags, scheme_of_labels
from regard.tokenization.text_files import DataError

LABELS = {
    Scheme.BIO: ["O", "B-a", "I-a", "B-b", "I-b"],
    Scheme.IOB1: ["O", "I-a", "B-a", "I-b"],
    Scheme.BIOES: ["O", "B-a", "I-a", "E-a", "S-a", "S-b"],
    Scheme.BILOU: ["O", "B-a", "I-a", "L-a", "U-a", "B-b", "L-b"],
    Scheme.PLAIN: ["NN", "VB", "O"],
}


def is_valid(tags, scheme):
    """Whether the reader of data files accepts a sentence with these tags."""
    try:
        to_bio(tags, scheme, Path("x"), range(len(tags)))
    except DataError:
        return False
    if scheme is not Scheme.IOB1:
        return True
    previous = [None, *[tag[2:] for tag in tags]]  # B- only where the entity before has the same type
    return all(tag[0] != "B" or tag[2:] == before for tag, before in zip(tags, previous, strict=False))


@given(st.sampled_from(list(LABELS)), st.integers(1, 5), st.integers(0, 2**31))
def test_the_best_of_all_valid_sequences(scheme, length, seed):
    labels = LABELS[scheme]
    scores = np.random.default_rng(seed).normal(size=(length, len(labels)))
    decoded = decode_tags(scores, allowed_transitions(labels, scheme))
    assert is_valid([labels[index] for index in decoded], scheme)
    best = max(
        sum(scores[word, tag] for word, tag in enumerate(sequence))
        for sequence in itertools.product(range(len(labels)), repeat=length)
        if is_valid([labels[index] for index in sequence], scheme)
    )
    assert sum(scores[word, tag] for word, tag in enumerate(decoded)) == pytest.approx(best)


def test_if_no_sequence_is_valid_the_most_likely_tags_are_kept():
    labels = ["B-a", "E-a"]
    scores = np.array([[1.0, 2.0]])
    assert decode_tags(scores, allowed_transitions(labels, Scheme.BIOES)) == [1]


@pytest.mark.parametrize("scheme", list(LABELS))
def test_the_scheme_is_known_from_the_labels(scheme):
    labels = ["O", "I-a", "I-b"] if scheme is Scheme.IOB1 else LABELS[scheme]
    assert scheme_of_labels(labels) is scheme
    assert scheme_of_labels(labels[::-1]) is scheme


def test_published_label_names():
    assert scheme_of_labels([f"LABEL_{number}" for number in range(9)]) is Scheme.PLAIN
    assert scheme_of_labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]) is Scheme.BIO
    assert scheme_of_labels(["O"]) is Scheme.PLAIN


def test_the_example_of_the_docstring():
    labels = ["O", "B-loc", "I-loc"]
    scores = np.log([[0.5, 0.4, 0.1], [0.05, 0.05, 0.9], [0.9, 0.05, 0.05]])
    tags = [labels[index] for index in decode_tags(scores, allowed_transitions(labels, Scheme.BIO))]
    assert tags == ["B-loc", "I-loc", "O"]
    assert entities(tags) == [("loc", 0, 1)]
