"""Metrics of entities with exact boundaries and type: precision, recall and F1, in total and for each type.

The CoNLL script (and seqeval by default) reads any sequence of tags, valid or not. The strict way counts only entities
that are complete in their scheme, as seqeval does with `mode="strict"`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from regard.metrics.label_metrics import f1

ENTITY_TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
"""Prefix and type of a tag that marks an entity."""
STRICT_PATTERNS = {
    "BIO": re.compile("BI*"),
    "BIOES": re.compile("S|BI*E"),
    "BILOU": re.compile("U|BI*L"),
}
"""The prefixes of a complete entity, by the name of the scheme. (Tags in IOB1 become BIO when a file is read.)"""

Entity = tuple[str, int, int]
"""Type, index of the first word, index of the last word."""


def entity_metrics(
    references: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]], strict: str | None = None
) -> dict[str, float]:
    """Compute precision, recall and F1 of entities over all sentences; with `strict`, of complete ones in a scheme."""
    return _metrics(*(counts.total() for counts in _count(references, predictions, strict)))


def entity_metrics_per_type(
    references: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]], strict: str | None = None
) -> dict[str, dict[str, float]]:
    """Compute precision, recall and F1 of each type that occurs, in alphabetical order."""
    correct, predicted, actual = _count(references, predictions, strict)
    types = sorted({*predicted, *actual})
    return {name: _metrics(correct[name], predicted[name], actual[name]) for name in types}


def _metrics(correct: int, predicted: int, actual: int) -> dict[str, float]:
    return {
        "precision": correct / max(1, predicted),
        "recall": correct / max(1, actual),
        "f1": f1(correct, predicted, actual),
    }


Counts = tuple[Counter[str], Counter[str], Counter[str]]
"""Numbers of correct, predicted and actual entities of each type."""


def _count(references: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]], strict: str | None) -> Counts:
    read: Callable[[Sequence[str]], list[Entity]] = (
        entities if strict is None else partial(strict_entities, scheme=strict)
    )
    correct: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    actual: Counter[str] = Counter()
    for reference_tags, predicted_tags in zip(references, predictions, strict=True):
        reference, prediction = {*read(reference_tags)}, {*read(predicted_tags)}
        correct.update(name for name, _, _ in reference & prediction)
        predicted.update(name for name, _, _ in prediction)
        actual.update(name for name, _, _ in reference)
    return correct, predicted, actual


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence with BIO, IOB1, BIOES or BILOU tags, as the CoNLL script defines them.

    A word continues the entity of the previous word if the previous prefix is B or I, its own prefix is I, E or L, and
    both types are equal. Any other word with a type starts an entity, because predicted tags may violate the scheme.
    """
    result: list[Entity] = []
    previous_prefix, previous_type = "O", ""
    for index, tag in enumerate(tags):
        prefix, entity_type = _split(tag)
        if prefix != "O":
            continues = previous_prefix in ("B", "I") and prefix in ("I", "E", "L") and entity_type == previous_type
            start = result.pop()[1] if continues else index
            result.append((entity_type, start, index))
        previous_prefix, previous_type = prefix, entity_type
    return result


def strict_entities(tags: Sequence[str], scheme: str) -> list[Entity]:
    """Return the entities that are complete in a scheme: `I-loc` after `O` is none in BIO.

    Neighbouring tags of the same type are split as the scheme continues and ends entities; a part counts if its
    prefixes are those of a complete entity.
    """
    result: list[Entity] = []
    start, prefixes, open_type = 0, "", ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, entity_type = _split(tag)
        begins = prefix in ("O", "B", "S", "U") or entity_type != open_type or prefixes[-1:] in ("E", "L", "S", "U")
        if begins:
            if prefixes and STRICT_PATTERNS[scheme].fullmatch(prefixes):
                result.append((open_type, start, index - 1))
            start, prefixes, open_type = index, "", entity_type
        prefixes += "" if prefix == "O" else prefix
    return result


def _split(tag: str) -> tuple[str, str]:
    match = ENTITY_TAG.fullmatch(tag)
    return (match[1], match[2]) if match else ("O", "")
