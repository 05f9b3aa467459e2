"""Evaluation during training: task metrics on the validation data, and sample outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batch, Batches
from regard.data.encoders.encoder_base import EXAMPLE_COLUMN, IGNORE_INDEX
from regard.data.example import Document, Pair, Question
from regard.data.formats import Scheme
from regard.data.tag_schemes import OUTSIDE, detect_scheme
from regard.evaluation import predict
from regard.tasks.generate import GENERATE, GenerateOptions
from regard.tasks.generation_config import GenerationConfig, read_generation_config
from regard.tasks.translate import TRANSLATE, TranslateOptions
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.factory import build_masked_lm
from regard.training.recipe import objective_section
from regard.training.recipe.data_pipeline import make_source
from regard.training.run.batch_stream import to_device
from regard.training.run.run import TrainedModel
from regard.transformer.interface import Predicts

NUM_EVALUATED, NUM_SAMPLES = 500, 3
"""Number of validation texts translated at each evaluation, and number of examples shown as samples."""
EVALUATION_BUFFER = 128
"""Number of texts that are sorted by length and decoded at a time; the progress moves after each."""
EXTRA_TOKENS = 8
"""Number of tokens by which a translation may exceed the longest reference."""
PROMPT_TOKENS, SHOWN_TOKENS = 16, 40
"""Maximum number of tokens of a prompt and its continuation, and number of tokens shown of a masked text."""


@dataclass(frozen=True)
class Prediction:
    """The output of a model for one example of the validation data."""

    example: Any
    output: Any
    """What the metrics of the task compare with the reference."""


@dataclass(frozen=True)
class Parts:
    """A model during its training, as a task sees it (`ModelParts`)."""

    network: Any
    tokenizer: Tokenizer
    generation_config: GenerationConfig
    labels: tuple[str, ...]

    @classmethod
    def of(cls, trained: TrainedModel) -> Parts:
        """Return the parts of a model that is being trained."""
        config = read_generation_config(None, trained.tokenizer)
        config = replace(config, decoder_start_token_id=trained.decoder_start)
        return cls(trained.network, trained.tokenizer, config, trained.labels)


def evaluate(trained: TrainedModel) -> Mapping[str, float]:
    """Compute the task's metrics on the validation data. Empty for tasks that are evaluated by the loss alone."""
    metrics = trained.recipe.task.metrics
    if metrics.compute is None or (Predicts.TAGS in trained.network.predicts and not _mark_entities(trained.labels)):
        return {}
    predictions = _predict(trained, None)
    references = [metrics.reference_of(each.example) for each in predictions]
    return metrics.compute(references, [each.output for each in predictions])


def sample_outputs(trained: TrainedModel) -> Sequence[str]:
    """Return a few outputs for inspection by a person: input, reference and output of each example."""
    match trained.recipe.task.name:
        case "generate":
            samples, outputs = _continue_texts(trained)
        case "fill":
            samples, outputs = _fill_masks(trained)
        case "tag":
            tagged = _predict(trained, NUM_SAMPLES)
            sentences = [each.example for each in tagged]
            samples = [(" ".join(each.words), _format_tags(each.words, each.tags)) for each in sentences]
            outputs = [_format_tags(each.example.words, each.output) for each in tagged]
        case _:
            predictions, task = _predict(trained, NUM_SAMPLES), trained.recipe.task
            assert task.input_of is not None
            inputs = [task.input_of(each.example) for each in predictions]
            references = [task.metrics.reference_of(each.example) for each in predictions]
            samples = [(_first(text), _join(reference)) for text, reference in zip(inputs, references, strict=True)]
            outputs = [each.output for each in predictions]
    return [
        f"  {_one_line(text)}\n    reference {_one_line(reference)}\n    output    {_one_line(output)}"
        for (text, reference), output in zip(samples, outputs, strict=True)
    ]


def _first(text: str | tuple[str, str]) -> str:
    return text if isinstance(text, str) else text[0]


def _join(references: str | Sequence[str]) -> str:
    return references if isinstance(references, str) else " | ".join(references)


def _predict(trained: TrainedModel, count: int | None) -> list[Prediction]:
    """Return the outputs for the first `count` examples; None stands for all, or for the first of many texts."""
    task = trained.recipe.task
    if task.example is Pair:
        return _translate(trained, _read_examples(trained, count or NUM_EVALUATED))
    batches = _validation_batches(trained) if count is None else [_first_batch(trained)]
    match task.name:
        case "classify":
            return _predict_labels(trained, batches)
        case "tag":
            return _predict_tags(trained, batches, count)
        case "answer":
            return _predict_answers(trained, batches, count)
    examples, parts = _read_examples(trained, count), Parts.of(trained)
    assert task.input_of is not None
    selected = examples if count is not None else trained.monitor.select(examples)
    runner = task.runner(parts, task.options())
    results = runner.run(map(task.input_of, selected), buffer_size=EVALUATION_BUFFER)
    outputs = map(task.metrics.prediction_of, trained.monitor.track(results, len(selected)))
    return [Prediction(example, output) for example, output in zip(selected, outputs, strict=True)]


def _one_line(text: str) -> str:
    return " ↵ ".join(text.splitlines())


# -- labels, tags, answers


def _validation_batches(trained: TrainedModel) -> Batches:
    assert trained.valid_batches is not None, "no validation data to evaluate on"
    return trained.valid_batches


def _first_batch(trained: TrainedModel) -> Batch:
    """Return the rows of the first `NUM_SAMPLES` examples."""
    valid = _validation_batches(trained)
    if EXAMPLE_COLUMN not in valid.corpus.columns:
        return valid.select(np.arange(min(NUM_SAMPLES, len(valid.corpus))))
    return valid.select(np.flatnonzero(valid.corpus.columns[EXAMPLE_COLUMN].values < NUM_SAMPLES))


