"""`regard convert`: from one layout or precision to another."""

from __future__ import annotations

import enum
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.checkpoint.load import AnyNetwork
    from regard.engine.shortlist import Shortlist

BESIDE = ["tokenizer*", "vocab*", "merges.txt", "*.model", "*.spm", "special_tokens_map.json", "added_tokens.json"]
BESIDE += ["generation_config.json", "regard.json", "shortlist.safetensors"]


class Layout(enum.StrEnum):
    """How tensors are named."""

    FAMILY = "family"
    OWN = "own"


class Precision(enum.StrEnum):
    """What matrices are kept in."""

    INT8 = "int8"


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
    precision: Annotated[
        Precision | None, typer.Option(help="Round the matrices to bytes: a quarter of the size, and faster to run.")
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Texts, one a line, to measure on what rounding loses."),
    ] = None,
    shortlist: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="SOURCE-FILE TARGET-FILE",
            help="Parallel text, to learn from which tokens `translate --shortlist` has to score.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Read the model in SOURCE, report on every tensor, and write it to TARGET with all that lies beside it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise typer.BadParameter(f"{target} is there and not empty: choose another name, or say --force")
    if target.resolve() == source.resolve():
        raise typer.BadParameter("TARGET is SOURCE: choose another name")
    if measure is not None and precision is None:
        raise typer.BadParameter("--measure is for --precision int8: without it nothing is lost")
    if dtype is not None and precision is not None:
        raise typer.BadParameter("what is not rounded to bytes stays in float32: leave --dtype or --precision out")
    import torch

    from regard.checkpoint.load import load
    from regard.checkpoint.save import save
    from regard.engine import quantization_error
    from regard.engine import shortlist as shortlists
    from regard.engine.compiler import matrices

    network, report = load(source, dtype=torch.float32 if precision else None)
    sys.stderr.write(report.render() + "\n")
    kind = None if dtype is None else getattr(torch, dtype.value)
    in_bytes = matrices(network) if precision else ()
    learnt = _shortlist(network, source, shortlist) if shortlist else None
    own = layout is Layout.OWN
    written = save(network, target, origin=report.origin, dtype=kind, own_names=own, in_bytes=in_bytes)
    (target / shortlists.FILE).unlink(missing_ok=True)
    beside = sorted({path for pattern in BESIDE for path in source.glob(pattern) if path.is_file()})
    for path in beside:
        shutil.copyfile(path, target / path.name)
    names = f", with {', '.join(path.name for path in beside)}" if beside else ""
    sys.stderr.write(f"{target}: written in the layout of {written}{names}\n")
    (target / quantization_error.FILE).unlink(missing_ok=True)  # what --force found there
    if learnt:
        shortlists.write(target, learnt)
    if precision:
        _measure(network, source, target, measure)


def _shortlist(network: AnyNetwork, source: Path, files: tuple[Path, Path]) -> Shortlist:
    """Learn which tokens go with which, and say how short the lists become."""
    from itertools import islice

    from regard.data.example import Pair
    from regard.data.reader import read
    from regard.generation.inputs import rooms
    from regard.tasks import word_alignment
    from regard.tokenization.tokenizer_loader import load
    from regard.transformer.network import EncoderDecoder

    if not isinstance(network, EncoderDecoder):
        raise typer.BadParameter("--shortlist is for networks with an encoder and a decoder: leave it out")
    tokenizer, (one, other) = load(source), rooms(network)
    assert one is not None
    found = word_alignment.learn(read(Pair, files), tokenizer, (one.vocabulary, other.vocabulary))
    length = word_alignment.usual_length(islice(read(Pair, files), word_alignment.LINES), tokenizer, found)
    sys.stderr.write(f"shortlist: {length:,.0f} of {found.vocabulary:,} tokens for a text, on average\n")
    return found


def _measure(network: AnyNetwork, source: Path, target: Path, texts: Path | None) -> None:
    """Run what was written beside what it was made of, and keep in the folder how far apart they are."""
    from itertools import islice

    import regard.model
    from regard.engine import quantization_error
    from regard.engine.linear import Precision as Kind
    from regard.tasks import calibration
    from regard.tokenization.text_files import lines

    quantization_error.write(target, Kind.INT8, None)  # so that it is known for what it is, even if measuring fails
    rounded = regard.model.load(target, precision=Kind.INT8)
    if texts is None:
        found, on = calibration.drawn(network), "what was drawn by chance (--measure FILE: on your texts)"
    else:
        plain = regard.model.load(source)
        given = (line for _, line in islice(lines(str(texts)), calibration.COUNT * 4))
        found, on = calibration.of_texts(network, plain.tokenizer, plain.habits, given), texts.name
    loss, why = None, "there was no text to read"
    try:
        loss = quantization_error.measure(network, rounded.network, found, on) if found else None
    except ValueError as error:  # a head may look for a token that chance did not draw
        why = str(error)
    quantization_error.write(target, Kind.INT8, loss)
    sys.stderr.write(f"int8: {loss or f'what that loses was not measured: {why}'}\n")
