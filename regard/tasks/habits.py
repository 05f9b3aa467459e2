"""How a published model is meant to write: its start and end tokens, and the settings that came with it.

They stand in `generation_config.json` and, in older folders, in `config.json`. A maximum length that stands there is
not taken over: a text ends where it ends, or where the network can write no further, and the result says which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.generation.beam import Beam, Until
from regard.generation.rules import Begin, EndAtLimit, Forbid, MinLength, NoRepeat, RepetitionPenalty, Rule
from regard.generation.search import Greedy, Search
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a folder says about writing."""

    start: int | None
    """The token that a target begins with, where the network has an encoder."""
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
    prefixes: Mapping[str, str]
    """What a source begins with, by task: T5's `translation_en_to_de`."""

    def rules(self) -> list[Rule]:
        """What may be written."""
        rules: list[Rule] = []
        if self.repetition_penalty != 1:
            rules.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat:
            rules.append(NoRepeat(self.no_repeat))
        if self.forbidden:
            rules.append(Forbid(self.forbidden))
        if self.min_length:
            rules.append(MinLength(self.min_length, self.end))
        if self.begin is not None:
            rules.append(Begin((self.begin,)))
        if self.last is not None:
            rules.append(EndAtLimit(self.last))
        return rules

    def search(self, beam: int | None, best: int, length_penalty: float | None) -> Search:
        """The search that was asked for, or the one of the model's authors."""
        size = max(self.beam if beam is None else beam, best)
        if size == 1:
            return Greedy()
        penalty = self.length_penalty if length_penalty is None else length_penalty
        return Beam(size=size, length_penalty=penalty, until=self.until, best=best)


def read(folder: str | Path | None, tokenizer: Tokenizer) -> Habits:
    """The habits of the model in a folder; what it does not say follows from the tokenizer."""
    said = {**_json(folder, "config.json"), **_json(folder, "generation_config.json")}
    special = tokenizer.target.special
    ends = said.get("eos_token_id", special.end)
    start = _first(said.get("decoder_start_token_id"), said.get("bos_token_id"), special.begin, special.padding)
    tasks = said.get("task_specific_params") or {}
    return Habits(
        start=start,
        end=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        begin=said.get("forced_bos_token_id"),
        last=_one(said.get("forced_eos_token_id")),
        forbidden=tuple(tuple(words) for words in said.get("bad_words_ids") or ()),
        beam=said.get("num_beams") or 1,
        length_penalty=_first(said.get("length_penalty"), 1.0),
        until=Until(_first(said.get("early_stopping"), False)),
        min_length=_first(said.get("min_new_tokens"), max(0, _first(said.get("min_length"), 0) - 1)),
        no_repeat=_first(said.get("no_repeat_ngram_size"), 0),
        repetition_penalty=_first(said.get("repetition_penalty"), 1.0),
        prefixes={task: values["prefix"] for task, values in tasks.items() if "prefix" in (values or {})},
    )


def _json(folder: str | Path | None, name: str) -> dict[str, Any]:
    path = None if folder is None else Path(folder) / name
    if path is None or not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: this is no JSON ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected an object, found {type(values).__name__}")
    return values


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _one(value: int | Sequence[int] | None) -> int | None:
    return value if value is None or isinstance(value, int) else next(iter(value), None)
