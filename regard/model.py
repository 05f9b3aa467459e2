"""A model: what `regard.load` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, overload

import torch

from regard.checkpoint import hub
from regard.checkpoint import load as checkpoint
from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.report import LoadReport
from regard.checkpoint.save import save
from regard.engine.compiler import compile, quantizable_weights
from regard.engine.linear import Precision
from regard.native.memory import MappedFiles
from regard.tasks import generation_config
from regard.tasks.generate import GenerateKeywords, GenerateOptions, Generator
from regard.tasks.results import Generation, Translation
from regard.tasks.translate import TranslateKeywords, TranslateOptions, Translator
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.transformer.summary import module_tree, render_tree

HALF_PRECISIONS = ("bfloat16", "float16")
"""Precisions that are computed by torch; for the others, the engine compiles the network."""


@dataclass(frozen=True)
class Model:
    """A network with its tokenizer, as loaded from a folder."""

    network: AnyNetwork
    report: LoadReport
    """How the tensors of the checkpoint were loaded."""
    folder: Path | None = None
    precision: Precision | None = None
    """The precision that the network was compiled for; None if it is not compiled."""

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

        The options are the fields of `TranslateOptions`; `num_beams` is another name for `beam`. Their defaults are
        those of the model's generation config. Truncation is never silent: see `stopped` and `truncated` of the result.
        """
        translator = self.translator(TranslateOptions(**_rename_num_beams(dict(options))))
        results = list(translator.translate([texts] if isinstance(texts, str) else texts))
        return results[0] if isinstance(texts, str) else results

    def translator(self, options: TranslateOptions) -> Translator:
        """Return a `Translator`: `translate` takes iterators of any length, `stream` yields a translation in parts."""
        return Translator(self.network, self.tokenizer, self.generation_config, options)

    @overload
    def generate(self, prompts: str, **options: Unpack[GenerateKeywords]) -> Generation: ...  # type: ignore[overload-overlap] # as above
    @overload
    def generate(self, prompts: Iterable[str], **options: Unpack[GenerateKeywords]) -> list[Generation]: ...
    def generate(
        self, prompts: str | Iterable[str], **options: Unpack[GenerateKeywords]
    ) -> Generation | list[Generation]:
        """Continue prompts with a decoder-only network.

            model.generate("Once upon a time").text                                         # greedy
            model.generate("Once upon a time", sampling=Sampling(seed=1, temperature=0.8))  # sampled

        The options are the fields of `GenerateOptions`; `num_beams` is another name for `beam`. A string gives one
        result, a list or iterator as many as it has prompts. `text` is the continuation without the prompt. It ends at
        an EOS token, at a stop string, at a repetition (with `stop_on_repetition`), or after `max_new_tokens`;
        `stopped` is the reason.
        """
        generator = self.generator(GenerateOptions(**_rename_num_beams(dict(options))))
        results = list(generator.generate([prompts] if isinstance(prompts, str) else prompts))
        return results[0] if isinstance(prompts, str) else results

    def generator(self, options: GenerateOptions) -> Generator:
        """Return a `Generator`: `generate` takes iterators of any length, `stream` yields a continuation in parts."""
        return Generator(self.network, self.tokenizer, self.generation_config, options)

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> str:
        """Save the model to a folder, in the layout of its family if it has one; return the name of the layout."""
        if self.precision is not None:
            raise ValueError(
                "a compiled network has no weights to save: load it without a precision, or use `regard convert`"
            )
        return save(self.network, folder, origin=self.report.origin, dtype=dtype)

    def __str__(self) -> str:
        return render_tree(module_tree(self.network))


def load(
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    architecture: str | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    precision: Precision | str | None = None,
    download: bool = False,
) -> Model:
    """Load a model from a folder in the layout of regard or of Hugging Face.

        model = regard.load("folder")
        output = model.network(tokens)              # tokens: batch × length; output.logits, output.hidden
        print(model)                                # its modules, shapes and parameter counts

    Nothing is downloaded by default. With `download=True`, a name such as "org/name" is downloaded from the Hugging
    Face hub (needs `pip install 'regard[hub]'`). `architecture` selects another head than the saved one,
    `config_overrides` changes values of the config.

    `precision` is for inference. With "float32" or "int8" the network is compiled for the CPU (`regard.engine`): the
    same results, faster, and it cannot be trained. With "bfloat16" or "float16" the weights are loaded in that dtype
    and torch computes. Without it the network can be trained, and its weights have the dtype of the files, or `dtype`.
    """
    path = hub.download(str(folder)) if download and not Path(folder).exists() else Path(folder)
    if precision in HALF_PRECISIONS:
        if dtype is not None:
            raise ValueError(f"precision={precision!r} sets the dtype of the weights: remove dtype={dtype}")
        dtype, precision = getattr(torch, str(precision)), None
    if precision is None:
        network, report = checkpoint.load(
            path, architecture=architecture, config_overrides=config_overrides, dtype=dtype, device=device
        )
        network.eval()
        return Model(network, report, path)
    try:
        compiled_for = Precision(precision)
    except ValueError:
        known = "float32, bfloat16, float16, int8"
        raise ValueError(f"unknown precision {precision!r}: expected one of {known}") from None
    if dtype not in (None, torch.float32):
        raise ValueError(f"a compiled network computes in float32: remove dtype={dtype} or precision={precision!r}")
    network, report = checkpoint.load(
        path,
        architecture=architecture,
        config_overrides=config_overrides,
        dtype=torch.float32,
        device=device,
        keep_int8=quantizable_weights,
    )
    return Model(compile(network, compiled_for, on_replaced=MappedFiles(path).release), report, path, compiled_for)


def _rename_num_beams(options: dict[str, Any]) -> dict[str, Any]:
    """Accept `num_beams`, the name that transformers has for `beam`."""
    if "num_beams" in options:
        if "beam" in options:
            raise ValueError("beam and num_beams are the same option: pass only one of them")
        options["beam"] = options.pop("num_beams")
    return options
