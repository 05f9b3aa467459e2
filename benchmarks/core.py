"""Forward and training step against transformers (SDPA), side by side in one run.

    python benchmarks/core.py                    # all three networks; real lengths from REGARD_DATA if it is set
    python benchmarks/core.py --only bert --rounds 3

Both sides have the same weights, the same tokens, the same loss and the same optimiser, and their outputs are checked
against each other before anything is timed. They take turns, and the best of the rounds counts. Peak memory is that of
a process of its own for each side, above the same process before the step.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
from lengths import lengths
from torch.nn import functional

from regard.checkpoint.load import load

THREADS = 2
SIZES = {
    "bert": (transformers.BertForMaskedLM, transformers.BertConfig()),
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
    "bart": (
        transformers.BartForConditionalGeneration,
        transformers.BartConfig(
            d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
            encoder_attention_heads=12, decoder_attention_heads=12, attention_dropout=0.1, activation_dropout=0.1,
        ),
    ),
}  # fmt: skip
FULL = {"bert": (8, 128), "gpt2": (4, 128), "bart": (8, 64)}
MIXED_ROWS = 32


def tokens(rows, vocabulary, seed):
    """Random tokens in rows of these lengths, padded on the right, and which of them are real."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocabulary, (len(rows), max(rows)), generator=generator)
    real = torch.arange(max(rows)) < torch.tensor(rows)[:, None]
    return ids.masked_fill(~real, 1), real


def batch(name, kind):
    if kind == "full":
        rows, length = FULL[name]
        source = target = [length] * rows
    else:
        source, target = lengths("en", MIXED_ROWS), lengths("de", MIXED_ROWS)
    vocabulary = SIZES[name][1].vocab_size
    ids, real = tokens(source, vocabulary, 1)
    written, written_real = tokens(target, vocabulary, 2)
    return {"ids": ids, "real": real, "target": written, "target_real": written_real, "full": kind == "full"}


def theirs(name, model, data):
    mask = None if data["full"] else data["real"].long()
    if name == "bart":
        other = None if data["full"] else data["target_real"].long()
        return model(input_ids=data["ids"], attention_mask=mask, decoder_input_ids=data["target"],
                     decoder_attention_mask=other, use_cache=False).logits  # fmt: skip
    return model(input_ids=data["ids"], attention_mask=mask, **({"use_cache": False} if name == "gpt2" else {})).logits


def ours(name, network, data):
    mask = None if data["full"] else data["real"]
    if name == "bart":
        other = None if data["full"] else data["target_real"]
        return network(data["ids"], data["target"], mask, other).logits
    return network(data["ids"], mask).logits


def answers(name, data):
    ids, real = (data["target"], data["target_real"]) if name == "bart" else (data["ids"], data["real"])
    return ids.masked_fill(~real, -100)


def step(run, name, network, data, optimizer):
    optimizer.zero_grad(set_to_none=True)
    logits = run(name, network, data)
    functional.cross_entropy(logits.flatten(0, 1), answers(name, data).flatten()).backward()
    optimizer.step()


def make(name, folder):
    torch.manual_seed(0)
    kind, settings = SIZES[name]
    model = kind(settings)
    model.set_attn_implementation("sdpa")
    model.save_pretrained(folder)
    return model


def open_theirs(name, folder):
    return SIZES[name][0].from_pretrained(folder, attn_implementation="sdpa")


def timed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def alternate(one, other, rounds):
    """The best of the rounds for each side, taking turns; the spread is the second best over the best."""
    one(), other()
    times = ([], [])
    for _ in range(rounds):
        times[0].append(timed(one))
        times[1].append(timed(other))
    best = [min(t) for t in times]
    spread = max(sorted(t)[1] / min(t) for t in times) - 1
    return *best, spread


def check(name, model, network, data):
    model.eval(), network.eval()
    with torch.no_grad():
        one, other = theirs(name, model, data), ours(name, network, data)
    real = data["target_real"] if name == "bart" else data["real"]
    gap = (one[real] - other[real]).abs().max() / one[real].abs().max()
    assert gap < 1e-4, f"{name}: outputs differ by {gap:.1e}"


def compare(name, folder, rounds, with_memory):
    """Time a network on full and on mixed batches, and print a line for each."""
    for kind in ("full", "mixed"):
        model, data = make(name, folder), batch(name, kind)
        network, _ = load(folder)
        check(name, model, network, data)
        for what, action in (("forward ms", forward), ("train ms", training)):
            acts = action(theirs, name, model, data), action(ours, name, network, data)
            show(name, kind, what, *alternate(*acts, rounds))
        del model, network
        for action in ("forward", "train") if with_memory else ():
            peaks = [peak(name, kind, action, side, folder) for side in ("theirs", "ours")]
            show(name, kind, f"{action} peak MB", *peaks, None)


def forward(run, name, network, data):
    def act():
        with torch.no_grad():
            run(name, network, data)

    return act


def training(run, name, network, data):
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    return lambda: step(run, name, network, data, optimizer)


def show(name, kind, what, one, other, spread):
    size = 1000 if what.endswith("ms") else 1
    noise = "" if spread is None else f"±{spread * 100:.0f}%"
    numbers = f"{one * size:.0f} | {other * size:.0f} | {one / other:.2f}×"
    print(f"| {name} | {kind} | {what} | {numbers} | {noise} |", flush=True)


def peak(name, kind, action, side, folder):
    command = [sys.executable, __file__, "--memory", json.dumps([name, kind, action, side, str(folder)])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory(name, kind, action, side, folder):
    """Peak memory of one forward or two training steps, above the process with its libraries and data."""
    torch.set_num_threads(THREADS)
    data = batch(name, kind)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = status("VmRSS")
    run, network = (theirs, open_theirs(name, folder)) if side == "theirs" else (ours, load(folder)[0])
    if action == "forward":
        network.eval()
        forward(run, name, network, data)()
    else:
        act = training(run, name, network, data)
        act(), act()
    print(status("VmHWM") - before)


def status(key):
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-memory", action="store_true", help="leave the peaks of memory out")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if given.memory:
        memory(*json.loads(given.memory))
        return
    torch.set_num_threads(THREADS)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, {THREADS} threads, {platform.machine()}, load {os.getloadavg()[0]:.2f}, best of {given.rounds}")
    print("| network | batch | what | transformers | regard | ratio | noise |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in [given.only] if given.only else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, Path(folder), given.rounds, not given.no_memory)


if __name__ == "__main__":
    main()
