"""How well a network does its task while it is trained, in the task's own measures, and a few outputs to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batch, Batches
from regard.data.encoders.encoder_base import IGNORED, ORIGIN
from regard.data.example import Labelled, Pair, Plain, Question, Tagged
from regard.data.formats import Scheme
from regard.data.tag_schemes import OUTSIDE, recognise
from regard.evaluation import predict
from regard.metrics import task_metrics
from regard.tasks import generate, generation_config
from regard.tasks.generate import Generator
from regard.tasks.translate import Translator, Wish
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.factory import masked
from regard.training.recipe import objective_section
from regard.training.recipe.data_pipeline import source_of
from regard.training.run.batch_stream import moved
from regard.training.run.run import Trained

MEASURED, SHOWN = 500, 3
"""How many texts of the validation data are translated at each evaluation, and how many examples are shown."""
SPARE = 8
"""How many tokens more than the longest that is expected may be written."""
GIVEN, SEEN = 16, 40
"""How many tokens of a text are given to be continued, and how many of one with hidden words are shown."""

WORDS = ("loss", "perplexity", "accuracy")
MEASURES: Mapping[str, tuple[str, ...]] = {
    "translate": (*WORDS, "bleu", "chrf"),
    "summarize": (*WORDS, "bleu", "chrf"),
    "generate": (*WORDS, "word_perplexity"),
    "fill": WORDS,
    "classify": ("loss", "accuracy", "macro_f1"),
    "tag": ("loss", "accuracy", "precision", "recall", "f1"),
    "answer": ("loss", "accuracy", "exact", "f1"),
}
"""What is measured on the validation data of each task, by any of which the best network may be known."""

Measures = Mapping[str, float]


def measure(trained: Trained) -> Measures:
    """The task's own measures on the validation data; nothing where the loss says it all."""
    match trained.recipe.task:
        case "translate" | "summarize":
            return _of_translations(trained)
        case "classify":
            told = _labels(trained, _valid(trained))
            return task_metrics.of_labels([true for _, true, _ in told], [said for _, _, said in told])
        case "tag":
            return _of_tags(trained)
        case "answer":
            asked = _answers(trained, _valid(trained), None)
            truth = [[answer.text for answer in question.answers] for question, _ in asked]
            return task_metrics.of_answers(truth, [said for _, said in asked])
    return {}


def sample(trained: Trained) -> Sequence[str]:
    """A few outputs for a person to look at: what was given, what was expected, what came."""
    match trained.recipe.task:
        case "translate" | "summarize":
            pairs = _pairs(trained, SHOWN)
            shown = [(pair.source, pair.target) for pair in pairs]
            said = _translated(trained, pairs)
        case "classify":
            told = _labels(trained, [_first(trained)])
            shown, said = [(text, true) for text, true, _ in told], [one for _, _, one in told]
        case "tag":
            tagged = _tags(trained, [_first(trained)], SHOWN)
            shown = [(" ".join(one.words), _named(one.words, one.tags)) for one, _ in tagged]
            said = [_named(one.words, tags) for one, tags in tagged]
        case "answer":
            asked = _answers(trained, [_first(trained)], SHOWN)
            shown = [(one.question, " | ".join(answer.text for answer in one.answers)) for one, _ in asked]
            said = [text for _, text in asked]
        case "generate":
            shown, said = _continued(trained)
        case "fill":
            shown, said = _filled(trained)
    return [
        f"  {_line(given)}\n    expected {_line(expected)}\n    written  {_line(text)}"
        for (given, expected), text in zip(shown, said, strict=True)
    ]


def _line(text: str) -> str:
    return " ↵ ".join(text.splitlines())


# -- labels, tags, answers


def _valid(trained: Trained) -> Batches:
    assert trained.valid is not None, "nothing is measured without validation data"
    return trained.valid


def _first(trained: Trained) -> Batch:
    """The rows of the first few examples."""
    valid = _valid(trained)
    if ORIGIN not in valid.corpus.columns:
        return valid.of(np.arange(min(SHOWN, len(valid.corpus))))
    return valid.of(np.flatnonzero(valid.corpus.columns[ORIGIN].values < SHOWN))


def _read(trained: Trained, count: int | None) -> list[Any]:
    return list(islice(source_of(trained.recipe, trained.recipe.data.valid).read(), count))


def _labels(trained: Trained, batches: Batches | list[Batch]) -> list[tuple[str, str, str]]:
    """Text, true label and what the network says, of the examples in these batches."""
    said = predict.labels(trained.network, batches, trained.recipe.training.device)
    examples: list[Labelled] = _read(trained, max(said) + 1)
    return [(examples[n].text, str(examples[n].label), trained.labels[said[n]]) for n in sorted(said)]


