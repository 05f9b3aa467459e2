"""`regard generate`: texts continued."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.text_io import PRECISION, Wanted


def generate(
    model: Annotated[str, typer.Argument(help="A model's folder.")],
    prompt: Annotated[str | None, typer.Argument(help="A prompt, a file with one a line, or - (the default).")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens by chance, not the likeliest.")] = False,
    temperature: Annotated[float, typer.Option(help="With --sample: below 1 plainer, above 1 wilder.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="With --sample: among the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: among the likeliest that make up p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="With --sample: none below p times the likeliest.")] = None,
    seed: Annotated[int, typer.Option(help="With --sample: the same seed, the same text.")] = 0,
    beam: Annotated[int | None, typer.Option(min=1, help="Beams; 1 is greedy. [the model's own, or 1]")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Texts for each prompt.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Beams: above 1, longer texts are preferred.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: what was written becomes less likely.")
    ] = None,
    no_repeat: Annotated[int | None, typer.Option(min=1, help="No row of so many tokens comes twice.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Tokens at most. [as the network allows]")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends the text; may be given again.")] = None,
    end_loops: Annotated[bool, typer.Option("--end-loops", help="End a text that goes in circles.")] = False,
    control: Annotated[str | None, typer.Option(help="A control code (CTRL).")] = None,
    precision: Annotated[Wanted | None, PRECISION] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the text as it is written.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: scores, tokens, why it stopped.")
    ] = False,
) -> None:
    """Continue PROMPT with MODEL: one line in, one line out, in order.

    The prompt itself is not repeated. Where there are several, a line break in a result is written as \\n.
    """
    from regard.cli.text_io import Inputs, asking, opened, show, show_streams

    if not sample and (temperature != 1 or top_k is not None or top_p is not None or min_p is not None):
        raise typer.BadParameter("--temperature, --top-k, --top-p and --min-p draw by chance: add --sample")
    if stream and n_best > 1:
        raise typer.BadParameter("--stream shows one text as it is written: leave --n-best out")
    inputs, ready = Inputs(prompt), opened(model, precision)
    from regard.tasks.generate import Chance, Wish

    with asking():
        chance = Chance(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        generator = ready.generator(
            Wish(
                chance=chance if sample else None,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                repetition_penalty=repetition_penalty,
                no_repeat=no_repeat,
                limit=limit,
                stop=tuple(stop or ()),
                end_loops=end_loops,
                control=control,
            )
        )
    if stream:
        show_streams(map(generator.stream, inputs), inputs.single, as_json)
    else:
        show(generator.generate(inputs, window=inputs.window), inputs, as_json)
