"""Opening a checkpoint of about 500 MB against transformers, side by side in one run.

    python benchmarks/load.py

Each side opens the same folder in a process of its own, taking turns; the best of the rounds counts. Weights may be
mapped and not read until they are used, so the time until every weight has been read once is told too. Memory is the
peak above the process with its libraries imported.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

KINDS = {
    "gpt2": ("GPT2LMHeadModel", transformers.GPT2Config),
    "bart": (
        "BartForConditionalGeneration",
        lambda: transformers.BartConfig(
            d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
            encoder_attention_heads=12, decoder_attention_heads=12,
        ),
    ),
}  # fmt: skip


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def child(side, name, folder):
    """Open the folder once, and print seconds to open, seconds until all is read, and peak MB."""
    from regard.checkpoint.load import load

    transformers.utils.logging.disable_progress_bar()
    kind = getattr(transformers, KINDS[name][0])
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    start = time.perf_counter()
    network = load(folder)[0] if side == "regard" else kind.from_pretrained(folder)
    opened = time.perf_counter() - start
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.sum()
    print(json.dumps([opened, time.perf_counter() - start, status("VmHWM") - before]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(2)
    if given.child:
        child(*json.loads(given.child))
        return
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, load {os.getloadavg()[0]:.2f}, best of {given.rounds}")
    print("| checkpoint | what | transformers | regard | ratio |\n| --- | --- | --- | --- | --- |")
    for name, (kind, settings) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            getattr(transformers, kind)(settings()).save_pretrained(folder)
            size = (Path(folder) / "model.safetensors").stat().st_size / 2**20
            best = {side: [float("inf")] * 3 for side in ("transformers", "regard")}
            for _ in range(given.rounds):
                for side, so_far in best.items():
                    command = [sys.executable, __file__, "--child", json.dumps([side, name, folder])]
                    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                    best[side] = [min(a, b) for a, b in zip(so_far, told, strict=True)]
            for i, what in enumerate(["open s", "open and read s", "peak MB"]):
                one, other = best["transformers"][i], best["regard"][i]
                print(f"| {name} ({size:.0f} MB) | {what} | {one:.2f} | {other:.2f} | {one / other:.2f}× |")


if __name__ == "__main__":
    main()
