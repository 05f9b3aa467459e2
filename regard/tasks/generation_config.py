"""The generation config of a published model: start and end tokens, beam size, penalties.

It is read from `generation_config.json` or, in older folders, from `config.json`. Two settings are not used: the
maximum length, so that an output ends at the EOS token or at the limit of the network (the result has the reason); and
`do_sample`, so that outputs are sampled only on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint.model_folder import CONFIG_FILE, GENERATION_CONFIG_FILE, ModelFolder
from regard.generation.beam import BeamSearch, EarlyStopping
from regard.generation.logits_processors import (
    ForcedEos,
    ForcedPrefix,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressSequences,
)
from regard.generation.search import GreedySearch, SearchStrategy
from regard.generation.sequence import TokenSequence
from regard.tokenization.tokenizer import Tokenizer

MAX_NUMBER = 2**31
"""Larger numbers, infinity and NaN, which JSON parsers accept, have no meaning in a generation config."""
Logits = Float[Tensor, "batch vocabulary"]


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The generation config of a model folder."""

    decoder_start_token_id: int | None
    """The first token of the decoder, for a network with an encoder."""
    bos_token_id: int | None
    """The first token of a sequence, for a network without an encoder."""
    eos_token_ids: tuple[int, ...]
    """The tokens that end an output."""
    forced_bos_token_id: int | None
    """The token that is forced as the first new token."""
    forced_eos_token_id: int | None
    """The token that is forced at the maximum length."""
    suppress_sequences: tuple[tuple[int, ...], ...]
    """Token sequences that are never generated."""
    beam: int
    """Beam size; 1 is greedy search."""
    length_penalty: float
    early_stopping: EarlyStopping
    min_new_tokens: int
    """Minimum number of new tokens. (The published `min_length` counts the start token; this does not.)"""
    no_repeat_ngram_size: int
    repetition_penalty: float
    renormalize_logits: bool
    """Whether to renormalize the distribution after the logits processors (Marian)."""
    prefixes: Mapping[str, str]
    """The source prefixes by task: T5's `translation_en_to_de`."""

    def logits_processors(self, max_new_tokens: int | None) -> list[LogitsProcessor]:
        """Return the logits processors; a smaller `max_new_tokens` overrides the minimum length of the config."""
        processors: list[LogitsProcessor] = []
        if self.repetition_penalty != 1:
            processors.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat_ngram_size:
            processors.append(NoRepeatNgram(self.no_repeat_ngram_size))
        if self.suppress_sequences:
            processors.append(SuppressSequences(self.suppress_sequences))
        if min_new_tokens := min(self.min_new_tokens, max_new_tokens or self.min_new_tokens):
            processors.append(MinNewTokens(min_new_tokens, self.eos_token_ids))
        if self.forced_bos_token_id is not None:
            processors.append(ForcedPrefix((self.forced_bos_token_id,)))
        if self.forced_eos_token_id is not None:
            processors.append(ForcedEos(self.forced_eos_token_id))
        return [*processors, normalize_logits] if self.renormalize_logits else processors

    def search_strategy(self, beam: int | None, n_best: int, length_penalty: float | None) -> SearchStrategy:
        """Return the search strategy; None stands for the value of the config."""
        if n_best < 1:
            raise ValueError(f"n_best must be at least 1, found {n_best}")
        beam = max(self.beam, n_best) if beam is None else beam
        if beam == n_best == 1:
            return GreedySearch()
        penalty = self.length_penalty if length_penalty is None else length_penalty
        return BeamSearch(beam=beam, length_penalty=penalty, early_stopping=self.early_stopping, n_best=n_best)


