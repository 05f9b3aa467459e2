"""A model: what `regard.load` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint import hub
from regard.checkpoint import load as checkpoint
from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.report import Report
from regard.checkpoint.save import save
from regard.engine import linear as engine
from regard.engine import shortlist as shortlists
from regard.engine.compiler import matrices, prepare
from regard.engine.linear import Precision
from regard.engine.shortlist import Shortlist
from regard.generation.inputs import rooms
from regard.native.memory import MappedFiles
from regard.tasks import generate as generating
from regard.tasks import generation_config
from regard.tasks import translate as translating
from regard.tasks.generate import Chance
from regard.tasks.results import Written
from regard.tokenization import tokenizer_loader as text
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.module_tree import render, tree
from regard.transformer.network import EncoderDecoder


@dataclass(frozen=True)
class Model:
    """A network with its tokenizer, and where they came from."""

    network: AnyNetwork
    report: Report
    folder: Path | None = None
    precision: Precision | None = None
    """What the network was prepared for; None where it is as it was loaded."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back, as the model's folder has it."""
        if self.folder is None:
            raise ValueError("this model has no folder, so no tokenizer: load it from a folder")
        return text.load(self.folder)

    @cached_property
    def habits(self) -> generation_config.Habits:
        """How the model's authors let it write."""
        return generation_config.read(self.folder, self.tokenizer)

    @cached_property
    def shortlist(self) -> Shortlist:
        """The tokens that go with those of a source, as the model's folder has them."""
        if not isinstance(self.network, EncoderDecoder):
            raise ValueError("a shortlist goes by the tokens of a source, and this network has no encoder to read one")
        found, (source, target) = shortlists.read(self.folder), rooms(self.network)
        assert source is not None
        found.check(source.vocabulary, target.vocabulary, self.folder or "")
        return found

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        prefix: str | None = None,
        beam: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        limit: int | None = None,
        begin: str = "",
        alignment: bool = False,
        shortlist: bool = False,
    ) -> list[Written]:
        """Translate texts, or do what else an encoder-decoder was trained for.

            model.translate(["A man rides a horse."])[0].text
            model.translate(texts, beam=5, n_best=3)          # [0].alternatives has the second and third best
            model.translate(texts, prefix="summarize: ")      # T5
            model.translate(texts, source_language="en", target_language="ro")      # mBART, T5

        What is left out is as the model's authors publish it. Nothing is cut silently: `stopped` and `truncated` tell.
        With `shortlist`, only the tokens that go with those of each text are scored: faster, and not quite the same.
        """
        wish = translating.Wish(
            source_language=source_language,
            target_language=target_language,
            prefix=prefix,
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty,
            limit=limit,
            begin=begin,
            alignment=alignment,
            shortlist=self.shortlist if shortlist else None,
        )
        return list(self.translator(wish).translate([texts] if isinstance(texts, str) else texts))

    def translator(self, wish: translating.Wish) -> translating.Translator:
        """The same for texts without end, and token by token."""
        return translating.Translator(self.network, self.tokenizer, self.habits, wish)

    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        chance: Chance | None = None,
        beam: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        repetition_penalty: float | None = None,
        no_repeat: int | None = None,
        limit: int | None = None,
        stop: Sequence[str] = (),
        end_loops: bool = False,
        control: str | None = None,
    ) -> list[Written]:
        """Continue texts.

            model.generate("Once upon a time")[0].text                                  # the likeliest tokens
            model.generate("Once upon a time", chance=Chance(seed=1, temperature=0.8))  # by chance

        `text` is the continuation alone. It ends where the model ends it, where a text of `stop` is written, where it
        goes in circles (with `end_loops`), or at the limit; `stopped` says which.
        """
        wish = generating.Wish(
            chance=chance,
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty,
            repetition_penalty=repetition_penalty,
            no_repeat=no_repeat,
            limit=limit,
            stop=tuple(stop),
            end_loops=end_loops,
            control=control,
        )
        return list(self.generator(wish).generate([prompts] if isinstance(prompts, str) else prompts))

    def generator(self, wish: generating.Wish) -> generating.Generator:
        """The same for prompts without end, and token by token."""
        return generating.Generator(self.network, self.tokenizer, self.habits, wish)

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> str:
        """Write the model to a folder, in its family's layout if it has one; says in which."""
        if self.precision is not None:
            raise ValueError("a prepared network has no weights to save: load it without a precision, or use `convert`")
        return save(self.network, folder, origin=self.report.origin, dtype=dtype)

    def __str__(self) -> str:
        return render(tree(self.network))


def load(
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    architecture: str | None = None,
    change: Mapping[str, Any] | None = None,
    precision: Precision | str | None = None,
    download: bool = False,
) -> Model:
    """Open a model: a folder of ours or of Hugging Face's.

        model = regard.load("folder")
        output = model.network(tokens)              # tokens: batch × length; output.logits, output.hidden
        print(model)                                # its parts, shapes and counts

    Nothing is fetched unless you ask for it: with `download=True`, a name such as "org/name" is looked up on the
    Hugging Face hub (with `pip install 'regard[hub]'`). The weights keep their type unless `dtype` says otherwise.
    `architecture` asks for another head than the one saved, `change` for other config values.

    With a `precision`, "fp32" or "int8", the network is prepared for inference on a CPU (`regard.engine`): it computes
    the same, faster, and learns no more.
    """
    place = hub.fetch(str(folder)) if download and not Path(folder).exists() else Path(folder)
    if precision is None:
        network, report = checkpoint.load(place, architecture=architecture, change=change, dtype=dtype, device=device)
        network.eval()
        return Model(network, report, place)
    wanted = engine.named(precision)
    if dtype not in (None, torch.float32):
        raise ValueError(f"a prepared network computes in float32: leave dtype={dtype} or the precision out")
    network, report = checkpoint.load(
        place, architecture=architecture, change=change, dtype=torch.float32, device=device, in_bytes=matrices
    )
    return Model(prepare(network, wanted, done=MappedFiles(place).let_go), report, place, wanted)
