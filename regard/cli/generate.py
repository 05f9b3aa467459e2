"""`regard generate`: generate continuations of prompts with a decoder-only model."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.text_io import PRECISION_OPTION, Precision


def generate(
    model: Annotated[str, typer.Argument(help="Model folder.")],
    prompt: Annotated[
        str | None,
        typer.Argument(help="A prompt, a file with one prompt per line, or - for standard input (the default)."),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample tokens at random.")] = False,
    temperature: Annotated[
        float,
        typer.Option(help="With --sample: softmax temperature; below 1 less random, above 1 more."),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="With --sample: only the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="With --sample: only the most likely tokens with a total probability of p (nucleus)."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="With --sample: only tokens with at least p times the highest probability."),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --sample: random seed; the same seed gives the same text.")] = 0,
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam", "--num-beams", min=1, help="Beam size; 1 is greedy search. [from the generation config, else 1]"
        ),
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Number of outputs per prompt.")] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="Beam search: exponent of the length penalty; above 1 favors longer texts.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: makes tokens less likely that already occurred.")
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(min=1, help="No n-gram of this many tokens occurs twice.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of generated tokens. [from the context length]")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop at this string; can be repeated.")] = None,
    stop_on_repetition: Annotated[
        bool, typer.Option("--stop-on-repetition", help="Stop when the output repeats itself.")
    ] = False,
    control: Annotated[str | None, typer.Option(help="Control code (CTRL).")] = None,
    precision: Annotated[Precision | None, PRECISION_OPTION] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text while it is generated.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line: scores, tokens, stop reason.")
    ] = False,
) -> None:
    """Generate a continuation of PROMPT with MODEL: one output line per input line, in order.

    The output does not contain the prompt. With several prompts, a line break in an output is printed as \\n.
    """
    from regard.cli.text_io import TextInputs, load_model, usage_errors, write_results, write_streams

    if not sample and (temperature != 1 or top_k is not None or top_p is not None or min_p is not None):
        raise typer.BadParameter("--temperature, --top-k, --top-p and --min-p are options of sampling: add --sample")
    if stream and n_best > 1:
        raise typer.BadParameter("--stream prints one text per prompt: remove --n-best")
    inputs, loaded = TextInputs(prompt), load_model(model, precision)
    from regard.tasks.generate import GenerateOptions, Sampling

    with usage_errors():
        sampling = Sampling(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        generator = loaded.generator(
            GenerateOptions(
                sampling=sampling if sample else None,
                beam=beam,
                n_best=n_best,
                length_penalty=length_penalty,
                repetition_penalty=repetition_penalty,
                no_repeat_ngram_size=no_repeat_ngram_size,
                max_new_tokens=max_new_tokens,
                stop=tuple(stop or ()),
                stop_on_repetition=stop_on_repetition,
                control=control,
            )
        )
    if stream:
        write_streams(map(generator.stream, inputs), inputs.is_single_text, as_json)
    else:
        write_results(generator.generate(inputs, buffer_size=inputs.buffer_size), inputs, as_json)
