"""`regard translate`: texts in another language, or whatever else an encoder-decoder was trained for."""

from __future__ import annotations

from typing import Annotated

import typer


def translate(
    model: Annotated[str, typer.Argument(help="A model's folder.")],
    text: Annotated[str | None, typer.Argument(help="A text, a file with one text a line, or - (the default).")] = None,
    source_language: Annotated[str | None, typer.Option("--from", help="The language of the texts.")] = None,
    target_language: Annotated[str | None, typer.Option("--to", help="The language to translate to.")] = None,
    prefix: Annotated[str | None, typer.Option(help='What stands before every text (T5: "summarize: ").')] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beams; 1 is greedy. [the model's own, or 1]")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Results for each text, best first, with scores.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Above 1, longer results are preferred.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Tokens at most. [as the network and text allow]")] = None,
    begin: Annotated[str, typer.Option(help="What every translation begins with.")] = "",
    alignment: Annotated[bool, typer.Option("--alignment", help="With --json: which word comes from which.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show each translation as it is written.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: scores, tokens, why it stopped.")
    ] = False,
) -> None:
    """Translate TEXT with MODEL: one line in, one line out, in order."""
    from regard.cli.writing import Inputs, show, show_stream

    inputs = Inputs(text)
    import regard.model
    from regard.tasks.translate import Wish

    translator = regard.model.load(model).translator(
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
        )
    )
    if stream:
        for line in inputs:
            show_stream(translator.stream(line), as_json)
    else:
        show(translator.translate(inputs), inputs, as_json)
