"""Loading a checkpoint of about 500 MB compared with transformers, in one run.

    python benchmarks/load.py

Each backend loads the same folder in a separate process, alternately; the minimum over the rounds is reported. Weights
may be memory-mapped and not read until they are used, so the time until every weight has been read once is reported
too. Memory is the peak, minus that of the process with its libraries imported.
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
from result_rows import ResultRows

TITLES = {"gpt2": "GPT-2 small", "bart": "BART-base"}
MODELS = {
    "gpt2": ("GPT2LMHeadModel", transformers.GPT2Config),
    "bart": (
        "BartForConditionalGeneration",
        lambda: transformers.BartConfig(
            d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
            encoder_attention_heads=12, decoder_attention_heads=12,
        ),
    ),
}  # fmt: skip


def proc_status_mb(key):
    """An entry of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def worker(backend, name, folder):
    """Load the folder once; print the seconds to load, the seconds until all weights are read, and the peak in MB."""
    from regard.checkpoint.load import load

    transformers.utils.logging.disable_progress_bar()
    model_class = getattr(transformers, MODELS[name][0])
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = proc_status_mb("VmRSS")
    start = time.perf_counter()
    network = load(folder)[0] if backend == "regard" else model_class.from_pretrained(folder)
    load_seconds = time.perf_counter() - start
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.sum()
    print(json.dumps([load_seconds, time.perf_counter() - start, proc_status_mb("VmHWM") - before]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.worker:
        worker(*json.loads(args.worker))
        return
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, load {os.getloadavg()[0]:.2f}, best of {args.rounds}")
    print("| checkpoint | measure | transformers | regard | ratio |\n| --- | --- | --- | --- | --- |")
    results = ResultRows("load", threads=2, packages=("torch", "transformers"))
    for name, (model_class, make_config) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            getattr(transformers, model_class)(make_config()).save_pretrained(folder)
            size = (Path(folder) / "model.safetensors").stat().st_size / 2**20
            best = {backend: [float("inf")] * 3 for backend in ("transformers", "regard")}
            for _ in range(args.rounds):
                for backend, best_values in best.items():
                    command = [sys.executable, __file__, "--worker", json.dumps([backend, name, folder])]
                    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                    best[backend] = [min(a, b) for a, b in zip(best_values, measured, strict=True)]
            measures = ("load", "s"), ("load and read", "s"), ("peak memory", "MB")
            for (measure, unit), theirs, ours in zip(measures, best["transformers"], best["regard"], strict=True):
                what = f"{TITLES[name]} ({size:.0f} MB), {measure}"
                print(f"| {what} | {theirs:.2f} {unit} | {ours:.2f} {unit} | {theirs / ours:.2f}× |")
                results.add("loading", what, unit, ours=ours, peer=theirs, peer_name="transformers")
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
