"""Tinyshakespeare, letter by letter: nanoGPT's CPU setting, and `regard train` in the same wall time, in one run.

    REGARD_DATA=path/to/data python benchmarks/train_characters.py
    REGARD_DATA=path/to/data python benchmarks/train_characters.py --recipe characters-long --alone
    REGARD_DATA=path/to/data python benchmarks/train_characters.py --run RUN     only measures a run that is there

Side A is nanoGPT's published CPU setting as a plain torch loop: 4 layers, 4 heads, 128, context 64, batches of 12,
2,000 iterations, no dropout, AdamW (0.9, 0.99; decay 0.1 of matrices), a rate of 1e-3 after 100 steps of warm-up, down
along a cosine to 1e-4, gradients clipped at 1, evaluated on 20 batches of both parts every 250 iterations. Side B is a
ready recipe, whose minutes are what A's whole process took, less what B needs to start and to end (measured first).
The loss of both is computed by the same code, after the clock has stopped: the mean over all characters of the last 10%
(but the very first), in windows of the side's own context that follow one another without overlap.
"""

import argparse
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
LAYERS, HEADS, DIM, CONTEXT, ROWS, ITERATIONS = 4, 4, 128, 64, 12, 2000
RATE, LOWEST, WARMUP = 1e-3, 1e-4, 100
GOALS = {"characters": 1.65, "characters-long": 1.4697}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(DIM, bias=False), nn.LayerNorm(DIM, bias=False)
        self.together, self.joined = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        rows, length, _ = x.shape
        split = self.together(self.first(x)).view(rows, length, 3, HEADS, DIM // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(rows, length, DIM))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Small(nn.Module):
    """GPT-2's architecture without biases, its token table used for the last layer too."""

    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(DIM, bias=False)
        for name, value in self.named_parameters():
            if value.ndim == 2:
                small = name.endswith(("joined.weight", "down.weight"))
                nn.init.normal_(value, std=0.02 / math.sqrt(2 * LAYERS) if small else 0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


def rate_at(step, steps):
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    share = (step - WARMUP) / max(1, steps - WARMUP)
    return LOWEST + (RATE - LOWEST) * (1 + math.cos(math.pi * share)) / 2


def plain(place, steps, threads):
    """Side A, in a process of its own."""
    torch.set_num_threads(threads)
    torch.manual_seed(1337)
    text = {name: (place / f"{name}.txt").read_text() for name in ("train", "valid")}
    letters = sorted({*text["train"], *text["valid"]})
    number = {letter: place for place, letter in enumerate(letters)}
    ids = {name: torch.tensor([number[letter] for letter in content]) for name, content in text.items()}
    model = Small(len(letters))
    matrices = [value for value in model.parameters() if value.ndim == 2]
    vectors = [value for value in model.parameters() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))

    def loss(name):
        begins = torch.randint(len(ids[name]) - CONTEXT, (ROWS,))
        rows = torch.stack([ids[name][begin : begin + CONTEXT + 1] for begin in begins])
        return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    for step in range(steps + 1):
        if step % 250 == 0 or step == steps:
            with torch.no_grad():
                means = {name: sum(loss(name).item() for _ in range(20)) / 20 for name in ids}
            print(f"{step}: {means}", file=sys.stderr, flush=True)
        if step == steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        loss("train").backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.save({"letters": letters, "state": model.state_dict()}, place / "plain.pt")


@torch.no_grad()
def mean_loss(scores, ids, context):
    """The mean loss of all tokens but the first, in windows that follow one another, each seen from its own start."""
    total = 0.0
    whole = (len(ids) - 1) // context * context
    groups = [(ids[:whole].view(-1, context), ids[1 : whole + 1].view(-1, context))]
    if whole < len(ids) - 1:
        groups.append((ids[whole:-1][None], ids[whole + 1 :][None]))
    for given, wanted in groups:
        for some, right in zip(given.split(64), wanted.split(64), strict=True):
            total += functional.cross_entropy(scores(some).flatten(0, 1), right.flatten(), reduction="sum").item()
    return total / (len(ids) - 1)


def loss_of_plain(place, text):
    saved = torch.load(place / "plain.pt", weights_only=True)
    model = Small(len(saved["letters"]))
    model.load_state_dict(saved["state"])
    number = {letter: place for place, letter in enumerate(saved["letters"])}
    return mean_loss(model, torch.tensor([number[letter] for letter in text]), CONTEXT)


def loss_of_ours(run, text):
    """The loss of a run of ours, in windows of the length that it learnt with."""
    import regard

    model, context = regard.load(run / "best"), context_of(run)
    ids = torch.tensor(model.tokenizer.encode(text, special_tokens=False).ids)
    if len(ids) != len(text):
        sys.exit(f"{len(text)} characters became {len(ids)} tokens: this is no loss by character")
    return context, mean_loss(lambda rows: model.network.eval()(rows).logits, ids, context)


def context_of(run):
    return tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["data"]["length"]


def timed(command, environment):
    began = time.monotonic()
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-3000:]}")
    return time.monotonic() - began


