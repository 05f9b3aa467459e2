"""The data of a recipe: tokenizer, labels, encoded corpora and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.checkpoint.model_folder import ModelFolder
from regard.data.batches import Batches, LengthBatching, PackedBatching
from regard.data.corpus import Corpus
from regard.data.encoders.encoder_base import Encoder
from regard.data.encoding import encode
from regard.data.example import Document, ImageText, LabeledText, Pair, Question, TaggedSentence
from regard.data.image_processor import ImageProcessor
from regard.data.label_ids import collect_labels
from regard.data.length_policy import LengthPolicy, SlidingWindow, StrictLength, Truncation
from regard.data.source import DataSource, fingerprints_from_json, fingerprints_to_json
from regard.files import read_json, write_json
from regard.tokenization import algorithms
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer
from regard.training.recipe.data_format import data_format, label_type
from regard.training.recipe.objective_section import DistillationSection, MultiLabelConfig
from regard.training.recipe.schema import (
    NewTokenizerSection,
    NoTokenizerSection,
    PretrainedNetworkSection,
    PretrainedTokenizerSection,
    Recipe,
)
from regard.training.run.word_perplexity import TextSize, measure_text
from regard.training.task import Rows
from regard.transformer.interface import Predicts

TOKENS_PER_IMAGE = 64
"""What an image counts in `batch_tokens`."""
DEFAULT_MAX_LENGTH = 512
"""Default maximum length of a chunk (generate), and of a window if the network has no limit (fill, tag, answer)."""


@dataclass(frozen=True)
class TrainingData:
    """The batches of a run."""

    train: Batches
    valid: Batches | None
    valid_size: TextSize | None
    """The size of the validation data of a language model, for metrics that do not depend on the tokenizer."""
    messages: tuple[str, ...]
    """Log messages: the size of the data, and how much was truncated."""


def make_source(recipe: Recipe, files: tuple[str, ...]) -> DataSource:
    """Return the examples in these files."""
    if recipe.task.example is ImageText:
        return DataSource(ImageText, files)
    return DataSource(recipe.task.example, files, data_format(recipe, files), label_type(recipe))


def read_labels(recipe: Recipe) -> tuple[str, ...]:
    """Return the labels or tags of the training data; empty for tasks without labels.

    If a pretrained network or a teacher has the same labels, they are in its order.
    """
    if not recipe.task.has_labels:
        return ()
    separator = recipe.objective.separator if isinstance(recipe.objective, MultiLabelConfig) else None
    labels = collect_labels(make_source(recipe, recipe.data.train).read(), separator)
    distillation = getattr(recipe.objective, "distillation", None)
    folders = [recipe.network.load] if isinstance(recipe.network, PretrainedNetworkSection) else []
    folders += [distillation.teacher] if isinstance(distillation, DistillationSection) else []
    for folder in folders:
        pretrained = ModelFolder(folder).labels
        if {*pretrained} == {*labels}:
            return pretrained
    return labels


def build_tokenizer(recipe: Recipe, folder: Path, *, resuming: bool = False) -> Tokenizer | None:
    """Load the tokenizer, or train it and save it to `folder`, from where a resumed run loads it.

    A resumed run keeps its tokenizer even if the data changed. None: the network reads images only.
    """
    match recipe.tokenizer:
        case NoTokenizerSection():
            return None
        case PretrainedTokenizerSection(load=path):
            return load_tokenizer(path)
        case NewTokenizerSection() as section:
            info_file = folder / "learnt"
            settings = {"seed": recipe.seed, "task": recipe.task.name, **section.model_dump()}
            previous = read_json(info_file) if info_file.is_file() else {}
            if resuming and previous and previous["settings"] != settings:
                raise ValueError(
                    f"[tokenizer] changed since the run started (was {previous['settings']}, now {settings}): restore "
                    "it, or choose another --output"
                )
            source = make_source(recipe, recipe.data.train)
            files = fingerprints_to_json(source.file_fingerprints(fingerprints_from_json(previous.get("files", {}))))
            if previous and (
                resuming
                or (previous["settings"], _content_digests(previous["files"])) == (settings, _content_digests(files))
            ):
                return load_tokenizer(folder)
            info_file.unlink(missing_ok=True)
            tokenizer = _train_tokenizer(recipe, section)
            tokenizer.save(folder)
            write_json(info_file, {"settings": settings, "files": files})  # last, so that it marks complete files
            return tokenizer


def _content_digests(files: Mapping[str, Any]) -> list[str]:
    return [fingerprint["content"] for fingerprint in files.values()]


def prepare_data(
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    labels: tuple[str, ...],
    max_length: int | None,
    cache: Path,
    processor: ImageProcessor | None = None,
) -> TrainingData:
    """Encode the files, or read them from the cache. `max_length` is that of the network."""
    encoder = make_encoder(recipe, tokenizer, labels, max_length, processor)
    train = encode(make_source(recipe, recipe.data.train), encoder, cache / "train")
    messages = [f"training data: {train.summary()}"]
    batching = _batching(recipe, max_length, processor)
    valid_batches: Batches | None = None
    if recipe.data.valid:
        valid = encode(make_source(recipe, recipe.data.valid), encoder, cache / "valid")
        messages.append(f"validation data: {valid.summary()}")
        valid_batches = Batches(valid, batching, seed=0)
    messages += _bpe_dropout_warning(recipe, batching, max_length)
    train_batches = _make_batches(train, batching, recipe.seed)
    return TrainingData(train_batches, valid_batches, _measure_valid_text(recipe, tokenizer), tuple(messages))


def _bpe_dropout_warning(
    recipe: Recipe, batching: LengthBatching | PackedBatching, max_length: int | None
) -> list[str]:
    """Warn if most chunks would exceed the maximum length of the network after splitting, and so are never split."""
    probability = getattr(recipe.objective, "bpe_dropout", 0)
    if not probability or not isinstance(batching, PackedBatching) or not max_length:
        return []
    if batching.max_length * (1 + probability) <= max_length:
        return []
    return [
        f"objective.bpe_dropout: chunks of {batching.max_length} tokens become longer, and those that exceed the "
        f"maximum length {max_length} of the network are left unsplit: reduce data.max_length"
    ]


def _measure_valid_text(recipe: Recipe, tokenizer: Tokenizer | None) -> TextSize | None:
    """Return the size of the validation data of a causal language model."""
    if tokenizer is None or recipe.task.rows is not Rows.PACKED or not recipe.data.valid:
        return None
    documents = (example for example in make_source(recipe, recipe.data.valid).read() if isinstance(example, Document))
    return measure_text(documents, tokenizer)


def _make_batches(corpus: Corpus, batching: LengthBatching | PackedBatching, seed: int) -> Batches:
    batches = Batches(corpus, batching, seed=seed)
    if not batches.steps(0):
        raise ValueError(f"{corpus.summary()}: no training batches")
    return batches


def make_encoder(
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    labels: tuple[str, ...],
    max_length: int | None,
    processor: ImageProcessor | None = None,
) -> Encoder:
    """Return the encoder that converts examples of the task to token ids, pixels and labels."""
    policy = _length_policy(recipe, max_length)
    if recipe.task.image_encoder is not None:
        assert processor is not None, "a network that reads images has a processor"
        return recipe.task.image_encoder(processor, tokenizer, labels, policy)
    assert recipe.task.encoder is not None, "a task that can be trained has an encoder"
    assert tokenizer is not None, "a network that reads tokens has a tokenizer"
    return recipe.task.encoder(tokenizer, labels, policy)


def _length_policy(recipe: Recipe, max_length: int | None) -> LengthPolicy | None:
    """Return what to do with long sequences; None if batching splits them into chunks."""
    data, rows = recipe.data, recipe.task.rows
    if rows is Rows.PACKED:
        return None
    lengths = [length for length in (data.max_length, max_length) if length is not None]
    windowed = rows in (Rows.WINDOWS, Rows.OVERLAPPING_WINDOWS)
    if not lengths:
        lengths = (
            [min(DEFAULT_MAX_LENGTH, recipe.training.batch_tokens)] if windowed else [recipe.training.batch_tokens]
        )
    length = min(*lengths, recipe.training.batch_tokens)
    match data.too_long or ("window" if windowed else "truncate"):
        case "truncate":
            return Truncation(length)
        case "error":
            return StrictLength(length)
        case _:
            overlapping = rows is not Rows.WINDOWS
            return SlidingWindow(length, data.stride or (max(1, length // 2) if overlapping else length))


def _batching(
    recipe: Recipe, max_length: int | None, processor: ImageProcessor | None = None
) -> LengthBatching | PackedBatching:
    tokens = recipe.training.batch_tokens
    if processor is not None:  # the longest column has the pixels, so the budget is counted in pixels
        channels, height, width = processor.output_shape
        return LengthBatching(tokens * max(1, channels * height * width // TOKENS_PER_IMAGE))
    if recipe.task.rows is not Rows.PACKED:
        return LengthBatching(tokens)
    length = recipe.data.max_length or min(DEFAULT_MAX_LENGTH, tokens)
    return PackedBatching(tokens, min(length, max_length or length, tokens))


def _train_tokenizer(recipe: Recipe, section: NewTokenizerSection) -> Tokenizer:
    algorithm, special_tokens = tokenizer_spec(recipe, section)

    def train(side: int | None) -> Tokenizer:
        return train_tokenizer(algorithm, _texts(recipe, side), special_tokens=special_tokens, seed=recipe.seed)

    if section.shared or recipe.task.example is not Pair:
        return train(None)
    return train(0).with_target(train(1))


def tokenizer_spec(recipe: Recipe, section: NewTokenizerSection) -> tuple[algorithms.Algorithm, SpecialTokens]:
    """Return the algorithm and the special tokens of a new tokenizer, with a mask token if the task needs one."""
    algorithm = _tokenizer_kind(section)
    needs_mask = Predicts.MASKED_TOKEN in recipe.task.predicts and algorithm.special_tokens.mask is None
    return algorithm, replace(algorithm.special_tokens, mask="<mask>") if needs_mask else algorithm.special_tokens


def _tokenizer_kind(section: NewTokenizerSection) -> algorithms.Algorithm:
    match section.kind:
        case "bpe":
            return algorithms.ByteBPE(size=section.size)
        case "wordpiece":
            return algorithms.WordPiece(size=section.size, lowercase=section.lower)
        case "unigram":
            return algorithms.Unigram(size=section.size)
        case "words":
            return algorithms.WordLevel(size=section.size)
        case "characters":
            return algorithms.CharacterLevel(size=section.size)


def _texts(recipe: Recipe, side: int | None) -> Iterator[str]:
    """Yield the texts of the training data; of pairs one side, or both."""
    for example in make_source(recipe, recipe.data.train).read():
        yield from _texts_of(example, side)


def _texts_of(example: Any, side: int | None) -> tuple[str, ...]:
    match example:
        case Pair(source=source, target=target):
            return (source, target) if side is None else ((source, target)[side],)
        case Document(text=text):
            return (text,)
        case LabeledText(text=text, pair=pair):
            return (text,) if pair is None else (text, pair)
        case TaggedSentence(words=words):
            return (" ".join(words),)
        case ImageText(text=text):
            return (text,)
        case Question(question=question, context=context):
            return (question, context)
    raise TypeError(f"unknown example type: {type(example).__name__}")