def _tags(trained: Trained, batches: Batches | list[Batch], count: int | None) -> list[tuple[Tagged, list[str]]]:
    """Sentences, and the tags that the network gives to their words."""
    said = predict.tags(trained.network, batches, trained.recipe.training.device)
    told: list[tuple[Tagged, list[str]]] = []
    for number, example in enumerate(_read(trained, count)):
        known = said.get(number, {})
        words = range(len(example.words))
        told.append((example, [trained.labels[known[word]] if word in known else OUTSIDE for word in words]))
    return told


def _of_tags(trained: Trained) -> Measures:
    """The F1 of entities; tags that mark none (parts of speech) have an accuracy, which is measured with the loss."""
    if recognise([trained.labels]) is Scheme.PLAIN:
        return {}
    tagged = _tags(trained, _valid(trained), None)
    return task_metrics.of_entities((one.tags for one, _ in tagged), (tags for _, tags in tagged))


def _named(words: Sequence[str], tags: Sequence[str]) -> str:
    """The words that have a tag, with it."""
    return "  ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True) if tag != OUTSIDE)


def _answers(trained: Trained, batches: Batches | list[Batch], count: int | None) -> list[tuple[Question, str]]:
    """Questions, and what the network answers."""
    questions: list[Question] = _read(trained, count)
    classify = trained.tokenizer.special.classify
    said = predict.answers(trained.network, batches, questions, classify, trained.recipe.training.device)
    return [(question, said[number]) for number, question in enumerate(questions)]


# -- texts


def _continued(trained: Trained) -> tuple[list[tuple[str, str]], list[str]]:
    """How the first texts begin and go on, and how the network goes on."""
    tokenizer = trained.tokenizer
    texts: list[Plain] = _read(trained, SHOWN)
    shown = []
    for ids in tokenizer.ids_of([text.text[: 64 * GIVEN] for text in texts], special_tokens=False):
        given = min(GIVEN, len(ids) // 2)
        shown.append((tokenizer.decode(ids[:given]), tokenizer.decode(ids[given : given + GIVEN])))
    generator = Generator(
        trained.network, tokenizer, generation_config.read(None, tokenizer), generate.Wish(limit=GIVEN)
    )
    return shown, [written.text for written in generator.generate(given for given, _ in shown)]


def _filled(trained: Trained) -> tuple[list[tuple[str, str]], list[str]]:
    """The first rows with some of their words hidden, these words, and what the network guesses."""
    design, tokenizer = trained.recipe.objective, trained.tokenizer
    assert isinstance(design, objective_section.Masked)
    valid = _valid(trained)
    rows = moved(valid.of(np.arange(min(SHOWN, len(valid.corpus)))), torch.device(trained.recipe.training.device))
    objective = masked(design, tokenizer)
    around = {*objective.special} - {objective.mask}
    torch.manual_seed(0)  # the same words each time
    asked = objective.ask(rows)
    guessed = asked.call(trained.network, asked.batch).logits.argmax(dim=-1)
    shown, said, begin = [], [], 0
    for length in rows["tokens"].rows.lengths:
        seen = slice(begin, begin + min(length, SEEN))
        hidden = asked.labels[seen] != IGNORED
        given = [token for token in asked.batch["tokens"].tokens[seen].tolist() if token not in around]
        shown.append((tokenizer.decode(given, keep_special=True), _listed(tokenizer, asked.labels[seen][hidden])))
        said.append(_listed(tokenizer, guessed[seen][hidden]))
        begin += length
    return shown, said


def _listed(tokenizer: Tokenizer, tokens: Tensor) -> str:
    return "  ".join(tokenizer.decode([token]) for token in tokens.tolist())


# -- translations


def _of_translations(trained: Trained) -> Measures:
    import sacrebleu

    pairs = _pairs(trained, MEASURED)
    said = _translated(trained, pairs)
    targets = [[pair.target for pair in pairs]]
    return {
        "bleu": sacrebleu.corpus_bleu(said, targets).score,
        "chrf": sacrebleu.corpus_chrf(said, targets).score,
    }


def _pairs(trained: Trained, count: int) -> list[Pair]:
    return _read(trained, count)


def _translated(trained: Trained, pairs: Sequence[Pair]) -> list[str]:
    """Greedy translations: quick, and good enough to see which state is better.

    A network that has not yet learnt to end would write on and on, so nothing is written that is much longer than the
    longest translation that is expected.
    """
    usual = generation_config.read(None, trained.tokenizer)
    longest = max(map(len, trained.tokenizer.target.ids_of([pair.target for pair in pairs])), default=0)
    wish = Wish(beam=1, limit=longest + SPARE)
    translator = Translator(trained.network, trained.tokenizer, replace(usual, start=trained.start), wish)
    return [written.text for written in translator.translate(pair.source for pair in pairs)]
