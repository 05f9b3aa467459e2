"""`regard convert`: from one layout or precision to another."""

from __future__ import annotations

import enum
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

BESIDE = ["tokenizer*", "vocab*", "merges.txt", "*.model", "*.spm", "special_tokens_map.json", "added_tokens.json"]
BESIDE += ["generation_config.json", "regard.json"]


class Layout(enum.StrEnum):
    """How tensors are named."""

    FAMILY = "family"
    OWN = "own"


class Dtype(enum.StrEnum):
    """The type of the numbers."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"


def convert(
    source: Annotated[Path, typer.Argument(help="A model's folder: ours or Hugging Face's, safetensors or old .bin.")],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    layout: Annotated[
        Layout, typer.Option(help="`family`: as the family publishes it, so that it opens elsewhere. `own`: our names.")
    ] = Layout.FAMILY,
    dtype: Annotated[Dtype | None, typer.Option(help="The type of the weights; as they are if left out.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Read the model in SOURCE, report on every tensor, and write it to TARGET with all that lies beside it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise typer.BadParameter(f"{target} is there and not empty: choose another name, or say --force")
    if target.resolve() == source.resolve():
        raise typer.BadParameter("TARGET is SOURCE: choose another name")
    import torch

    from regard.checkpoint.load import load
    from regard.checkpoint.save import save

    network, report = load(source)
    sys.stderr.write(report.render() + "\n")
    kind = None if dtype is None else getattr(torch, dtype.value)
    written = save(network, target, origin=report.origin, dtype=kind, own_names=layout is Layout.OWN)
    beside = sorted({path for pattern in BESIDE for path in source.glob(pattern) if path.is_file()})
    for path in beside:
        shutil.copyfile(path, target / path.name)
    names = f", with {', '.join(path.name for path in beside)}" if beside else ""
    sys.stderr.write(f"{target}: written in the layout of {written}{names}\n")
