"""How a published model is meant to write: its start and end tokens, and the settings that came with it.

They stand in `generation_config.json` or, in older folders, in `config.json`. A maximum length that stands there is not
taken over: a text ends where it ends, or where the network can write no further, and the result says which. Nor is
drawing by chance: a text is drawn only for those who ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.generation.beam import Beam, Until
from regard.generation.logits_processors import Begin, EndAtLimit, Forbid, MinLength, NoRepeat, RepetitionPenalty, Rule
from regard.generation.search import Greedy, Search
from regard.generation.sequence import Row
from regard.tokenization.tokenizer import Tokenizer

Logits = Float[Tensor, "rows vocabulary"]


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a folder says about writing."""

    start: int | None
    """The token that a target begins with, where the network has an encoder."""
    first: int | None
    """The token that a text begins with, where it has none."""
    end: tuple[int, ...]
    """The tokens that end a text."""
    begin: int | None
    """The token that is always written first."""
    last: int | None
    """The token that is written where there is no more room."""
    forbidden: tuple[tuple[int, ...], ...]
    """What is never written."""
    beam: int
    """How many beams the model's authors use; 1: none."""
    length_penalty: float
    until: Until
    min_length: int
    """How many tokens are written at least. (Published figures count the start token, this one does not.)"""
    no_repeat: int
    repetition_penalty: float
    renormalize: bool
    """Whether what the rules leave is made to add up to 1 again (Marian)."""
    prefixes: Mapping[str, str]
    """What a source begins with, by task: T5's `translation_en_to_de`."""

    def rules(self, limit: int | None) -> list[Rule]:
        """What may be written. Who wants fewer tokens than the authors' minimum gets fewer."""
        rules: list[Rule] = []
        if self.repetition_penalty != 1:
            rules.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat:
            rules.append(NoRepeat(self.no_repeat))
        if self.forbidden:
            rules.append(Forbid(self.forbidden))
        if shortest := min(self.min_length, limit or self.min_length):
            rules.append(MinLength(shortest, self.end))
        if self.begin is not None:
            rules.append(Begin((self.begin,)))
        if self.last is not None:
            rules.append(EndAtLimit(self.last))
        return [*rules, renormalized] if self.renormalize else rules

    def search(self, beam: int | None, best: int, length_penalty: float | None) -> Search:
        """The search that was asked for, or the one of the model's authors."""
        if best < 1:
            raise ValueError(f"the number of results must be 1 or more, found {best}")
        size = max(self.beam, best) if beam is None else beam
        if size == best == 1:
            return Greedy()
        penalty = self.length_penalty if length_penalty is None else length_penalty
        return Beam(size=size, length_penalty=penalty, until=self.until, best=best)


def renormalized(logits: Logits, rows: Sequence[Row]) -> Logits:
    """A rule: what the rules before it left adds up to 1 again. Where they left nothing, nothing is left."""
    del rows
    return logits.log_softmax(dim=-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)


def read(folder: str | Path | None, tokenizer: Tokenizer) -> Habits:
    """The habits of the model in a folder; what it does not say follows from the tokenizer."""
    design, writing = _Said(folder, "config.json"), _Said(folder, "generation_config.json")
    said = writing if writing.values else design
    special = tokenizer.target.special

    def token(key: str) -> int | None:
        return _first(_one(writing.tokens(key)), _one(design.tokens(key)))

    ends = writing.tokens("eos_token_id") or design.tokens("eos_token_id")
    ends = ends or (() if special.end is None else (special.end,))
    first = _first(token("bos_token_id"), special.begin)
    return Habits(
        start=_first(token("decoder_start_token_id"), first, special.padding),
        first=_first(tokenizer.special.begin, first),
        end=ends,
        begin=_one(said.tokens("forced_bos_token_id")),
        last=_one(said.tokens("forced_eos_token_id")),
        forbidden=_forbidden(said, ends),
        beam=said.whole("num_beams", 1),
        length_penalty=said.number("length_penalty", 1.0),
        until=said.until(),
        min_length=max(said.whole("min_new_tokens", 0), said.whole("min_length", 0) - 1, 0),
        no_repeat=said.whole("no_repeat_ngram_size", 0),
        repetition_penalty=said.number("repetition_penalty", 1.0),
        renormalize=said.values.get("renormalize_logits") is True,
        prefixes=design.prefixes(),
    )


class _Said:
    """What one file says. A value of the wrong kind is an error that names it."""

    def __init__(self, folder: str | Path | None, name: str) -> None:
        self.path = Path(folder or ".") / name
        self.values: dict[str, Any] = _object(self.path) if folder is not None and self.path.is_file() else {}

    def _wrong(self, key: str, expected: str) -> ValueError:
        return ValueError(f"{self.path}: {key} is {self.values[key]!r}; expected {expected}")

    def number(self, key: str, usual: float) -> float:
        value = self.values.get(key)
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        return float(value)

    def whole(self, key: str, usual: int) -> int:
        value = self.number(key, float(usual))
        if value < 0 or value != int(value):
            raise self._wrong(key, "a whole number from 0")
        return int(value)

    def tokens(self, key: str) -> tuple[int, ...]:
        """A token's id, or several."""
        value = self.values.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in ids):
            raise self._wrong(key, "the id of a token, or a list of ids")
        return tuple(ids)

    def sequences(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Several rows of ids."""
        rows = self.values.get(key) or []
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise self._wrong(key, "a list of lists of ids")
        if not all(isinstance(number, int) for row in rows for number in row):
            raise self._wrong(key, "a list of lists of ids")
        return tuple(tuple(row) for row in rows)

    def until(self) -> Until:
        value = self.values.get("early_stopping")
        if value is not None and value not in (True, False, "never"):
            raise self._wrong("early_stopping", 'true, false or "never"')
        return Until(value or False)

    def prefixes(self) -> dict[str, str]:
        tasks = self.values.get("task_specific_params") or {}
        if not isinstance(tasks, dict):
            raise self._wrong("task_specific_params", "an object with one entry for each task")
        found = {task: settings.get("prefix") for task, settings in tasks.items() if isinstance(settings, dict)}
        return {task: prefix for task, prefix in found.items() if isinstance(prefix, str)}


def _forbidden(said: _Said, ends: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """What is never written; an end that stands in the list is written nevertheless, as in transformers."""
    words = [sequence for sequence in said.sequences("bad_words_ids") if sequence not in [(end,) for end in ends]]
    return (*words, *((token,) for token in said.tokens("suppress_tokens")))


def _object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: this is no JSON ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected an object, found {type(values).__name__}")
    return values


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _one(tokens: Sequence[int]) -> int | None:
    return next(iter(tokens), None)
