"""Evaluation during training: task metrics on the validation data, and sample outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batch, Batches
from regard.data.encoders.encoder_base import EXAMPLE_COLUMN, IGNORE_INDEX
from regard.data.example import Document, LabeledText, Pair, Question, TaggedSentence
from regard.data.formats import Scheme
from regard.data.tag_schemes import OUTSIDE, detect_scheme
from regard.evaluation import predict
from regard.metrics import task_metrics
from regard.tasks import generate, generation_config
from regard.tasks.generate import Generator
from regard.tasks.translate import TranslateOptions, Translator
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.factory import build_masked_lm
from regard.training.recipe import objective_section
from regard.training.recipe.data_pipeline import make_source
from regard.training.run.batch_stream import to_device
from regard.training.run.run import TrainedModel

NUM_EVALUATED, NUM_SAMPLES = 500, 3
"""Number of validation texts translated at each evaluation, and number of examples shown as samples."""
EXTRA_TOKENS = 8
"""Number of tokens by which a translation may exceed the longest reference."""
PROMPT_TOKENS, SHOWN_TOKENS = 16, 40
"""Maximum number of tokens of a prompt and its continuation, and number of tokens shown of a masked text."""

LANGUAGE_MODEL_METRICS = ("loss", "perplexity", "accuracy")
METRICS: Mapping[str, tuple[str, ...]] = {
    "translate": (*LANGUAGE_MODEL_METRICS, "bleu", "chrf"),
    "summarize": (*LANGUAGE_MODEL_METRICS, "bleu", "chrf"),
    "generate": (*LANGUAGE_MODEL_METRICS, "word_perplexity"),
    "fill": LANGUAGE_MODEL_METRICS,
    "classify": ("loss", "accuracy", "macro_f1"),
    "tag": ("loss", "accuracy", "precision", "recall", "f1"),
    "answer": ("loss", "accuracy", "exact_match", "f1"),
}
"""Metrics on the validation data, by task. Any of them may select the best checkpoint (`training.best_metric`)."""

Metrics = Mapping[str, float]


def evaluate(trained: TrainedModel) -> Metrics:
    """Compute the task's metrics on the validation data. Empty for tasks that are evaluated by the loss alone."""
    match trained.recipe.task:
        case "translate" | "summarize":
            return _translation_metrics(trained)
        case "classify":
            _, references, labels = zip(*_predict_labels(trained, _validation_batches(trained)), strict=True)
            return task_metrics.classification_metrics(references, labels)
        case "tag":
            return _entity_metrics(trained)
        case "answer":
            answered = _predict_answers(trained, _validation_batches(trained), None)
            answers = [[answer.text for answer in question.answers] for question, _ in answered]
            return task_metrics.squad_metrics(answers, [prediction for _, prediction in answered])
    return {}


def sample_outputs(trained: TrainedModel) -> Sequence[str]:
    """Return a few outputs for inspection by a person: input, reference and output of each example."""
    match trained.recipe.task:
        case "translate" | "summarize":
            pairs = _read_pairs(trained, NUM_SAMPLES)
            samples = [(pair.source, pair.target) for pair in pairs]
            outputs = _translate(trained, pairs)
        case "classify":
            labeled = _predict_labels(trained, [_first_batch(trained)])
            samples, outputs = [(text, label) for text, label, _ in labeled], [label for _, _, label in labeled]
        case "tag":
            tagged = _predict_tags(trained, [_first_batch(trained)], NUM_SAMPLES)
            samples = [
                (" ".join(sentence.words), _format_tags(sentence.words, sentence.tags)) for sentence, _ in tagged
            ]
            outputs = [_format_tags(sentence.words, tags) for sentence, tags in tagged]
        case "answer":
            answered = _predict_answers(trained, [_first_batch(trained)], NUM_SAMPLES)
            samples = [
                (question.question, " | ".join(answer.text for answer in question.answers)) for question, _ in answered
            ]
            outputs = [prediction for _, prediction in answered]
        case "generate":
            samples, outputs = _continue_texts(trained)
        case "fill":
            samples, outputs = _fill_masks(trained)
    return [
        f"  {_one_line(text)}\n    reference {_one_line(reference)}\n    output    {_one_line(output)}"
        for (text, reference), output in zip(samples, outputs, strict=True)
    ]


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


