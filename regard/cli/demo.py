"""`regard demo`: train a small Transformer here and now, and use it.

It learns to read dates, written in four languages in some fifty ways, from data that it makes itself.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.model import Model

RECIPE = """\
# The recipe of `regard demo`. Try your own: regard train recipe.toml

task = "translate"

[data]
train = ["train.text", "train.iso"]     # one date a line, as people write it; the same date as ISO 8601
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
smoothing = 0.0

[training]
tokens = 2048
steps = 750
optimizer = { kind = "adamw", rate = 3e-3, betas = [0.9, 0.98], decay = 0.01 }
schedule = { kind = "linear", warmup = 100 }
evaluate_every = 375
save_every = 375
"""
TRAINING, CHOOSING, EXAM = 60_000, 500, 1_000
"""Days to learn from, others by which the best state is chosen, and others again for the examination at the end."""
TIMES = 3
"""How often each day is written down to learn from, each time in another way."""
EXAMPLE = "der fünfte März neunzehnhundertsiebenundachtzig"
SHADES = " ░▒▓█"


def demo(
    folder: Annotated[Path, typer.Option(help="Where the demo keeps its data and its model.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(min=1, help="Train for so many steps, not as the recipe says.")] = None,
) -> None:
    """Train a small Transformer that reads dates (two minutes on two cores), and use it."""
    say("regard demo: a Transformer learns to read dates, like “the fifth of March, nineteen eighty-seven”.")
    best = folder / "run" / "best"
    if (folder / "done").exists():
        say(f"It was trained before and is in {best}. Delete {folder} to train it again.")
    else:
        _train(folder, steps)
    import regard.model

    model = regard.model.load(best)
    _examine(model)
    _picture(model)
    say(
        f"The model is in {best}. Every command takes it, for example:\n"
        f'  regard translate {best} "le 14 juillet 1989"\n  regard show {best}\n  regard tokenize {best} "May 1, 2024"'
    )
    if sys.stdin.isatty():
        _talk(model)


def _train(folder: Path, steps: int | None) -> None:
    from regard.demo import dates
    from regard.training.run.run import train

    folder.mkdir(parents=True, exist_ok=True)
    which = dates.days(TRAINING + CHOOSING, seed=0)
    for name, days in (("train", TIMES * which[:TRAINING]), ("valid", which[TRAINING:])):
        texts, isos = zip(*dates.pairs(days, dates.SEEN, seed=len(days)), strict=True)
        (folder / f"{name}.text").write_text("\n".join(texts) + "\n", encoding="utf-8")
        (folder / f"{name}.iso").write_text("\n".join(isos) + "\n", encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    say(f"made {TIMES * TRAINING:,} examples to learn from, in {len(dates.SEEN)} ways of writing a date; for example:")
    for line in texts[:3]:
        say(f"  {line}")
    run = folder / "run"
    changes = {} if steps is None else {"training.steps": steps}
    train(folder / "recipe.toml", changes, folder=run, resume=(run / "recipe.toml").exists())
    if steps is None:
        (folder / "done").touch()


def _examine(model: Model) -> None:
    """How many dates it reads right that it has never seen, and how many written in ways that it has never seen."""
    from regard.demo import dates
    from regard.tasks.translate import Wish

    days = dates.days(TRAINING + CHOOSING + EXAM, seed=0)[-EXAM:]
    for what, ways in (
        ("dates that it has never seen", dates.SEEN),
        ("ways of writing that it has never seen", dates.UNSEEN),
    ):
        texts, isos = zip(*dates.pairs(days, ways, seed=7), strict=True)
        read = [written.text for written in model.translator(Wish()).translate(texts)]
        right = sum(one == other for one, other in zip(read, isos, strict=True))
        sys.stdout.write(f"{what}: {right / len(isos):.3f} of {len(isos):,} read exactly right\n")
        wrong = [(text, said) for text, said, iso in zip(texts, read, isos, strict=True) if said != iso]
        for text, said in wrong[:2]:
            say(f"  it read “{text}” as {said}")
    sys.stdout.flush()


def _picture(model: Model) -> None:
    """What the decoder looks at while it writes one date."""
    import torch

    from regard.transformer.capture import watch
    from regard.transformer.network import EncoderDecoder

    network, tokenizer = model.network, model.tokenizer
    assert isinstance(network, EncoderDecoder)
    source = tokenizer.encode(EXAMPLE)
    target = tokenizer.target.encode(model.translate(EXAMPLE)[0].text)
    address = "decoder.blocks.1.cross_attention"
    given = [model.habits.start or 0, *target.ids[:-1]]
    with torch.no_grad(), watch(network, address) as seen:
        network(torch.tensor([source.ids]), torch.tensor([given]))
    say("\nWhere it looks while it writes a date (down: what it writes; across: what it reads):\n")
    weights = seen[address][0].mean(dim=0)
    cuts = [*(start for start, _ in source.offsets[:-1]), len(EXAMPLE)]  # a letter of several tokens is shown once
    shown = [*(EXAMPLE[start:end] for start, end in pairwise(cuts)), "·"]
    say("             " + "".join(shown))
    for token, row in zip(target.tokens, weights, strict=True):
        cells = (SHADES[min(4, int(5 * share))] * len(text) for share, text in zip(row.tolist(), shown, strict=True))
        say(f"  {token:>10} {''.join(cells)}")
    say("")


def _talk(model: Model) -> None:
    """Read what a person types."""
    say("Type a date in English, German, French or Spanish (an empty line ends):")
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            return
        if not text:
            return
        sys.stdout.write(f"{model.translate(text)[0].text}\n")


def say(line: str) -> None:
    """Progress and remarks go to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
