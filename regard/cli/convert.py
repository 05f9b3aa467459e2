"""`regard convert`: convert a model to another layout or precision."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.text_io import Precision
from regard.progress import write_note

if TYPE_CHECKING:
    from regard.checkpoint.load import AnyNetwork


class Layout(enum.StrEnum):
    """Naming scheme of the tensors."""

    FAMILY = "family"
    REGARD = "regard"
    OWN = "own"
    """The former name of `regard`, still accepted."""


def convert(
    source: Annotated[
        Path, typer.Argument(help="Model folder in the regard or the Hugging Face layout (safetensors or .bin).")
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write.")],
    layout: Annotated[
        Layout,
        typer.Option(
            metavar="family|regard",
            help="Tensor names: `family` is the published layout, which other libraries read; `regard` is ours.",
        ),
    ] = Layout.FAMILY,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Data type of the weights; int8 quantizes the matrices: a quarter of the size, faster. [unchanged]"
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Texts, one per line, on which the quantization error of int8 is measured.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Write into a folder that is not empty; write int8 weights that change the predictions."
        ),
    ] = False,
) -> None:
    """Load the model in SOURCE, report how every tensor was loaded, and save it with its tokenizer in TARGET."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise typer.BadParameter(f"{target} exists and is not empty: choose another name, or add --force")
    if os.path.realpath(target) == os.path.realpath(source):
        raise typer.BadParameter("TARGET is the same folder as SOURCE: choose another name")
    quantize = precision is Precision.INT8
    if calibration is not None and not quantize:
        raise typer.BadParameter("--calibration requires --precision int8: it measures the quantization error")
    import torch

    from regard.checkpoint.load import load
    from regard.checkpoint.model_folder import INFO_FILE, ModelFolder
    from regard.checkpoint.save import save
    from regard.engine.compiler import quantizable_weights

    network, report = load(source, dtype=torch.float32 if quantize else None)
    write_note(report.render())
    dtype = None if precision is None or quantize else getattr(torch, precision.value)
    quantized = quantizable_weights(network) if quantize else ()
    regard_layout = layout is not Layout.FAMILY
    companions = ModelFolder(source).companions()
    names = sorted([*companions.files, *([INFO_FILE] if companions.info else [])])
    saved_layout = save(
        network,
        target,
        origin=report.origin,
        dtype=dtype,
        regard_layout=regard_layout,
        int8_weights=quantized,
        companions=companions,
    )
    with_names = f", with {', '.join(names)}" if names else ""
    write_note(f"{target}: saved in the layout of {saved_layout}{with_names}")
    if quantize:
        _check_quantization_error(network, source, target, calibration, force)


def _check_quantization_error(network: AnyNetwork, source: Path, target: Path, texts: Path | None, force: bool) -> None:
    """Compare the saved network with the original one, and record the error. Remove it if the two differ too much."""
    import shutil
    from itertools import islice

    import regard.model
    from regard.checkpoint.model_folder import ModelFolder
    from regard.engine import quantization_error
    from regard.engine.linear import Precision as EnginePrecision
    from regard.tasks import calibration
    from regard.tokenization.text_files import read_lines
    from regard.transformer.interface import Predicts

    if texts is None:
        bos_token_id = calibration.bos_token_id(ModelFolder(source))
        samples = calibration.random_samples(network, bos_token_id=bos_token_id)
        dataset = "random tokens (--calibration FILE: on your texts)"
    else:
        model = regard.model.load(source)
        lines = (line for _, line in islice(read_lines(str(texts)), calibration.NUM_SAMPLES * 4))
        samples = calibration.samples_from_texts(network, model.tokenizer, model.generation_config, lines)
        dataset = texts.name
    # Record int8 first: the record is then there even if the measurement fails.
    quantization_error.write_quantization_record(ModelFolder(target), EnginePrecision.INT8, None)
    quantized = regard.model.load(target, precision=EnginePrecision.INT8).network
    metrics, reason = None, "there are no texts to measure on"
    if samples:
        try:
            metrics = quantization_error.measure_quantization_error(network, quantized, samples, dataset)
        except ValueError as error:  # a head may need a token that is not among the random ones
            reason = str(error)
    write_note(f"int8: {metrics or f'the quantization error was not measured: {reason}'}")
    fault = None if metrics is None else metrics.fault(Predicts.NEXT_TOKEN in network.predicts)
    if fault and not force:
        shutil.rmtree(target)  # it was not there before, or empty
        raise ValueError(
            f"int8 changes what this model predicts: {fault}. Nothing was written. Keep float32, measure on your own "
            "texts (--calibration FILE), or add --force to write it all the same"
        )
    quantization_error.write_quantization_record(ModelFolder(target), EnginePrecision.INT8, metrics)
