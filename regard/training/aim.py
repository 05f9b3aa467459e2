"""The objective of a recipe, made from what is known when tokenizer and network are there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.load import load
from regard.text.tokenizer import Tokenizer
from regard.training.objective import Labelling, Objective
from regard.training.objectives import options
from regard.training.objectives.agree import Agree
from regard.training.objectives.causal import Causal
from regard.training.objectives.classify import Classify
from regard.training.objectives.distill import Distill
from regard.training.objectives.masked import Masked
from regard.training.objectives.span import Span
from regard.training.objectives.tag import Tag
from regard.training.objectives.translate import Translate


def objective_of(design: options.AnyOptions, tokenizer: Tokenizer, start: int, vocabulary: int) -> Objective:
    """The objective. `start` is the token that a decoder reads first."""
    if isinstance(design, options.Span):
        return Span()
    objective = _labelling(design, tokenizer, start, vocabulary)
    if design.agreement:
        return Agree(objective=objective, weight=design.agreement)
    if design.teacher is None:
        return objective
    teacher, _ = load(design.teacher.load, dtype=torch.float32)
    return Distill(
        objective=objective,
        teacher=teacher.requires_grad_(False),
        temperature=design.teacher.temperature,
        share=design.teacher.share,
    )


def _labelling(design: options.AnyOptions, tokenizer: Tokenizer, start: int, vocabulary: int) -> Labelling:
    match design:
        case options.Translate(smoothing=smoothing):
            if tokenizer.target.special.end is None and tokenizer.target.special.separator is None:
                raise ValueError("the tokenizer has no end token, so a network could never learn to stop: use another")
            return Translate(start=start, smoothing=smoothing)
        case options.Causal(smoothing=smoothing):
            return Causal(smoothing=smoothing)
        case options.Masked():
            return _masked(design, tokenizer, vocabulary)
        case options.Classify(smoothing=smoothing):
            return Classify(smoothing=smoothing)
        case options.Tag(smoothing=smoothing):
            return Tag(smoothing=smoothing)
        case options.Span():
            raise TypeError("spans are no labels")


def _masked(design: options.Masked, tokenizer: Tokenizer, vocabulary: int) -> Masked:
    special = tokenizer.special
    if special.mask is None:
        raise ValueError("the tokenizer has no mask token: train one with kind = 'wordpiece', or load another")
    ids = [getattr(special, name) for name in type(special).__dataclass_fields__]
    return Masked(
        mask=special.mask,
        special=tuple(number for number in ids if number is not None),
        vocabulary=min(vocabulary, len(tokenizer)),
        share=design.share,
        continues=continuing(tokenizer) if design.whole_words else None,
    )


def continuing(tokenizer: Tokenizer) -> Tensor:
    """Which tokens go on with the word before: those with ##, or, where words begin with a mark, those without."""
    tokens: dict[str, int] = tokenizer.vocabulary()
    marks = ("Ġ", "▁")
    marked = any(token.startswith(marks) for token in tokens)
    found = torch.zeros(len(tokenizer), dtype=torch.bool)
    for token, number in tokens.items():
        found[number] = not token.startswith(marks) if marked else token.startswith("##")
    return found


def start_of(tokenizer: Tokenizer, theirs: dict[str, Any] | None) -> int:
    """The token that a decoder reads first: as published, or the one that begins a text, or padding."""
    said = (theirs or {}).get("decoder_start_token_id")
    special = tokenizer.target.special
    choices = (said, special.begin, special.classify, special.padding, special.end)
    return next((int(number) for number in choices if number is not None), 0)