def normalize_logits(logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
    """Renormalize to log-probabilities (a logits processor); a row that is fully masked stays masked."""
    del sequences
    return logits.log_softmax(dim=-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)


def read_generation_config(folder: str | Path | None, tokenizer: Tokenizer) -> GenerationConfig:
    """Read the generation config of a model folder; missing tokens are those of the tokenizer."""
    files = None if folder is None else ModelFolder(folder)
    config, generation = _JsonFile(files, CONFIG_FILE), _JsonFile(files, GENERATION_CONFIG_FILE)
    source = generation if generation.values else config
    special_ids = tokenizer.target.special_ids

    def token(key: str) -> int | None:
        return _coalesce(_first_or_none(generation.token_ids(key)), _first_or_none(config.token_ids(key)))

    eos_token_ids = generation.token_ids("eos_token_id") or config.token_ids("eos_token_id")
    eos_token_ids = eos_token_ids or (() if special_ids.eos is None else (special_ids.eos,))
    bos_token_id = _coalesce(token("bos_token_id"), special_ids.bos)
    return GenerationConfig(
        decoder_start_token_id=_coalesce(token("decoder_start_token_id"), bos_token_id, special_ids.pad),
        bos_token_id=_coalesce(tokenizer.special_ids.bos, bos_token_id),
        eos_token_ids=eos_token_ids,
        forced_bos_token_id=_first_or_none(source.token_ids("forced_bos_token_id")),
        forced_eos_token_id=_first_or_none(source.token_ids("forced_eos_token_id")),
        suppress_sequences=_suppress_sequences(source, eos_token_ids),
        beam=source.integer("num_beams", 1),
        length_penalty=source.number("length_penalty", 1.0),
        early_stopping=source.early_stopping(),
        min_new_tokens=max(source.integer("min_new_tokens", 0), source.integer("min_length", 0) - 1, 0),
        no_repeat_ngram_size=source.integer("no_repeat_ngram_size", 0),
        repetition_penalty=source.number("repetition_penalty", 1.0),
        renormalize_logits=source.values.get("renormalize_logits") is True,
        prefixes=config.task_prefixes(),
    )


class _JsonFile:
    """The values of one JSON file. A value of the wrong type raises a ValueError that names the file and the key."""

    def __init__(self, folder: ModelFolder | None, name: str) -> None:
        self.path = folder.path / name if folder else Path(name)
        self.values: dict[str, Any] = folder.read_if_exists(name) if folder else {}

    def _error(self, key: str, expected: str) -> ValueError:
        return ValueError(f"{self.path}: {key} is {self.values[key]!r}; expected {expected}")

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
            raise self._error(key, "a number")
        return float(value)

    def integer(self, key: str, default: int) -> int:
        value = self.number(key, float(default))
        if value < 0 or value != int(value):
            raise self._error(key, "a non-negative integer")
        return int(value)

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Return one or several token ids."""
        value = self.values.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
            raise self._error(key, "a token id or a list of token ids")
        return tuple(ids)

    def token_sequences(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Return several sequences of token ids."""
        sequences = self.values.get(key) or []
        if not isinstance(sequences, list) or not all(isinstance(each, list) and each for each in sequences):
            raise self._error(key, "a list of lists of token ids")
        if not all(isinstance(token, int) for sequence in sequences for token in sequence):
            raise self._error(key, "a list of lists of token ids")
        return tuple(tuple(sequence) for sequence in sequences)

    def early_stopping(self) -> EarlyStopping:
        value = self.values.get("early_stopping")
        if value is not None and value not in (True, False, "never"):
            raise self._error("early_stopping", 'true, false or "never"')
        return EarlyStopping(value or False)

    def task_prefixes(self) -> dict[str, str]:
        tasks = self.values.get("task_specific_params") or {}
        if not isinstance(tasks, dict):
            raise self._error("task_specific_params", "an object with one entry for each task")
        prefixes = {task: settings.get("prefix") for task, settings in tasks.items() if isinstance(settings, dict)}
        return {task: prefix for task, prefix in prefixes.items() if isinstance(prefix, str)}


def _suppress_sequences(source: _JsonFile, eos_token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the suppressed sequences; an EOS token among the `bad_words_ids` stays allowed, as in transformers."""
    allowed = [(token,) for token in eos_token_ids]
    bad_words = [sequence for sequence in source.token_sequences("bad_words_ids") if sequence not in allowed]
    return (*bad_words, *((token,) for token in source.token_ids("suppress_tokens")))


def _coalesce(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _first_or_none(tokens: Sequence[int]) -> int | None:
    return next(iter(tokens), None)
