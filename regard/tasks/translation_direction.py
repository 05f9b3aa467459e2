"""From which language to which, in the way each kind of model wants to be told.

mBART has a token for each language, Marian's multilingual models begin the source with `>>de<<`, and T5 is asked in
words, with the prefixes that its folder lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from regard.tasks.generation_config import Habits
from regard.tokenization.tokenizer import Tokenizer

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
    if prefix is not None:
        return _by_prefix(tokenizer, habits, source, target, prefix)
    if tokenizer.languages:
        return _by_code(tokenizer, habits, source, target)
    if habits.prefixes:
        return _by_words(habits, source, target)
    if source is not None or target is not None:
        raise ValueError("this model knows one source and one target language: leave --from and --to out")
    return Way("", None, habits)


def _by_prefix(tokenizer: Tokenizer, habits: Habits, source: str | None, target: str | None, prefix: str) -> Way:
    """A prefix in full, or the name of a task that the model's folder lists with its prefix."""
    if tokenizer.languages:
        raise ValueError(
            "this model is told the language by its code, not by a prefix: leave --prefix out. "
            f"It knows {_listed(tokenizer.languages)}"
        )
    if source is not None or target is not None:
        raise ValueError("--prefix and the languages (--from, --to) say the same in two ways: leave one out")
    return Way(habits.prefixes.get(prefix, prefix), None, habits)


def _by_words(habits: Habits, source: str | None, target: str | None) -> Way:
    pairs = {match.groups(): habits.prefixes[name] for name in habits.prefixes if (match := ASKED.fullmatch(name))}
    if (source, target) in pairs:
        return Way(pairs[source, target], None, habits)
    known = [f"--from {one} --to {other}" for one, other in pairs]
    known += [f"--prefix {name}" for name in habits.prefixes if not ASKED.fullmatch(name)]
    if source is None and target is None:
        raise ValueError(
            f"this model has to be told what to do. It knows {'; '.join(known)}. "
            'Any other prefix can be given in full (--prefix "", if it was trained without)'
        )
    raise ValueError(f"this model does not know --from {source} --to {target}. It knows {'; '.join(known)}")


def _by_code(tokenizer: Tokenizer, habits: Habits, source: str | None, target: str | None) -> Way:
    known = f"this model knows {_listed(tokenizer.languages)}"
    if target is None:
        raise ValueError(f"say with --to to which language; {known}")
    to = _code(tokenizer, target)
    if tokenizer.family == "marian":
        if source is not None:
            raise ValueError("this model is told only which language to translate to: leave --from out")
        return Way("", to, habits)
    if source is None:
        raise ValueError(f"say with --from from which language; {known}")
    # mBART's targets start with the language itself, those of mBART-50 with an end token and then the language.
    number, fifty = tokenizer.languages[to], tokenizer.family == "mbart50"
    begun = replace(habits, begin=number) if fifty else replace(habits, start=number, begin=None)
    return Way("", _code(tokenizer, source), begun)


def _code(tokenizer: Tokenizer, name: str) -> str:
    """The code itself, or the only one that begins so: `de` for `de_DE`."""
    if name in tokenizer.languages:
        return name
    alike = [code for code in tokenizer.languages if code.split("_")[0] == name]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(f"language {name!r} is not known; this model knows {_listed(tokenizer.languages)}")


def _listed(codes: Mapping[str, int]) -> str:
    return ", ".join(sorted(codes))