def _read_examples(trained: TrainedModel, count: int | None) -> list[Any]:
    return list(islice(make_source(trained.recipe, trained.recipe.data.valid).read(), count))


def _predict_labels(trained: TrainedModel, batches: Batches | list[Batch]) -> list[Prediction]:
    """Return the labels of the examples in these batches."""
    predictions = predict.predict_labels(trained.network, batches, trained.recipe.training.device)
    examples = _read_examples(trained, max(predictions) + 1)
    return [Prediction(examples[index], trained.labels[predictions[index]]) for index in sorted(predictions)]


def _predict_tags(trained: TrainedModel, batches: Batches | list[Batch], count: int | None) -> list[Prediction]:
    """Return the tags of the words. A word without a prediction has the tag `O`."""
    predictions = predict.predict_tags(trained.network, batches, trained.recipe.training.device)
    tagged: list[Prediction] = []
    for index, example in enumerate(_read_examples(trained, count)):
        tag_ids = predictions.get(index, {})
        words = range(len(example.words))
        tags = [trained.labels[tag_ids[word]] if word in tag_ids else OUTSIDE for word in words]
        tagged.append(Prediction(example, tags))
    return tagged


def _mark_entities(tags: Sequence[str]) -> bool:
    """Whether the tags mark entities. Others, such as parts of speech, have an accuracy only."""
    return detect_scheme([tags]) is not Scheme.PLAIN


def _format_tags(words: Sequence[str], tags: Sequence[str]) -> str:
    """Format the words with a tag other than `O` as word/tag."""
    return "  ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True) if tag != OUTSIDE)


def _predict_answers(trained: TrainedModel, batches: Batches | list[Batch], count: int | None) -> list[Prediction]:
    """Return the answers to questions."""
    questions: list[Question] = _read_examples(trained, count)
    cls_token_id = trained.tokenizer.special_ids.cls
    answers = predict.predict_answers(trained.network, batches, questions, cls_token_id, trained.recipe.training.device)
    return [Prediction(question, answers[index]) for index, question in enumerate(questions)]


# -- texts


def _continue_texts(trained: TrainedModel) -> tuple[list[tuple[str, str]], list[str]]:
    """Return prompt and continuation of the first texts, and the continuations that the network generates."""
    tokenizer = trained.tokenizer
    documents: list[Document] = _read_examples(trained, NUM_SAMPLES)
    texts = [document.text[: 64 * PROMPT_TOKENS] for document in documents]
    samples = []
    for ids in tokenizer.encode_batch_ids(texts, add_special_tokens=False):
        length = min(PROMPT_TOKENS, len(ids) // 2)
        samples.append((tokenizer.decode(ids[:length]), tokenizer.decode(ids[length : length + PROMPT_TOKENS])))
    options = GenerateOptions(max_new_tokens=PROMPT_TOKENS)
    results = GENERATE.run(Parts.of(trained), (prompt for prompt, _ in samples), options)
    return samples, [result.text for result in results]


def _fill_masks(trained: TrainedModel) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the first rows with masked tokens, the original tokens, and the network's predictions for them."""
    config, tokenizer = trained.recipe.objective, trained.tokenizer
    assert isinstance(config, objective_section.MaskedLMConfig)
    valid = _validation_batches(trained)
    rows = to_device(
        valid.select(np.arange(min(NUM_SAMPLES, len(valid.corpus)))), torch.device(trained.recipe.training.device)
    )
    objective = build_masked_lm(config, tokenizer)
    omitted = {*objective.special_tokens} - {objective.mask_token}
    torch.manual_seed(0)  # mask the same tokens at each evaluation
    labeled = objective.label_batch(rows)
    predictions = labeled.forward(trained.network, labeled.batch).logits.argmax(dim=-1)
    samples, outputs, start = [], [], 0
    for length in rows["tokens"].layout.lengths:
        span = slice(start, start + min(length, SHOWN_TOKENS))
        masked = labeled.labels[span] != IGNORE_INDEX
        ids = [token for token in labeled.batch["tokens"].values[span].tolist() if token not in omitted]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        samples.append((text, _join_tokens(tokenizer, labeled.labels[span][masked])))
        outputs.append(_join_tokens(tokenizer, predictions[span][masked]))
        start += length
    return samples, outputs


def _join_tokens(tokenizer: Tokenizer, tokens: Tensor) -> str:
    return "  ".join(tokenizer.decode([token]) for token in tokens.tolist())


# -- translations


def _translate(trained: TrainedModel, pairs: Sequence[Pair]) -> list[Prediction]:
    """Translate greedily: fast, and accurate enough to compare checkpoints.

    A network that has not learned to predict EOS would generate up to the maximum length, so the length is limited to a
    little more than that of the longest reference.
    """
    pairs = pairs if len(pairs) <= NUM_SAMPLES else trained.monitor.select(pairs)
    longest = max(map(len, trained.tokenizer.target.encode_batch_ids([pair.target for pair in pairs])), default=0)
    options = TranslateOptions(beam=1, max_new_tokens=longest + EXTRA_TOKENS)
    runner = TRANSLATE.runner(Parts.of(trained), options)
    sources = (pair.source for pair in pairs)
    results = trained.monitor.track(runner.run(sources, buffer_size=EVALUATION_BUFFER), len(pairs))
    return [Prediction(pair, result.text) for pair, result in zip(pairs, results, strict=True)]
