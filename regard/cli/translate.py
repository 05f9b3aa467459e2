"""`regard translate`: translate texts, or run another task of an encoder-decoder."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.text_io import PRECISION_OPTION, Precision


def translate(
    model: Annotated[str, typer.Argument(help="Model folder.")],
    text: Annotated[
        str | None, typer.Argument(help="A text, a file with one text per line, or - for standard input (the default).")
    ] = None,
    source_language: Annotated[str | None, typer.Option("--from", help="Source language.")] = None,
    target_language: Annotated[str | None, typer.Option("--to", help="Target language.")] = None,
    prefix: Annotated[
        str | None, typer.Option(help='Prefix of every source, as text or by task name (T5: "summarize: ").')
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam", "--num-beams", min=1, help="Beam size; 1 is greedy search. [from the generation config, else 1]"
        ),
    ] = None,
    n_best: Annotated[
        int, typer.Option(min=1, help="Number of hypotheses per text, best first, with their scores.")
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length penalty; above 1 favors longer translations.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of generated tokens. [from the network's positions and the text]"),
    ] = None,
    target_prefix: Annotated[str, typer.Option(help="Text that every translation starts with.")] = "",
    alignment: Annotated[bool, typer.Option("--alignment", help="With --json: add the word alignment.")] = False,
    precision: Annotated[Precision | None, PRECISION_OPTION] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each translation while it is generated.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line: scores, tokens, stop reason.")
    ] = False,
) -> None:
    """Translate TEXT with MODEL: one output line per input line, in order.

    Models for several languages or tasks need --from, --to or --prefix. If one is missing, the error lists the
    available values.
    """
    from regard.cli.text_io import TextInputs, load_model, usage_errors, write_results, write_streams

    if alignment and not as_json:
        raise typer.BadParameter("--alignment is part of the JSON output: add --json")
    if stream and n_best > 1:
        raise typer.BadParameter("--stream prints one translation per text: remove --n-best")
    inputs, loaded = TextInputs(text), load_model(model, precision)
    from regard.tasks.translate import TranslateOptions

    with usage_errors():
        translator = loaded.translator(
            TranslateOptions(
                source_language=source_language,
                target_language=target_language,
                prefix=prefix,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                max_new_tokens=max_new_tokens,
                target_prefix=target_prefix,
                alignment=alignment,
            )
        )
    if stream:
        write_streams(map(translator.stream, inputs), inputs.is_single_text, as_json)
    else:
        write_results(translator.translate(inputs, buffer_size=inputs.buffer_size), inputs, as_json)
