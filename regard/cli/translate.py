"""`regard translate`: texts in another language, or whatever else an encoder-decoder was trained for."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.text_io import PRECISION, Wanted


def translate(
    model: Annotated[str, typer.Argument(help="A model's folder.")],
    text: Annotated[str | None, typer.Argument(help="A text, a file with one text a line, or - (the default).")] = None,
    source_language: Annotated[str | None, typer.Option("--from", help="The language of the texts.")] = None,
    target_language: Annotated[str | None, typer.Option("--to", help="The language to translate to.")] = None,
    prefix: Annotated[
        str | None, typer.Option(help='What stands before every text, in full or by its name (T5: "summarize: ").')
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beams; 1 is greedy. [the model's own, or 1]")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Results for each text, best first, with scores.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Above 1, longer results are preferred.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Tokens at most. [as the network and text allow]")] = None,
    begin: Annotated[str, typer.Option(help="What every translation begins with.")] = "",
    alignment: Annotated[bool, typer.Option("--alignment", help="With --json: which word comes from which.")] = False,
    precision: Annotated[Wanted | None, PRECISION] = None,
    shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Score only tokens that go with those of the text (see `convert`).")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show each translation as it is written.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: scores, tokens, why it stopped.")
    ] = False,
) -> None:
    """Translate TEXT with MODEL: one line in, one line out, in order.

    Models that know several languages or tasks are told which with --from, --to or --prefix; if it is left out, the
    error lists what the model knows.
    """
    from regard.cli.text_io import Inputs, asking, opened, show, show_streams

    if alignment and not as_json:
        raise typer.BadParameter("--alignment is a part of the JSON: add --json")
    if stream and n_best > 1:
        raise typer.BadParameter("--stream shows one text as it is written: leave --n-best out")
    inputs, ready = Inputs(text), opened(model, precision)
    from regard.tasks.translate import Wish

    with asking():
        translator = ready.translator(
            Wish(
                source_language=source_language,
                target_language=target_language,
                prefix=prefix,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                limit=limit,
                begin=begin,
                alignment=alignment,
                shortlist=ready.shortlist if shortlist else None,
            )
        )
    if stream:
        show_streams(map(translator.stream, inputs), inputs.single, as_json)
    else:
        show(translator.translate(inputs, window=inputs.window), inputs, as_json)
