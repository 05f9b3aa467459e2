"""Evaluation during training: task metrics on the validation data, and sample outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from regard.checkpoint.model_folder import FITTED_KEYS, ModelInfo
from regard.checkpoint.sentence_folder import SentenceEncoder
from regard.data.batches import Batches
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.data.example import Document, Pair, TaggedSentence
from regard.data.tag_schemes import OUTSIDE
from regard.evaluation.embedding_metrics import evaluate_captions, evaluate_text_pairs
from regard.tasks.generate import GENERATE, GenerateOptions
from regard.tasks.generation_config import GenerationConfig, read_generation_config
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.factory import build_masked_lm
from regard.training.recipe import objective_section
from regard.training.recipe.data_pipeline import make_source
from regard.training.run.batch_stream import to_device
from regard.training.run.run import TrainedModel
from regard.training.task import AnyTask

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
    result: Any
    """The result of the task."""


@dataclass(frozen=True)
class Parts:
    """A model during its training, as a task sees it (`ModelParts`)."""

    network: Any
    tokenizer: Any
    """None for a network that reads images only."""
    generation_config: GenerationConfig
    labels: tuple[str, ...]
    info: ModelInfo
    sentence_encoder: SentenceEncoder | None = None
    image_processor: Any = None

    @classmethod
    def of(cls, trained: TrainedModel) -> Parts:
        """Return the parts of a model that is being trained."""
        config: Any = None
        if trained.tokenizer is not None:
            config = read_generation_config(None, trained.tokenizer)
            config = replace(config, decoder_start_token_id=trained.decoder_start)
        info = cast(ModelInfo, {key: value for key, value in trained.info.items() if key not in FITTED_KEYS})
        encoder, processor = trained.sentence_encoder, trained.processor
        return cls(trained.network, trained.tokenizer, config, trained.labels, info, encoder, processor)


def evaluate(trained: TrainedModel) -> Mapping[str, float]:
    """Compute the task's metrics on the validation data. Empty for tasks that are evaluated by the loss alone.

    What the task fits to validation data, such as a temperature, is put into `trained.info`.
    """
    match trained.recipe.objective.kind:
        case "contrastive":
            return evaluate_text_pairs(Parts.of(trained), _read_examples(trained, None))
        case "image_text":
            return evaluate_captions(Parts.of(trained), _read_examples(trained, None))
    metrics = trained.recipe.task.metrics
    if metrics.compute is None:
        return {}
    predictions = _predict(trained, None)
    references = [metrics.reference_of(each.example) for each in predictions]
    outputs = [metrics.prediction_of(each.result) for each in predictions]
    if metrics.calibrate is not None:
        trained.info.update(metrics.calibrate(references, outputs))
    return metrics.compute(references, outputs)


def sample_outputs(trained: TrainedModel) -> Sequence[str]:
    """Return lines for inspection by a person: input, reference and output of a few examples."""
    if trained.recipe.objective.kind in ("contrastive", "image_text", "classify_images"):
        return []  # vectors and images are no text to show
    match trained.recipe.task.name:
        case "generate":
            samples, outputs = _continue_texts(trained)
        case "fill":
            samples, outputs = _fill_masks(trained)
        case _:
            predictions, task = _predict(trained, NUM_SAMPLES), trained.recipe.task
            samples = [(_first(task, each.example), _reference(task, each.example)) for each in predictions]
            outputs = [" | ".join(each.result.as_lines()) for each in predictions]
    return [
        line
        for (text, reference), output in zip(samples, outputs, strict=True)
        for line in (
            f"  {_one_line(text)}",
            f"    reference {_one_line(reference)}",
            f"    output    {_one_line(output)}",
        )
    ]


def _first(task: AnyTask, example: Any) -> str:
    """Return the text of an example; of a pair, the first text."""
    assert task.input_of is not None
    value = task.input_of(example)
    if isinstance(value, str):
        return value
    return " ".join(value) if isinstance(example, TaggedSentence) else str(value[0])


def _reference(task: AnyTask, example: Any) -> str:
    if isinstance(example, TaggedSentence):
        return "  ".join(
            f"{word}/{tag}" for word, tag in zip(example.words, example.tags, strict=True) if tag != OUTSIDE
        )
    reference = task.metrics.reference_of(example)
    return " | ".join(map(str, reference)) if isinstance(reference, list | tuple) else str(reference)


def _predict(trained: TrainedModel, count: int | None) -> list[Prediction]:
    """Return the results for the first `count` examples; None stands for all, or for the first of many texts."""
    task = trained.recipe.task
    if task.example is Pair:
        return _translate(trained, _read_examples(trained, count or NUM_EVALUATED))
    assert task.input_of is not None
    examples = _read_examples(trained, count)
    selected = examples if count is not None else trained.monitor.select(examples)
    runner = task.runner(Parts.of(trained), task.options())
    results = runner.run(map(task.input_of, selected), buffer_size=EVALUATION_BUFFER)
    tracked = trained.monitor.track(results, len(selected))
    return [Prediction(example, result) for example, result in zip(selected, tracked, strict=True)]


def _one_line(text: str) -> str:
    return " ↵ ".join(text.splitlines())


def _validation_batches(trained: TrainedModel) -> Batches:
    assert trained.valid_batches is not None, "no validation data to evaluate on"
    return trained.valid_batches


def _read_examples(trained: TrainedModel, count: int | None) -> list[Any]:
    return list(islice(make_source(trained.recipe, trained.recipe.data.valid).read(), count))


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
    task = trained.recipe.task
    runner = task.runner(Parts.of(trained), task.options(beam=1, max_new_tokens=longest + EXTRA_TOKENS))
    sources = (pair.source for pair in pairs)
    results = trained.monitor.track(runner.run(sources, buffer_size=EVALUATION_BUFFER), len(pairs))
    return [Prediction(pair, result) for pair, result in zip(pairs, results, strict=True)]