def split(place, data):
    """The first 90% to learn from, the rest to measure by."""
    text = (data / "input.txt").read_text(encoding="utf-8")
    cut = int(0.9 * len(text))
    (place / "train.txt").write_text(text[:cut], encoding="utf-8")
    (place / "valid.txt").write_text(text[cut:], encoding="utf-8")
    return text[cut:]


def ours(place, given, minutes, folder, environment):
    command = [*REGARD, "train", place / "recipe.toml", *given.change, f"training.threads={given.threads}"]
    command += [] if minutes is None else [f"training.minutes={minutes:.5f}"]
    return timed([*command, "--folder", folder], environment)


def compare(given, place, text, environment):
    from regard.training.recipe import presets

    print(f"load {os.getloadavg()[0]:.1f}, {given.threads} threads, torch {torch.__version__}, "
          f"Python {platform.python_version()}")  # fmt: skip
    (place / "recipe.toml").write_text(presets.text(given.recipe), encoding="utf-8")
    rows, minutes = [], None
    if not given.alone:
        command = [sys.executable, Path(__file__).resolve(), "--side", place, "--iterations", given.iterations]
        allowed = timed([*command, "--threads", given.threads], environment)
        rows.append(("plain torch, nanoGPT's CPU setting", allowed, CONTEXT, loss_of_plain(place, text)))
        around = ours(place, given, 1e-4, place / "first", environment)
        minutes = (allowed - around) / 60
        if minutes <= 0:
            sys.exit(f"starting and ending takes {around:.1f} s, and there are only {allowed:.1f} s")
    seconds = ours(place, given, minutes, place / "run", environment)
    rows.append((f"regard train, recipe {given.recipe}", seconds, *loss_of_ours(place / "run", text)))
    print(f"load {os.getloadavg()[0]:.1f}\n\n| side | wall s | context | loss of a validation character |")
    print("| --- | --- | --- | --- |")
    for name, seconds, context, loss in rows:
        print(f"| {name} | {seconds:.1f} | {context} | {loss:.4f} |")
    print(f"\ngoal: {GOALS.get(given.recipe, math.nan)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", ".")) / "tinyshakespeare")
    parser.add_argument("--recipe", default="characters", help="a ready recipe")
    parser.add_argument("--alone", action="store_true", help="only the recipe, with the minutes that it says itself")
    parser.add_argument("--run", type=Path, help="measure this run of ours, and no more")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of side A; fewer only to try this script")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("change", nargs="*", help="changes of the recipe: training.tokens=1024")
    given = parser.parse_args()
    if given.side:
        plain(given.side, given.iterations, given.threads)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": str(given.threads), "MKL_NUM_THREADS": str(given.threads)}
    with tempfile.TemporaryDirectory() as folder:
        text = split(Path(folder), given.data)
        if given.run:
            print("windows of {}: a loss of {:.4f} a validation character".format(*loss_of_ours(given.run, text)))
        else:
            compare(given, Path(folder), text, environment)


if __name__ == "__main__":
    main()
