"""`regard demo`: train a small Transformer and use it.

The network learns to convert dates, written in four languages and about fifty formats, to ISO 8601. The training data
is synthetic.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.progress import write_note

if TYPE_CHECKING:
    from regard.model import Model

RECIPE = """\
# The recipe of `regard demo`. Change it and run: regard train recipe.toml

task = "translate"

[data]
train = ["train.text", "train.iso"]     # one date per line as people write it; the same date in ISO 8601
valid = ["valid.text", "valid.iso"]

[tokenizer]
kind = "bpe"
size = 512
shared = true

[network]
family = "transformer"                  # Vaswani et al. 2017, only smaller
layers = [2, 2]
model_dim = 96
heads = 4
inner_dim = 192
dropout = 0.05

[objective]
label_smoothing = 0.0

[training]
batch_tokens = 2048
steps = 750
optimizer = { kind = "adamw", lr = 3e-3, betas = [0.9, 0.98], weight_decay = 0.01 }
schedule = { kind = "linear", warmup_steps = 100 }
evaluate_every = 375
save_every = 375
"""
TRAIN_DAYS, VALID_DAYS, TEST_DAYS = 60_000, 500, 1_000
"""Number of days in the training, validation and test split. The splits have no day in common."""
WRITINGS_PER_DAY = 3
"""Number of training examples per day, each in a random format."""
EXAMPLE = "der fünfte März neunzehnhundertsiebenundachtzig"
SHADES = " ░▒▓█"


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder for the data and the model of the demo.")
    ] = Path("runs/demo"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of training steps. [as in the recipe of the demo]")
    ] = None,
) -> None:
    """Train a small Transformer that converts dates to ISO 8601 (two minutes on two cores), and use it."""
    log("regard demo: train a Transformer on dates such as “the fifth of March, nineteen eighty-seven”.")
    best = output / "run" / "best"
    if (output / "done").exists():
        log(f"The model was trained before and is in {best}. Delete {output} to train it again.")
    else:
        _train(output, steps)
    import regard.model

    model = regard.model.load(best)
    _evaluate(model)
    _show_attention(model)
    log(
        f"The model is in {best}. Use it with the other commands, for example:\n"
        f'  regard translate {best} "le 14 juillet 1989"\n  regard show {best}\n  regard tokenize {best} "May 1, 2024"'
    )
    if sys.stdin.isatty():
        _interactive(model)


def _train(folder: Path, steps: int | None) -> None:
    from regard.demo import dates
    from regard.evaluation.train import train

    days = dates.sample_days(TRAIN_DAYS + VALID_DAYS, seed=0)
    files = {"recipe.toml": RECIPE}
    splits = {"train": WRITINGS_PER_DAY * days[:TRAIN_DAYS], "valid": days[TRAIN_DAYS:]}
    for name, split in splits.items():
        texts, isos = zip(*dates.make_pairs(split, dates.TRAIN_TEMPLATES, seed=len(split)), strict=True)
        files[f"{name}.text"] = "\n".join(texts) + "\n"
        files[f"{name}.iso"] = "\n".join(isos) + "\n"
    _write_new(folder, files)
    num_examples, num_formats = WRITINGS_PER_DAY * TRAIN_DAYS, len(dates.TRAIN_TEMPLATES)
    log(f"generated {num_examples:,} training examples in {num_formats} date formats; for example:")
    for line in texts[:3]:
        log(f"  {line}")
    run = folder / "run"
    overrides = {} if steps is None else {"training.steps": steps}
    train(folder / "recipe.toml", overrides, output=run, resume=(run / "recipe.toml").exists())
    if steps is None:
        (folder / "done").touch()


def _write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of the demo. A folder with other files of these names is refused before anything is written."""
    from regard.files import write_files

    contents = {name: text.encode() for name, text in files.items()}
    foreign = [name for name in files if (folder / name).exists() and (folder / name).read_bytes() != contents[name]]
    if foreign:
        raise typer.BadParameter(
            f"{folder} holds {', '.join(foreign)} with a content of its own; nothing was changed. Choose another "
            "--output, or remove these files to start the demo anew"
        )
    write_files(folder, contents)


def _evaluate(model: Model) -> None:
    """Print the exact match on unseen dates in known formats, and in formats that are not in the training data."""
    from regard.demo import dates

    days = dates.sample_days(TRAIN_DAYS + VALID_DAYS + TEST_DAYS, seed=0)[-TEST_DAYS:]
    for name, templates in (
        ("unseen dates", dates.TRAIN_TEMPLATES),
        ("unseen dates in unseen formats", dates.HELD_OUT_TEMPLATES),
    ):
        texts, references = zip(*dates.make_pairs(days, templates, seed=7), strict=True)
        outputs = [result.text for result in model.translate(texts)]
        correct = sum(output == reference for output, reference in zip(outputs, references, strict=True))
        sys.stdout.write(f"{name}: {correct / len(references):.3f} of {len(references):,} exactly right\n")
        triples = zip(texts, outputs, references, strict=True)
        wrong = [(text, output) for text, output, reference in triples if output != reference]
        for text, output in wrong[:2]:
            log(f"  wrong: “{text}” as {output}")
    sys.stdout.flush()


def _show_attention(model: Model) -> None:
    """Print the cross-attention weights of one example as shades of gray."""
    import torch

    from regard.transformer.activation_capture import capture

    network, tokenizer = model.network, model.tokenizer
    source = tokenizer.encode(EXAMPLE)
    target = tokenizer.target.encode(model.translate(EXAMPLE).text)
    address = "decoder.blocks.1.cross_attention"
    decoder_input = [model.generation_config.decoder_start_token_id or 0, *target.ids[:-1]]
    with torch.no_grad(), capture(network, address) as captured:
        network(torch.tensor([source.ids]), torch.tensor([decoder_input]))
    log("\nCross-attention (rows: output tokens; columns: input text):\n")
    weights = captured[address][0].mean(dim=0)
    # A token reaches to the start of the next one: a character of several tokens is then shown once.
    bounds = [*(start for start, _ in source.offsets[:-1]), len(EXAMPLE)]
    columns = [*(EXAMPLE[start:end] for start, end in pairwise(bounds)), "·"]
    log("             " + "".join(columns))
    for token, row in zip(target.tokens, weights, strict=True):
        cells = (
            SHADES[min(4, int(5 * weight))] * len(text) for weight, text in zip(row.tolist(), columns, strict=True)
        )
        log(f"  {token:>10} {''.join(cells)}")
    log("")


def _interactive(model: Model) -> None:
    """Convert the dates that the user types."""
    log("Type a date in English, German, French or Spanish (an empty line ends the demo):")
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            return
        if not text:
            return
        sys.stdout.write(f"{model.translate(text).text}\n")


def log(line: str) -> None:
    """Write a line to standard error."""
    write_note(line)
