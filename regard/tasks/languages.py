"""From which language to which, in the way each kind of model wants to be told.

mBART has a token for each language, Marian's multilingual models begin the source with `>>de<<`, and T5 is asked in
words, with the prefixes that its folder lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from regard.tasks.habits import Habits
from regard.text.tokenizer import Tokenizer

ASKED = re.compile(r"translation_(\w+)_to_(\w+)")


@dataclass(frozen=True)
class Way:
    """How a source is written and a target begun."""

    prefix: str
    """What stands before the text."""
    language: str | None
    """The language that the tokenizer is told."""
    habits: Habits
    """With the target's language, where that is a token."""


def way(tokenizer: Tokenizer, habits: Habits, source: str | None, target: str | None, prefix: str | None) -> Way:
    """How to go from one language to the other, or from a text to what a prefix asks for."""
    if tokenizer.languages:
        if prefix is not None:
            raise ValueError("this model is told the language by its code, not by a prefix: leave the prefix out")
        return _by_code(tokenizer, habits, source, target)
    if prefix is not None:
        return Way(prefix, None, habits)
    asked = {match.groups(): habits.prefixes[name] for name in habits.prefixes if (match := ASKED.fullmatch(name))}
    if not asked:
        if source is None and target is None:
            return Way("", None, habits)
        raise ValueError("this model knows one source and one target language: leave the languages out")
    known = ", ".join(f"{one}-{other}" for one, other in asked)
    if source is None or target is None:
        raise ValueError(
            f"this model has to be told what to do: from and to (it knows {known}), or a prefix of your own "
            '(an empty one, "", if it was trained without)'
        )
    if (source, target) not in asked:
        raise ValueError(f"this model does not know {source}-{target}; it knows {known}")
    return Way(asked[source, target], None, habits)


def _by_code(tokenizer: Tokenizer, habits: Habits, source: str | None, target: str | None) -> Way:
    if target is None:
        raise ValueError(f"say to which language; this model knows {_listed(tokenizer.languages)}")
    to = _code(tokenizer, target)
    if tokenizer.family == "marian":
        return Way("", to, habits)
    if source is None:
        raise ValueError(f"say from which language; this model knows {_listed(tokenizer.languages)}")
    number = tokenizer.languages[to]
    begun = (
        replace(habits, begin=number) if tokenizer.family == "mbart50" else replace(habits, start=number, begin=None)
    )
    return Way("", _code(tokenizer, source), begun)


def _code(tokenizer: Tokenizer, name: str) -> str:
    """The code itself, or the only one that begins so: `de` for `de_DE`."""
    if name in tokenizer.languages:
        return name
    alike = [code for code in tokenizer.languages if code.split("_")[0] == name]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(f"language {name!r} is not known; this model knows {_listed(tokenizer.languages)}")


def _listed(codes: Iterable[str]) -> str:
    return ", ".join(sorted(codes))
