"""How well labels, tags and answers agree with the truth, as the standard scripts define it. All are shares, 0 to 1.

labels      accuracy, and F1 of each label, averaged (macro)
tags        entities found whole, with their type: precision, recall and F1 over all of them (CoNLL's script, seqeval)
answers     exact match and F1 of the words in common (SQuAD's script, 2.0: it knows questions without answer)
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

from regard.data.tag_schemes import MARKED

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)

Entity = tuple[str, int, int]
"""Its type, its first and its last word."""


def f1(right: int, said: int, true: int) -> float:
    """The harmonic mean of precision (right / said) and recall (right / true); 0 where nothing is right."""
    return 2 * right / (said + true) if right else 0.0


def of_labels(truth: Sequence[str], said: Sequence[str]) -> dict[str, float]:
    """Accuracy, and the mean of the F1 of all labels that are true or said somewhere."""
    right = Counter(one for one, other in zip(truth, said, strict=True) if one == other)
    true, guessed = Counter(truth), Counter(said)
    each = [f1(right[label], guessed[label], true[label]) for label in {*true, *guessed}]
    return {"accuracy": right.total() / max(1, len(truth)), "macro_f1": sum(each) / max(1, len(each))}


def of_entities(truth: Iterable[Sequence[str]], said: Iterable[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of entities over all sentences: one is right where type, first and last word are."""
    right = guessed = true = 0
    for one, other in zip(truth, said, strict=True):
        there, found = {*entities(one)}, {*entities(other)}
        right, guessed, true = right + len(there & found), guessed + len(found), true + len(there)
    return {
        "precision": right / max(1, guessed),
        "recall": right / max(1, true),
        "f1": f1(right, guessed, true),
    }


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence whose tags are in BIO, IOB1, BIOES or BILOU, as CoNLL's script sees them.

    An entity goes on from one word to the next where the first has B or I, the second I, E or L, and both one type.
    Whatever else has a type begins an entity: networks are not held to any scheme.
    """
    found: list[Entity] = []
    letter_before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        match = MARKED.fullmatch(tag)
        letter, kind = match.groups() if match else ("O", "")
        if letter != "O":
            goes_on = letter_before in ("B", "I") and letter in ("I", "E", "L") and kind == kind_before
            begin = found.pop()[1] if goes_on else place
            found.append((kind, begin, place))
        letter_before, kind_before = letter, kind
    return found


def of_answers(truth: Sequence[Sequence[str]], said: Sequence[str]) -> dict[str, float]:
    """Exact match and F1 of answers, each against that of its true answers which fits best; none: the empty text."""
    exact = total = 0.0
    for answers, text in zip(truth, said, strict=True):
        wanted = [answer for answer in answers if plain(answer)] or [""]
        exact += max(plain(answer) == plain(text) for answer in wanted)
        total += max(in_common(answer, text) for answer in wanted)
    return {"exact": exact / max(1, len(said)), "f1": total / max(1, len(said))}


def in_common(answer: str, text: str) -> float:
    """The F1 of the words that two answers have in common. An empty one agrees with an empty one only."""
    true, said = plain(answer).split(), plain(text).split()
    if not true or not said:
        return float(true == said)
    return f1((Counter(true) & Counter(said)).total(), len(said), len(true))


def plain(answer: str) -> str:
    """An answer as it is compared: in lower case, without punctuation, articles (a, an, the) and needless blanks."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())
