"""`regard demo`: a small Transformer, from its config to its attention."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

SHADES = " ░▒▓█"


def demo(
    folder: Annotated[Path | None, typer.Option(help="Keep the model that the demo makes in this folder.")] = None,
) -> None:
    """Build a small 2017 Transformer, show its parts, run it, look at its attention, save it and load it again."""
    say("building a Transformer (Vaswani et al. 2017) with two blocks on either side …")
    import torch

    from regard.checkpoint.load import load
    from regard.checkpoint.save import save
    from regard.families.transformer import transformer_2017
    from regard.transformer.describe import render, tree
    from regard.transformer.network import EncoderDecoder, build
    from regard.transformer.watching import watch

    network = build(transformer_2017(vocabulary=100, layers=(2, 2), model_dim=64, heads=4, length=64), seed=1).eval()
    assert isinstance(network, EncoderDecoder)
    sys.stdout.write(render(tree(network)) + "\n\n")

    source = torch.randint(3, 100, (1, 12), generator=torch.Generator().manual_seed(0))
    target = torch.randint(3, 100, (1, 8), generator=torch.Generator().manual_seed(1))
    address = "decoder.blocks.1.cross_attention"
    started = time.perf_counter()
    with torch.no_grad(), watch(network, address) as seen:
        output = network(source, target)
    took = time.perf_counter() - started
    assert output.logits is not None
    say(f"it read 12 tokens and scored 100 words at each of 8 places in {took * 1000:.0f} ms (it is not trained yet).")
    say(f"what head 0 of {address} attends to (down: target, across: source):")
    for row in seen[address][0][0]:
        bright = row / row.max()
        sys.stdout.write("  " + "".join(SHADES[int(value * (len(SHADES) - 1))] * 2 for value in bright) + "\n")

    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary) / "model"
        layout = save(network, place)
        again, report = load(place)
        with torch.no_grad():
            same = torch.equal(again(source, target).logits, output.logits)
        say(f"saved in the layout of {layout} and loaded again ({report.summary().split(': ')[1]}).")
        if not same:
            raise ValueError("the loaded network does not say the same: please report this")
        say("the loaded network says the same, bit for bit." + (f" It is in {folder}." if folder else ""))


def say(line: str) -> None:
    """Progress and remarks go to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
