"""regard search: the texts of an index that are nearest to a query."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.text_io import PRECISION_OPTION, Precision


def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder that `regard embed --index` wrote.")],
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="A text, a file with one text per line, or - for standard input."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of texts to print for each query.")] = 10,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="The folder of the model, if it is no longer where it was."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="Name of a prompt of the model, or a text that is put before each query."),
    ] = None,
    precision: Annotated[Precision | None, PRECISION_OPTION] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Print the texts of INDEX that are nearest to QUERY: a line each, with its cosine, best first."""
    from regard.cli.text_io import TextInputs, load_model
    from regard.tasks.inputs import TEXT
    from regard.tasks.text_index import TextIndex, TextIndexError, check_model, read_index_info

    inputs, info = TextInputs(query, TEXT), read_index_info(index)
    folder = model or Path(info["model"]["folder"])
    if not folder.is_dir():
        raise TextIndexError(f"{index}: the model {folder} does not exist: name its folder with --model")
    check_model(info, index, folder)
    opened = TextIndex.open(index, load_model(str(folder), precision), prompt=prompt)
    for number, text in enumerate(inputs):
        for match in opened.search(text, count):
            values = match.as_json() if inputs.is_single else {"query": number, **match.as_json()}
            line = match.text.replace("\n", "\\n")
            place = "" if inputs.is_single else f"{number}\t"
            row = json.dumps(values, ensure_ascii=False) if as_json else f"{place}{match.score:.4f}\t{line}"
            sys.stdout.write(row + "\n")
        sys.stdout.flush()
    inputs.raise_error()
