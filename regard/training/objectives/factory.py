"""Build the objective of a recipe, once its tokenizer and network exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import ModelFolder
from regard.data.image_processor import ImageProcessor
from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.objectives.answer_continuation import AnswerContinuation
from regard.training.objectives.bpe_dropout import BpeDropout, MergeTable, merge_table
from regard.training.objectives.causal import CausalLM
from regard.training.objectives.classify import SequenceClassification
from regard.training.objectives.classify_multi_label import MultiLabelClassification
from regard.training.objectives.contrastive import Contrastive
from regard.training.objectives.distillation import Distillation
from regard.training.objectives.image_text import ImageClassification, ImageTextMatching
from regard.training.objectives.masked import MaskedLM
from regard.training.objectives.objective import CrossEntropyObjective, Objective
from regard.training.objectives.rdrop_objective import RDrop
from regard.training.objectives.regression import Regression
from regard.training.objectives.span import QuestionAnswering
from regard.training.objectives.tag import TokenClassification
from regard.training.objectives.translate import Seq2SeqLM
from regard.training.recipe import objective_section
from regard.transformer.config import Pooling


def build_objective(
    config: objective_section.AnyObjectiveConfig,
    tokenizer: Tokenizer | None,
    decoder_start: int,
    labels: Sequence[str] = (),
    device: str = "cpu",
    max_length: int | None = None,
    processor: ImageProcessor | None = None,
) -> Objective:
    """Build the objective of a recipe.

    `decoder_start` is the first input token of the decoder, and `max_length` the maximum sequence length of the
    network; a teacher is moved to `device`. BPE-dropout is the outermost wrapper, so that both passes of R-Drop, and
    student and teacher, get the same tokens.
    """
    if isinstance(config, objective_section.ImageConfig):
        assert processor is not None, "a network that reads images has a processor"
        return build_image_objective(config, processor)
    assert tokenizer is not None, "a network that reads tokens has a tokenizer"
    objective = _build_without_bpe_dropout(config, tokenizer, decoder_start, labels, device)
    if not isinstance(config, objective_section.AutoregressiveConfig) or not config.bpe_dropout:
        return objective
    return BpeDropout(
        objective=objective,
        merge_tables=_merge_tables(config, tokenizer),
        probability=config.bpe_dropout,
        max_length=_max_length(objective, max_length),
    )


def build_image_objective(config: objective_section.ImageConfig, processor: ImageProcessor) -> Objective:
    """Build the objective of a network that reads images."""
    match config:
        case objective_section.ImageClassificationConfig(label_smoothing=label_smoothing):
            return ImageClassification(processor=processor, label_smoothing=label_smoothing)
        case objective_section.ImageTextConfig():
            return ImageTextMatching(processor=processor)


def _max_length(objective: Objective, max_length: int | None) -> int | None:
    """Return the maximum sequence length of network and teacher together."""
    if not isinstance(objective, Distillation):
        return max_length
    teacher: Any = objective.teacher
    lengths = (max_length, teacher.max_length)
    return min((length for length in lengths if length is not None), default=None)


def _merge_tables(config: objective_section.AutoregressiveConfig, tokenizer: Tokenizer) -> dict[str, MergeTable]:
    """Return the merge table of each column that is split."""
    if isinstance(config, objective_section.Seq2SeqLMConfig | objective_section.GenerativeAnswerConfig):
        return {"source": tokenizer_merge_table(tokenizer), "target": tokenizer_merge_table(tokenizer.target)}
    return {"tokens": tokenizer_merge_table(tokenizer)}


def tokenizer_merge_table(tokenizer: Tokenizer) -> MergeTable:
    """Return the merge table of a tokenizer."""
    merges = tokenizer.merge_table()
    if not merges:
        raise ValueError(
            "objective.bpe_dropout needs a BPE tokenizer, and this one has no merges: use tokenizer.kind = 'bpe', or "
            "remove bpe_dropout"
        )
    return merge_table(merges, len(tokenizer))


def _build_without_bpe_dropout(
    config: objective_section.AnyObjectiveConfig,
    tokenizer: Tokenizer,
    decoder_start: int,
    labels: Sequence[str],
    device: str,
) -> Objective:
    match config:
        case objective_section.QuestionAnsweringConfig():
            return QuestionAnswering()
        case objective_section.MultiLabelConfig():
            return MultiLabelClassification()
        case objective_section.RegressionConfig():
            return Regression()
        case objective_section.ContrastiveConfig(pooling=pooling, scale=scale):
            return Contrastive(pooling=Pooling(pooling), scale=scale)
    assert not isinstance(config, objective_section.ImageConfig), "built by build_image_objective"
    objective = _build_cross_entropy(config, tokenizer, decoder_start)
    if config.rdrop:
        return RDrop(objective=objective, alpha=config.rdrop, start_epoch=config.rdrop_start_epoch)
    if config.distillation is None:
        return objective
    _check_teacher(config.distillation.teacher, tokenizer, labels)
    teacher, _ = load(config.distillation.teacher, dtype=torch.float32)
    return Distillation(
        objective=objective,
        teacher=teacher.requires_grad_(False).to(device),
        temperature=config.distillation.temperature,
        alpha=config.distillation.alpha,
    )


def _check_teacher(folder: str, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
    """Raise if the folder of a teacher has other labels or another vocabulary."""
    teacher_labels = ModelFolder(folder).labels if labels else ()
    if teacher_labels and not teacher_labels[0].startswith("LABEL_") and teacher_labels != tuple(labels):
        raise ValueError(
            f"the teacher in {folder} has the labels {', '.join(teacher_labels)}, the data has {', '.join(labels)}: "
            "both need the same labels"
        )
    try:
        teacher = load_tokenizer(folder)
    except (TokenizerError, FileNotFoundError):
        return  # the folder has no tokenizer to compare with
    if (teacher.get_vocab(), teacher.target.get_vocab()) != (tokenizer.get_vocab(), tokenizer.target.get_vocab()):
        raise ValueError(f"the teacher in {folder} has a different vocabulary: set [tokenizer] load = {folder!r}")


def _build_cross_entropy(
    config: objective_section.AnyCrossEntropyConfig, tokenizer: Tokenizer, decoder_start: int
) -> CrossEntropyObjective:
    match config:
        case objective_section.Seq2SeqLMConfig(label_smoothing=label_smoothing):
            if tokenizer.target.special_ids.eos is None and tokenizer.target.special_ids.sep is None:
                raise ValueError(
                    "the tokenizer has no end-of-sequence token, so the model could not learn to stop: use a tokenizer "
                    "with one"
                )
            return Seq2SeqLM(decoder_start=decoder_start, label_smoothing=label_smoothing)
        case objective_section.GenerativeAnswerConfig(label_smoothing=label_smoothing):
            return Seq2SeqLM(decoder_start=decoder_start, label_smoothing=label_smoothing)
        case objective_section.AnswerContinuationConfig(label_smoothing=label_smoothing):
            return AnswerContinuation(label_smoothing=label_smoothing)
        case objective_section.CausalLMConfig(label_smoothing=label_smoothing):
            return CausalLM(label_smoothing=label_smoothing)
        case objective_section.MaskedLMConfig():
            return build_masked_lm(config, tokenizer)
        case objective_section.SequenceClassificationConfig(label_smoothing=label_smoothing):
            return SequenceClassification(label_smoothing=label_smoothing)
        case objective_section.TokenClassificationConfig(label_smoothing=label_smoothing):
            return TokenClassification(label_smoothing=label_smoothing)


def build_masked_lm(config: objective_section.MaskedLMConfig, tokenizer: Tokenizer) -> MaskedLM:
    """Build masked language modelling with the special tokens of a tokenizer."""
    special = tokenizer.special_ids
    if special.mask is None:
        raise ValueError("the tokenizer has no mask token: train one with kind = 'wordpiece', or load another")
    ids = [getattr(special, name) for name in type(special).__dataclass_fields__]
    return MaskedLM(
        mask_token=special.mask,
        special_tokens=tuple(token for token in ids if token is not None),
        vocab_size=len(tokenizer),
        mask_probability=config.mask_probability,
        continuation_mask=continuation_mask(tokenizer) if config.whole_word_masking else None,
    )


def continuation_mask(tokenizer: Tokenizer) -> Tensor:
    """Return which tokens continue a word: those with ##, or those without a start marker (`Ġ`, `▁`).

    The majority of the vocabulary decides between the two, since the training text may contain the markers themselves.
    In byte-level vocabularies the end of a line (`Ċ`) belongs to no word.
    """
    vocab: dict[str, int] = tokenizer.get_vocab()
    start_markers, continuation_marker = ("Ġ", "▁", "Ċ"), "##"
    marked_starts = sum(token.startswith(start_markers) for token in vocab)
    marked_continuations = sum(token.startswith(continuation_marker) for token in vocab)
    mask = torch.zeros(len(tokenizer), dtype=torch.bool)
    for token, token_id in vocab.items():
        if marked_starts > marked_continuations:
            mask[token_id] = not token.startswith(start_markers)
        else:
            mask[token_id] = token.startswith(continuation_marker)
    return mask


def decoder_start_token(tokenizer: Tokenizer, generation_config: Mapping[str, Any]) -> int:
    """Return the first input token of the decoder: the published one, or the first of bos, cls, pad and eos."""
    published = generation_config.get("decoder_start_token_id")
    special = tokenizer.target.special_ids
    candidates = (published, special.bos, special.cls, special.pad, special.eos)
    return next((int(token) for token in candidates if token is not None), 0)
