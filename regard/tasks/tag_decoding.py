"""The most likely valid sequence of tags: Viterbi decoding with the transitions that a tag scheme allows.

A network scores the tags of each word independently, so its most likely tags may violate the scheme:

    words      New      York     is
    argmax     O        I-loc    O         an entity that never starts
    decoded    B-loc    I-loc    O         the valid sequence with the highest probability
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from regard.data.formats import Scheme
from regard.data.tag_schemes import END_PREFIXES, OUTSIDE, TAG_PATTERN

Scores = Float[np.ndarray, "words tags"]
TagState = tuple[str, str]
"""Prefix and type of a tag; of a tag that marks no entity, `O` and the empty string."""
BOUNDARY: TagState = (OUTSIDE, "")
"""The state before the first word and after the last."""


def scheme_of_labels(labels: Sequence[str]) -> Scheme:
    """Return the scheme of the tags of a model. Tags with I- but without B- are IOB1, where I- starts an entity."""
    states = [tag_state(label) for label in labels]
    prefixes = {prefix for prefix, _ in states if prefix != OUTSIDE}
    if sum(prefix != OUTSIDE for prefix, _ in states) * 2 < len({*labels} - {OUTSIDE}) or not prefixes:
        return Scheme.PLAIN
    for scheme, ends in END_PREFIXES.items():
        if not prefixes.isdisjoint(ends):
            return scheme
    return Scheme.BIO if "B" in prefixes else Scheme.IOB1


def tag_state(tag: str) -> TagState:
    """Return prefix and type of a tag."""
    match = TAG_PATTERN.fullmatch(tag)
    return (match[1], match[2]) if match else BOUNDARY


def is_allowed(previous: TagState, following: TagState, scheme: Scheme) -> bool:
    """Whether a scheme allows a tag after another. A sequence starts after `BOUNDARY` and ends before it."""
    (before, before_type), (prefix, entity_type) = previous, following
    same_entity = before in ("B", "I") and before_type == entity_type
    match scheme:
        case Scheme.PLAIN | Scheme.LENIENT:
            return True
        case Scheme.BIO:
            return prefix != "I" or same_entity
        case Scheme.IOB1:
            return prefix != "B" or same_entity
        case _:
            continues = prefix in ("I", END_PREFIXES[scheme][0])
            return continues and same_entity if before in ("B", "I") else not continues


def allowed_transitions(labels: Sequence[str], scheme: Scheme) -> Bool[np.ndarray, "states states"]:
    """Return which tags may follow which. The last state is the boundary of the sequence."""
    states = [*map(tag_state, labels), BOUNDARY]
    return np.array([[is_allowed(before, after, scheme) for after in states] for before in states])


def decode_tags(scores: Scores, allowed: Bool[np.ndarray, "states states"]) -> list[int]:
    """Return the valid sequence with the highest sum of scores; the best of all sequences if none is valid."""
    best: list[int] = scores.argmax(axis=1).tolist()
    boundary = len(allowed) - 1
    if all(allowed[before, after] for before, after in pairwise([boundary, *best, boundary])):
        return best  # no other sequence has a higher sum
    return _viterbi(scores, np.where(allowed, 0.0, -np.inf)) or best


def _viterbi(scores: Scores, transitions: Float[np.ndarray, "states states"]) -> list[int] | None:
    """Return the best sequence under these transition scores; None if every sequence is impossible."""
    total, pointers = transitions[-1, :-1] + scores[0], []
    for word_scores in scores[1:]:
        candidates = total[:, None] + transitions[:-1, :-1]
        pointers.append(candidates.argmax(axis=0))
        total = candidates.max(axis=0) + word_scores
    total = total + transitions[:-1, -1]
    if np.isneginf(total.max()):
        return None
    path = [int(total.argmax())]
    for pointer in reversed(pointers):
        path.append(int(pointer[path[-1]]))
    return path[::-1]