def _predict_labels(trained: TrainedModel, batches: Batches | list[Batch]) -> list[tuple[str, str, str]]:
    """Return text, reference label and predicted label of the examples in these batches."""
    predictions = predict.predict_labels(trained.network, batches, trained.recipe.training.device)
    examples: list[LabeledText] = _read_examples(trained, max(predictions) + 1)
    return [(examples[i].text, str(examples[i].label), trained.labels[predictions[i]]) for i in sorted(predictions)]


def _predict_tags(
    trained: TrainedModel, batches: Batches | list[Batch], count: int | None
) -> list[tuple[TaggedSentence, list[str]]]:
    """Return sentences and the predicted tags of their words. A word without a prediction has the tag `O`."""
    predictions = predict.predict_tags(trained.network, batches, trained.recipe.training.device)
    tagged: list[tuple[TaggedSentence, list[str]]] = []
    for index, example in enumerate(_read_examples(trained, count)):
        tag_ids = predictions.get(index, {})
        words = range(len(example.words))
        tagged.append((example, [trained.labels[tag_ids[word]] if word in tag_ids else OUTSIDE for word in words]))
    return tagged


def _entity_metrics(trained: TrainedModel) -> Metrics:
    """Compute entity metrics. Empty for tags that mark no entities, such as parts of speech, which have an accuracy."""
    if detect_scheme([trained.labels]) is Scheme.PLAIN:
        return {}
    tagged = _predict_tags(trained, _validation_batches(trained), None)
    return task_metrics.entity_metrics((sentence.tags for sentence, _ in tagged), (tags for _, tags in tagged))


def _format_tags(words: Sequence[str], tags: Sequence[str]) -> str:
    """Format the words with a tag other than `O` as word/tag."""
    return "  ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True) if tag != OUTSIDE)


def _predict_answers(
    trained: TrainedModel, batches: Batches | list[Batch], count: int | None
) -> list[tuple[Question, str]]:
    """Return questions and the predicted answers."""
    questions: list[Question] = _read_examples(trained, count)
    cls_token_id = trained.tokenizer.special_ids.cls
    answers = predict.predict_answers(trained.network, batches, questions, cls_token_id, trained.recipe.training.device)
    return [(question, answers[index]) for index, question in enumerate(questions)]


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
    generator = Generator(
        trained.network,
        tokenizer,
        generation_config.read_generation_config(None, tokenizer),
        generate.GenerateOptions(max_new_tokens=PROMPT_TOKENS),
    )
    return samples, [result.text for result in generator.generate(prompt for prompt, _ in samples)]


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


def _translation_metrics(trained: TrainedModel) -> Metrics:
    import sacrebleu

    pairs = _read_pairs(trained, NUM_EVALUATED)
    translations = _translate(trained, pairs)
    references = [[pair.target for pair in pairs]]
    return {
        "bleu": sacrebleu.corpus_bleu(translations, references).score,
        "chrf": sacrebleu.corpus_chrf(translations, references).score,
    }


def _read_pairs(trained: TrainedModel, count: int) -> list[Pair]:
    return _read_examples(trained, count)


def _translate(trained: TrainedModel, pairs: Sequence[Pair]) -> list[str]:
    """Translate greedily: fast, and accurate enough to compare checkpoints.

    A network that has not learned to predict EOS would generate up to the maximum length, so the length is limited to a
    little more than that of the longest reference.
    """
    config = generation_config.read_generation_config(None, trained.tokenizer)
    longest = max(map(len, trained.tokenizer.target.encode_batch_ids([pair.target for pair in pairs])), default=0)
    options = TranslateOptions(beam=1, max_new_tokens=longest + EXTRA_TOKENS)
    translator = Translator(
        trained.network, trained.tokenizer, replace(config, decoder_start_token_id=trained.decoder_start), options
    )
    return [translation.text for translation in translator.translate(pair.source for pair in pairs)]
