"""regard embed: vectors of texts, to standard output, a file or an index."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.task_command import TaskCall, build_options, run_task, task_parameters
from regard.progress import write_note
from regard.tasks.embed import EMBED

if TYPE_CHECKING:
    from regard.cli.image_io import ImageInputs
    from regard.cli.text_io import TextInputs
    from regard.tasks.embed import TextVector

OUTPUT = typer.Option(
    "--output", "-o", metavar="FILE", help="Write the vectors to this file: a matrix (.npy) or JSON Lines (.jsonl)."
)
INDEX = typer.Option(
    "--index", metavar="FOLDER", help="Write the texts and their vectors to this folder, for `regard search`."
)


def embed_command() -> Callable[..., None]:
    """Return the function of the command: that of the task, with --output and --index."""

    def command(*, output: Path | None, index: Path | None, **values: Any) -> None:
        call = TaskCall.of(values)
        if output is None and index is None:
            run_task(EMBED, call, values)
        else:
            _write_files(call, values, output, index)

    extra = [("output", Path | None, OUTPUT), ("index", Path | None, INDEX)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [*task_parameters(EMBED)]
    parameters += [
        inspect.Parameter(name, keyword, annotation=Annotated[annotation, option], default=None)
        for name, annotation, option in extra
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = f"{EMBED.summary}\n\n{EMBED.details}"
    return command


def _write_files(call: TaskCall, values: dict[str, Any], output: Path | None, index: Path | None) -> None:
    from regard.cli.task_command import open_task
    from regard.cli.text_io import ResultNotes, usage_errors
    from regard.tasks.text_index import write_index

    with usage_errors():
        options = build_options(EMBED, values, as_json=True)
    _check_targets(options, output, index)
    inputs, runner = open_task(EMBED, call, options)
    notes = ResultNotes()

    def count(results: Iterable[tuple[str, TextVector]]) -> Iterator[tuple[str, TextVector]]:
        for text, result in results:
            notes.add(result)
            yield text, result

    results = count(_with_texts(runner, inputs))
    if index is not None:
        number = write_index(index, Path(call.model), options, results)
        write_note(f"{index}: {number:,} texts. Search with: regard search {index} QUERY")
    else:
        assert output is not None
        _write_vectors(output, results, options.int8)
    notes.write()


def _check_targets(options: Any, output: Path | None, index: Path | None) -> None:
    if output is not None and index is not None:
        raise typer.BadParameter("--output and --index: choose one of them")
    if output is not None and output.suffix not in (".npy", ".jsonl"):
        raise typer.BadParameter(f"--output {output}: expected a name that ends in .npy or .jsonl")
    if options.tokens and (output is None or output.suffix != ".jsonl"):
        raise typer.BadParameter("--tokens gives a list of vectors for each text: write them to a .jsonl file")
    if index is not None and options.images:
        raise typer.BadParameter("--index is for texts: write the vectors of images with -o")


def _with_texts(runner: Any, inputs: TextInputs | ImageInputs) -> Iterator[tuple[str, TextVector]]:
    """Yield each text with its vector. The runner reads ahead, so the texts are kept until their vector comes."""
    from collections import deque

    texts: deque[str] = deque()

    def remember() -> Iterator[str]:
        for text in inputs:
            texts.append(text)
            yield text

    for result in runner.run(remember(), buffer_size=inputs.buffer_size):
        yield texts.popleft(), result
    inputs.raise_error()


def _write_vectors(output: Path, results: Iterable[tuple[str, TextVector]], int8: bool) -> None:
    """Write vectors to a file; with int8, their scales to a second file beside a matrix."""
    import json

    import numpy as np

    from regard.files import atomic_write
    from regard.tasks.matrix_file import MatrixFile

    with atomic_write(output) as temporary:
        if output.suffix == ".jsonl":
            with temporary.open("w", encoding="utf-8") as file:
                for _, result in results:
                    file.write(json.dumps(result.as_json(), ensure_ascii=False) + "\n")
            return
        scales = []
        with MatrixFile(temporary, np.int8 if int8 else np.float32) as matrix:
            for _, result in results:
                matrix.append(result.vector)
                scales.append(result.scale)
    if int8:
        with atomic_write(output.with_suffix(".scales.npy")) as temporary, temporary.open("wb") as file:
            np.save(file, np.array(scales, np.float32))
