"""A model: what `regard.load` returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch

from regard.checkpoint import hub
from regard.checkpoint import load as checkpoint
from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.model_folder import ModelFolder, ModelInfo, find_model
from regard.checkpoint.report import LoadReport
from regard.checkpoint.save import save
from regard.checkpoint.sentence_folder import SentenceEncoder, read_sentence_encoder
from regard.data.image_processor import ImageProcessor, default_processor, read_image_processor
from regard.engine.compiled_copy import CompiledCopy
from regard.engine.compiler import compile, quantizable_weights
from regard.engine.linear import Precision
from regard.engine.quantization_error import QuantizationWarning, read_quantization_record
from regard.native.memory import MappedFiles
from regard.tasks import calibration, generation_config
from regard.tasks.answer import ANSWER, AnswerKeywords, QuestionAnswer
from regard.tasks.classify import CLASSIFY, Classification, ClassifyKeywords
from regard.tasks.embed import EMBED, EmbedKeywords, TextVector
from regard.tasks.fill import FILL, Filling, FillKeywords
from regard.tasks.generate import GENERATE, GenerateKeywords, Generation
from regard.tasks.inputs import Image, TextPair
from regard.tasks.model_parts import InferenceParts
from regard.tasks.options import options_from_keywords
from regard.tasks.registry import TASKS, check_network, find_task
from regard.tasks.summarize import SUMMARIZE, SummarizeKeywords, Summary
from regard.tasks.tag import TAG, Tagging, TagKeywords, Words
from regard.tasks.translate import TRANSLATE, TranslateKeywords, Translation
from regard.threads import warn_if_torch_was_first
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.task import AnyTask
from regard.transformer.interface import Predicts, Reads
from regard.transformer.summary import module_tree, render_tree

TORCH_PRECISIONS = ("float64", "bfloat16", "float16")
"""Precisions that torch computes; for the others, the engine compiles the network."""
HALF_PRECISIONS = (torch.float16, torch.bfloat16)
"""Data types of files that a CPU computes in float32: float16 overflows in some models, and most CPUs lack both."""


@dataclass(frozen=True)
class Model:
    """A network with its tokenizer, as loaded from a folder."""

    network: AnyNetwork
    """The network. It can be trained and inspected, unless it was compiled when it was loaded (`precision`)."""
    report: LoadReport
    """How the tensors of the checkpoint were loaded."""
    folder: Path | None = None
    precision: Precision | None = None
    """The precision that the network was compiled for when it was loaded; None if it can be trained."""
    compiled: CompiledCopy | None = field(default=None, repr=False, compare=False)
    """The copy of the network that the tasks use, compiled at their first use."""

    @property
    def inference_network(self) -> Any:
        """The network that the tasks use: computes the same as `network`, faster, but cannot be trained."""
        return self.network if self.compiled is None else self.compiled.current()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in the model's folder."""
        if self.folder is None:
            raise ValueError("this model has no folder, so no tokenizer: load it from a folder")
        return load_tokenizer(self.folder)

    @cached_property
    def generation_config(self) -> generation_config.GenerationConfig:
        """The generation config in the model's folder."""
        return generation_config.read_generation_config(self.folder, self.tokenizer)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels, in the order of the logits; empty if the model has none."""
        return () if self.folder is None else ModelFolder(self.folder).labels

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder | None:
        """Pooling, maximum length and prompts of a sentence encoder; None if the model's folder has none."""
        return None if self.folder is None else read_sentence_encoder(self.folder)

    @cached_property
    def image_processor(self) -> ImageProcessor | None:
        """How images become pixel values: from the model's folder, else the usual way for its network."""
        processor = None if self.folder is None else read_image_processor(self.folder)
        return processor or default_processor(self.network)

    @cached_property
    def info(self) -> ModelInfo:
        """The content of regard.json: the task that the model was made for, temperature, metrics …"""
        return {} if self.folder is None else ModelFolder(self.folder).info

    @overload
    def translate(self, texts: str, **options: Unpack[TranslateKeywords]) -> Translation: ...  # type: ignore[overload-overlap] # a string is an iterable of strings too
    @overload
    def translate(self, texts: Iterable[str], **options: Unpack[TranslateKeywords]) -> list[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], **options: Unpack[TranslateKeywords]
    ) -> Translation | list[Translation]:
        """Translate texts, or run another task that an encoder-decoder was trained for.

            model.translate("A man rides a horse.").text      # a string gives one result
            model.translate(texts, beam=5, n_best=3)          # a list of results; [0].alternatives has two more
            model.translate(texts, prefix="summarize: ")      # T5
            model.translate(texts, source_language="en", target_language="ro")      # mBART, T5

        The options are the fields of `TranslateOptions`; `num_beams` is another name for `beam`. Truncation is never
        silent: see `stopped` and `truncated` of the result.
        """
        return self._use(TRANSLATE, texts, options)

    @overload
    def generate(self, prompts: str, **options: Unpack[GenerateKeywords]) -> Generation: ...  # type: ignore[overload-overlap] # as above
    @overload
    def generate(self, prompts: Iterable[str], **options: Unpack[GenerateKeywords]) -> list[Generation]: ...
    def generate(
        self, prompts: str | Iterable[str], **options: Unpack[GenerateKeywords]
    ) -> Generation | list[Generation]:
        """Continue prompts with a decoder-only network.

            model.generate("Once upon a time").text                                         # greedy
            model.generate("Once upon a time", temperature=0.8, top_p=0.9, seed=1)          # sampled

        The options are the fields of `GenerateOptions` and of `Sampling`. Without a seed, one is drawn for the call.
        `text` is the continuation without the prompt. It ends at an EOS token, at a stop string, at a repetition (with
        `stop_on_repetition`), or after `max_new_tokens`; `stopped` is the reason.
        """
        return self._use(GENERATE, prompts, options)

    @overload
    def classify(self, inputs: str | TextPair | Image, **options: Unpack[ClassifyKeywords]) -> Classification: ...  # type: ignore[overload-overlap] # as above
    @overload
    def classify(
        self, inputs: Iterable[str | TextPair | Image], **options: Unpack[ClassifyKeywords]
    ) -> list[Classification]: ...
    def classify(
        self, inputs: str | TextPair | Image | Iterable[str | TextPair | Image], **options: Unpack[ClassifyKeywords]
    ) -> Classification | list[Classification]:
        """Return the labels of texts, pairs of texts or images, with their probabilities.

            model.classify("A fine film.").label                     # "positive"
            model.classify(texts)[0].scores                          # {"positive": 0.98, "negative": 0.02}
            model.classify(("It rains.", "It is dry."))              # a pair of texts
            model.classify(Path("a.jpg"), labels="a dog, a cat")     # an image, with CLIP

        The options are the fields of `ClassifyOptions`.
        """
        return self._use(CLASSIFY, inputs, options)

    @overload
    def embed(self, inputs: str | Image, **options: Unpack[EmbedKeywords]) -> TextVector: ...  # type: ignore[overload-overlap] # as above
    @overload
    def embed(self, inputs: Iterable[str | Image], **options: Unpack[EmbedKeywords]) -> list[TextVector]: ...
    def embed(
        self, inputs: str | Image | Iterable[str | Image], **options: Unpack[EmbedKeywords]
    ) -> TextVector | list[TextVector]:
        """Return the vectors of texts, or of images.

            model.embed("A fine film.").vector                       # 384 numbers
            model.embed(texts, prompt="query: ", truncate_dim=256)
            model.embed("A fine film.", tokens=True).words           # the vector of each word in its context
            model.embed(["a.jpg", "b.jpg"], images=True)             # with CLIP

        The options are the fields of `EmbedOptions`.
        """
        return self._use(EMBED, inputs, options)

    @overload
    def summarize(self, texts: str, **options: Unpack[SummarizeKeywords]) -> Summary: ...  # type: ignore[overload-overlap] # as above
    @overload
    def summarize(self, texts: Iterable[str], **options: Unpack[SummarizeKeywords]) -> list[Summary]: ...
    def summarize(self, texts: str | Iterable[str], **options: Unpack[SummarizeKeywords]) -> Summary | list[Summary]:
        """Summarize texts with an encoder-decoder.

            model.summarize(article).text
            model.summarize(articles, length=30)             # about 30 words each

        The options are the fields of `SummarizeOptions`. A text that is too long for the network is summarized in
        parts; `chunks` of the result is their number.
        """
        return self._use(SUMMARIZE, texts, options)

    @overload
    def tag(self, texts: str | Words, **options: Unpack[TagKeywords]) -> Tagging: ...  # type: ignore[overload-overlap] # as above
    @overload
    def tag(self, texts: Iterable[str | Words], **options: Unpack[TagKeywords]) -> list[Tagging]: ...
    def tag(
        self, texts: str | Words | Iterable[str | Words], **options: Unpack[TagKeywords]
    ) -> Tagging | list[Tagging]:
        """Tag the words of texts, and find the entities that the tags mark.

            model.tag("Anna lives in New York.").entities    # text, type, start, end and score of each
            model.tag(("Anna", "lives", "in", "Rome")).tags  # a tuple of words is one text

        The options are the fields of `TagOptions`.
        """
        return self._use(TAG, texts, options)

    @overload
    def answer(self, questions: TextPair, **options: Unpack[AnswerKeywords]) -> QuestionAnswer: ...
    @overload
    def answer(self, questions: Iterable[TextPair], **options: Unpack[AnswerKeywords]) -> list[QuestionAnswer]: ...
    def answer(
        self, questions: TextPair | Iterable[TextPair], **options: Unpack[AnswerKeywords]
    ) -> QuestionAnswer | list[QuestionAnswer]:
        """Answer questions about contexts; a question and its context are a tuple.

            model.answer(("Who lives in Rome?", context)).text     # empty if there is no answer
            model.answer((question, context), n_best=3).alternatives

        The options are the fields of `AnswerOptions`. A network with a span head finds a part of the context, with
        `start` and `end`; others generate a text.
        """
        return self._use(ANSWER, questions, options)

    @overload
    def fill(self, texts: str, **options: Unpack[FillKeywords]) -> Filling: ...  # type: ignore[overload-overlap] # as above
    @overload
    def fill(self, texts: Iterable[str], **options: Unpack[FillKeywords]) -> list[Filling]: ...
    def fill(self, texts: str | Iterable[str], **options: Unpack[FillKeywords]) -> Filling | list[Filling]:
        """Fill in the masks of texts.

            model.fill("The [MASK] barks.").text             # with the most likely word
            model.fill("The [MASK] barks.").proposals[0]     # the five most likely words with their probabilities

        A mask is written [MASK], <mask> or <extra_id_0>, whichever model it is. The options are the fields of
        `FillOptions`.
        """
        return self._use(FILL, texts, options)

    def prepare(self, task: AnyTask | str, options: Any = None, **keywords: Any) -> Any:
        """Join the model with the options of a task, for inputs of any number, or for one that is streamed.

        for result in model.prepare("translate", beam=5).run(lines): ...        # results come as they are ready
        for piece in model.prepare("generate").stream("Once upon a time"): ...  # parts of the text, then the result
        """
        declared = find_task(task) if isinstance(task, str) else task
        check_network(declared, self.network, self.info)
        if options is None:
            options = options_from_keywords(declared.options, keywords)
        return declared.runner(self._inference_parts(), options)

    def _inference_parts(self) -> Any:
        return InferenceParts(self, self.inference_network)

    def _use(self, task: AnyTask, inputs: Any, keywords: Mapping[str, Any]) -> Any:
        """Run a task: one input gives one result, a list or an iterator gives a list of results."""
        runner = self.prepare(task, **keywords)
        if task.input.is_single(inputs):
            return next(runner.run([inputs]))
        return list(runner.run(inputs))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the method of a task that has no typed method here."""
            if name not in TASKS:
                raise AttributeError(f"Model has no attribute {name!r}")
            return lambda inputs, **keywords: self._use(TASKS[name], inputs, keywords)

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, padding_side: str = "right"
    ) -> dict[str, torch.Tensor]:
        """Return the token ids of texts as a padded tensor, with its mask: the arguments of the network.

            model.network(**model.encode_batch(["A text.", "A longer text."])).logits

        The mask is True at real tokens. The names are those of the network's arguments: `tokens` and `mask`, or
        `source` and `mask` for an encoder-decoder. Pairs of texts have `segments` too if the network has them.
        """
        if padding_side not in ("right", "left"):
            raise ValueError(f"padding_side is {padding_side!r}: expected 'right' or 'left'")
        encodings = self.tokenizer.encode_batch(texts, pairs)
        longest = max((len(encoding.ids) for encoding in encodings), default=0)
        pad = self.tokenizer.special_ids.pad or 0

        def padded(rows: Iterable[Sequence[int]], value: int) -> torch.Tensor:
            fills = ((list(row), [value] * (longest - len(row))) for row in rows)
            joined = [row + fill if padding_side == "right" else fill + row for row, fill in fills]
            return torch.tensor(joined, dtype=torch.long, device=next(self.network.parameters()).device)

        name = "source" if self.network.reads is Reads.SOURCE_AND_TARGET else "tokens"
        batch = {
            name: padded((encoding.ids for encoding in encodings), pad),
            "mask": padded(([1] * len(encoding.ids) for encoding in encodings), 0).bool(),
        }
        if pairs is not None and self.network.reads_segments:
            batch["segments"] = padded((encoding.segments for encoding in encodings), 0)
        return batch

    def save(self, folder: str | Path, *, precision: str | None = None, overwrite: bool = False) -> str:
        """Save the model to a folder, in the layout of its family if it has one; return the name of the layout.

        The folder holds all that the model's own folder holds: weights, config, tokenizer, generation config, labels,
        regard.json. Such files of another model that was saved there before are replaced or removed. `precision` is the
        data type of the saved weights: float64, float32, bfloat16 or float16. By default it is that of the network, or
        that of the files if they hold float16 or bfloat16 and `load` converted it to float32. A folder that holds other
        files or a model of another config raises a FileExistsError, unless `overwrite` is true.
        """
        if self.precision is not None:
            raise ValueError(
                "a compiled network has no weights to save: load it without a precision, or use `regard convert`"
            )
        if precision not in (None, "float32", *TORCH_PRECISIONS):
            raise ValueError(f"weights cannot be saved in {precision!r} here: use `regard convert --precision`")
        dtype = self._stored_dtype() if precision is None else getattr(torch, precision)
        companions = None if self.folder is None else ModelFolder(self.folder).companions()
        if companions is not None and self.report.newly_initialized:
            companions = companions.without_head()
        own = self.folder is not None and Path(folder).resolve() == self.folder.resolve()
        return save(
            self.network,
            folder,
            origin=self.report.origin,
            dtype=dtype,
            companions=companions,
            overwrite=overwrite or own,
        )

    def _stored_dtype(self) -> torch.dtype | None:
        """Return the data type of the files if `load` converted it, else None."""
        converted = self.compiled is not None and self.report.dtype in HALF_PRECISIONS
        return self.report.dtype if converted and next(self.network.parameters()).dtype == torch.float32 else None

    def __str__(self) -> str:
        return render_tree(module_tree(self.network))


def load(
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    precision: Precision | str | None = None,
    architecture: str | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    download: bool = False,
) -> Model:
    """Load a model from a folder in the layout of regard or of Hugging Face.

        model = regard.load("folder")
        output = model.network(tokens)              # tokens: batch × length; output.logits, output.hidden
        print(model)                                # its modules, shapes and parameter counts

    Nothing is downloaded by default. With `download=True`, a name such as "org/name" is downloaded from the Hugging
    Face hub (needs `pip install 'regard[hub]'`). `architecture` selects another head than the saved one,
    `config_overrides` changes values of the config.

    Without a precision the network is a plain torch module that can be trained. On a CPU it computes in float32, also
    if the files hold float16 or bfloat16 (`save` writes these again). The tasks (`model.translate`, …) use a copy of it
    that is compiled at their first use, and again after the weights changed: int8 if the folder holds int8, else
    float32.

    With the precision "float32" or "int8" only the compiled network is kept: less memory, but it cannot be trained.
    int8 is checked on random samples; a `QuantizationWarning` says if it changes what this model predicts. With
    "float64", "bfloat16" or "float16" the weights are converted and torch computes. float16 overflows in some models
    (T5), whose logits are then NaN.
    """
    warn_if_torch_was_first()
    _check_device(device)
    path = hub.download(str(folder)) if download and not Path(folder).exists() else find_model(folder)
    if precision is None or precision in TORCH_PRECISIONS:
        dtype = None if precision is None else getattr(torch, str(precision))
        network, report = checkpoint.load(
            path, architecture=architecture, config_overrides=config_overrides, dtype=dtype, device=device
        )
        if precision is None and torch.device(device).type == "cpu":
            return Model(network, report, path, compiled=_widen_and_compile_later(network, report, path))
        return Model(network, report, path)
    try:
        compiled_for = Precision(precision)
    except ValueError:
        known = ", ".join((*TORCH_PRECISIONS, *(each.value for each in Precision)))
        raise ValueError(f"unknown precision {precision!r}: expected one of {known}") from None
    network, report = checkpoint.load(
        path,
        architecture=architecture,
        config_overrides=config_overrides,
        dtype=torch.float32,
        device=device,
        keep_int8=quantizable_weights,
    )
    compiled = compile(network, compiled_for, on_replaced=MappedFiles(path).release)
    if compiled_for is Precision.INT8:
        _warn_if_inaccurate(network, compiled, ModelFolder(path))
    return Model(compiled, report, path, compiled_for)


def _check_device(device: torch.device | str) -> None:
    """Raise a ValueError if this machine does not have a device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device {str(device)!r} is not available: {reason}; use device='cpu'") from None


