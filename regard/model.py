"""A model: what `regard.load` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint import hub
from regard.checkpoint import load as checkpoint
from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.report import Report
from regard.checkpoint.save import save
from regard.transformer.describe import render, tree


@dataclass(frozen=True)
class Model:
    """A network, and where it came from."""

    network: AnyNetwork
    report: Report

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> str:
        """Write the model to a folder, in its family's layout if it has one; says in which."""
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
    download: bool = False,
) -> Model:
    """Open a model: a folder of ours or of Hugging Face's.

        model = regard.load("folder")
        output = model.network(tokens)              # tokens: batch × length; output.logits, output.hidden
        print(model)                                # its parts, shapes and counts

    Nothing is fetched unless you ask for it: with `download=True`, a name such as "org/name" is looked up on the
    Hugging Face hub (with `pip install 'regard[hub]'`). The weights keep their type unless `dtype` says otherwise.
    `architecture` asks for another head than the one saved, `change` for other config values.
    """
    place = hub.fetch(str(folder)) if download and not Path(folder).exists() else Path(folder)
    network, report = checkpoint.load(place, architecture=architecture, change=change, dtype=dtype, device=device)
    return Model(network, report)
