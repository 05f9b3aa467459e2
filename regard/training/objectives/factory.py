"""The objective of a recipe, made from what is known when tokenizer and network are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.load import load
from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load as open_tokenizer
from regard.training.objectives.bpe_dropout import Parts, Split, table
from regard.training.objectives.causal import Causal
from regard.training.objectives.classify import Classify
from regard.training.objectives.distillation import Distill
from regard.training.objectives.masked import Masked
from regard.training.objectives.objective import Labelling, Objective
from regard.training.objectives.rdrop_objective import Agree
from regard.training.objectives.span import Span
from regard.training.objectives.tag import Tag
from regard.training.objectives.translate import Translate
from regard.training.recipe import objective_section
from regard.training.recipe.data_pipeline import labels_of_folder
from regard.training.recipe.network_factory import longest


def objective_of(
    design: objective_section.AnyOptions,
    tokenizer: Tokenizer,
    start: int,
    labels: Sequence[str] = (),
    device: str = "cpu",
    room: int | None = None,
) -> Objective:
    """The objective. `start` is the token that a decoder reads first; a teacher is put on the device.

    `room` is the longest row that the network can take. Splitting goes around all else: whoever is asked about a batch,
    twice or with a teacher, is asked about the same tokens.
    """
    objective = _unsplit(design, tokenizer, start, labels, device)
    if not isinstance(design, objective_section.Writing) or not design.splitting:
        return objective
    parts, fitting = _parts(design, tokenizer), _fitting(objective, room)
    return Split(objective=objective, parts=parts, chance=design.splitting, longest=fitting)


def _fitting(objective: Objective, room: int | None) -> int | None:
    """The longest row that fits both the network and its teacher."""
    if not isinstance(objective, Distill):
        return room
    teacher: Any = objective.teacher
    return min((length for length in (room, longest(teacher.config)) if length is not None), default=None)


def _parts(design: objective_section.Writing, tokenizer: Tokenizer) -> dict[str, Parts]:
    """By which table each column is split."""
    if isinstance(design, objective_section.Translate):
        return {"source": parts_of(tokenizer), "target": parts_of(tokenizer.target)}
    return {"tokens": parts_of(tokenizer)}


def parts_of(tokenizer: Tokenizer) -> Parts:
    """The table by which the tokens of a vocabulary are split."""
    parts = tokenizer.parts()
    if not parts:
        raise ValueError(
            "objective.splitting takes apart what a vocabulary has merged, and this tokenizer has merged nothing: use "
            "one with kind = 'bpe', or leave splitting out"
        )
    return table(parts, len(tokenizer))


def _unsplit(
    design: objective_section.AnyOptions, tokenizer: Tokenizer, start: int, labels: Sequence[str], device: str
) -> Objective:
    if isinstance(design, objective_section.Span):
        return Span()
    objective = _labelling(design, tokenizer, start)
    if design.agreement:
        return Agree(objective=objective, weight=design.agreement, begin=design.agreement_from)
    if design.teacher is None:
        return objective
    _check_teacher(design.teacher.load, tokenizer, labels)
    teacher, _ = load(design.teacher.load, dtype=torch.float32)
    return Distill(
        objective=objective,
        teacher=teacher.requires_grad_(False).to(device),
        temperature=design.teacher.temperature,
        share=design.teacher.share,
    )


def _check_teacher(folder: str, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
    """Stop if a teacher means other things by its numbers, where its folder tells."""
    theirs = labels_of_folder(folder) if labels else ()
    if theirs and not theirs[0].startswith("LABEL_") and theirs != tuple(labels):
        raise ValueError(
            f"the teacher in {folder} has the labels {', '.join(theirs)}, and the data has {', '.join(labels)}: they "
            "need the same ones"
        )
    try:
        its = open_tokenizer(folder)
    except (TokenizerError, FileNotFoundError):
        return  # its folder has no tokenizer
    if (its.vocabulary(), its.target.vocabulary()) != (tokenizer.vocabulary(), tokenizer.target.vocabulary()):
        raise ValueError(f"the teacher in {folder} has another tokenizer: give [tokenizer] load = {folder!r}")


def _labelling(design: objective_section.Asking, tokenizer: Tokenizer, start: int) -> Labelling:
    match design:
        case objective_section.Translate(smoothing=smoothing):
            if tokenizer.target.special.end is None and tokenizer.target.special.separator is None:
                raise ValueError("the tokenizer has no end token, so a network could never learn to stop: use another")
            return Translate(start=start, smoothing=smoothing)
        case objective_section.Causal(smoothing=smoothing):
            return Causal(smoothing=smoothing)
        case objective_section.Masked():
            return masked(design, tokenizer)
        case objective_section.Classify(smoothing=smoothing):
            return Classify(smoothing=smoothing)
        case objective_section.Tag(smoothing=smoothing):
            return Tag(smoothing=smoothing)


def masked(design: objective_section.Masked, tokenizer: Tokenizer) -> Masked:
    """Hidden words, of the kind that a tokenizer has."""
    special = tokenizer.special
    if special.mask is None:
        raise ValueError("the tokenizer has no mask token: train one with kind = 'wordpiece', or load another")
    ids = [getattr(special, name) for name in type(special).__dataclass_fields__]
    return Masked(
        mask=special.mask,
        special=tuple(number for number in ids if number is not None),
        vocabulary=len(tokenizer),
        share=design.share,
        continues=continuing(tokenizer) if design.whole_words else None,
    )


def continuing(tokenizer: Tokenizer) -> Tensor:
    """Which tokens go on with the word before: those with ##, or, where words begin with a mark, those without.

    Which of the two it is, most tokens tell: a text may hold the marks themselves. In byte-level vocabularies the end
    of a line (`Ċ`) belongs to no word.
    """
    tokens: dict[str, int] = tokenizer.vocabulary()
    begin, on = ("Ġ", "▁", "Ċ"), "##"
    marked = sum(token.startswith(begin) for token in tokens) > sum(token.startswith(on) for token in tokens)
    found = torch.zeros(len(tokenizer), dtype=torch.bool)
    for token, number in tokens.items():
        found[number] = not token.startswith(begin) if marked else token.startswith(on)
    return found


def start_of(tokenizer: Tokenizer, theirs: Mapping[str, Any]) -> int:
    """The token that a decoder reads first: as published, or the one that begins a text, or padding."""
    said = theirs.get("decoder_start_token_id")
    special = tokenizer.target.special
    choices = (said, special.begin, special.classify, special.padding, special.end)
    return next((int(number) for number in choices if number is not None), 0)