def _widen_and_compile_later(network: AnyNetwork, report: LoadReport, folder: Path) -> CompiledCopy:
    """Convert float16 and bfloat16 weights to float32, and return a copy that is compiled at its first use."""
    if report.dtype in HALF_PRECISIONS:
        network.float()
    record = read_quantization_record(ModelFolder(folder))
    return CompiledCopy(network, record[0] if record else Precision.FLOAT32, MappedFiles(folder).release)


def _warn_if_inaccurate(network: AnyNetwork, compiled: AnyNetwork, folder: ModelFolder) -> None:
    """Warn if int8 changes what the network predicts. For an int8 folder, `regard convert` has measured it."""
    record = read_quantization_record(folder)
    if record:
        metrics = record[1]
    else:
        bos_token_id, count = calibration.bos_token_id(folder), calibration.NUM_QUICK_SAMPLES
        samples = calibration.random_samples(compiled, bos_token_id=bos_token_id, count=count)
        metrics = calibration.measure(network, compiled, samples, "random tokens")
    fault = None if metrics is None else metrics.fault(Predicts.NEXT_TOKEN in network.predicts)
    if fault:
        warnings.warn(
            f"int8 changes what this model predicts: {fault}. Texts may be wrong: use float32",
            QuantizationWarning,
            stacklevel=3,
        )
