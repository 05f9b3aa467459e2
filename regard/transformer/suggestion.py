"""Suggestions for misspelt names in error messages."""

import difflib
from collections.abc import Iterable


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a name, or None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(candidates), 1)), None)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the end of a message, or "" if no candidate is similar.

    did_you_mean("bert-bas", ["bert-base", "gpt2"])      # " (did you mean 'bert-base'?)"
    """
    match = closest(name, candidates)
    return f" (did you mean {match!r}?)" if match is not None else ""
