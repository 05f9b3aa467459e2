"""Forward pass and training step compared with transformers (SDPA), in one run.

    python benchmarks/core.py                    # all three networks; real sentence lengths if REGARD_DATA is set
    python benchmarks/core.py --only bert --rounds 3

Both backends have the same weights, tokens, loss and optimizer, and their outputs are compared before anything is
timed. They are timed alternately, and the minimum over the rounds is reported. Peak memory is that of a separate
process for each backend, minus the memory of the same process before the step.
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
from lengths import sentence_lengths
from result_rows import ResultRows
from torch.nn import functional

from regard.checkpoint.load import load

THREADS = 2
MODELS = {
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
FULL_BATCHES = {"bert": (8, 128), "gpt2": (4, 128), "bart": (8, 64)}  # batch size, length
MIXED_BATCH_SIZE = 32
TITLES = {
    "bert": "BERT-base", "gpt2": "GPT-2 small", "bart": "BART-base", "full": "full batch", "mixed": "mixed lengths",
    "forward": "forward pass", "train": "training step",
}  # fmt: skip


def random_batch(lengths, vocab_size, seed):
    """Random tokens in sequences of these lengths, padded on the right, and the mask of the real tokens."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocab_size, (len(lengths), max(lengths)), generator=rng)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, 1), mask


def make_batch(name, kind):
    if kind == "full":
        batch_size, length = FULL_BATCHES[name]
        source_lengths = target_lengths = [length] * batch_size
    else:
        source_lengths, target_lengths = (sentence_lengths(side, MIXED_BATCH_SIZE) for side in ("en", "de"))
    vocab_size = MODELS[name][1].vocab_size
    ids, mask = random_batch(source_lengths, vocab_size, 1)
    target, target_mask = random_batch(target_lengths, vocab_size, 2)
    return {"ids": ids, "mask": mask, "target": target, "target_mask": target_mask, "full": kind == "full"}


def run_transformers(name, model, batch):
    mask = None if batch["full"] else batch["mask"].long()
    if name == "bart":
        target_mask = None if batch["full"] else batch["target_mask"].long()
        return model(input_ids=batch["ids"], attention_mask=mask, decoder_input_ids=batch["target"],
                     decoder_attention_mask=target_mask, use_cache=False).logits  # fmt: skip
    return model(input_ids=batch["ids"], attention_mask=mask, **({"use_cache": False} if name == "gpt2" else {})).logits


def run_regard(name, network, batch):
    mask = None if batch["full"] else batch["mask"]
    if name == "bart":
        target_mask = None if batch["full"] else batch["target_mask"]
        return network(batch["ids"], batch["target"], mask, target_mask).logits
    return network(batch["ids"], mask).logits


def labels(name, batch):
    ids, mask = (batch["target"], batch["target_mask"]) if name == "bart" else (batch["ids"], batch["mask"])
    return ids.masked_fill(~mask, -100)


def training_step(run, name, network, batch, optimizer):
    optimizer.zero_grad(set_to_none=True)
    logits = run(name, network, batch)
    functional.cross_entropy(logits.flatten(0, 1), labels(name, batch).flatten()).backward()
    optimizer.step()


def save_model(name, folder):
    torch.manual_seed(0)
    model_class, config = MODELS[name]
    model = model_class(config)
    model.set_attn_implementation("sdpa")
    model.save_pretrained(folder)
    return model


def load_transformers(name, folder):
    return MODELS[name][0].from_pretrained(folder, attn_implementation="sdpa")


def time_call(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def time_alternating(first, second, rounds):
    """Minimum time of each function over the rounds, timed alternately; the noise is second best over best."""
    first(), second()
    times = ([], [])
    for _ in range(rounds):
        times[0].append(time_call(first))
        times[1].append(time_call(second))
    best = [min(t) for t in times]
    noise = max(sorted(t)[1] / min(t) for t in times) - 1
    return *best, noise


def check(name, model, network, batch):
    model.eval(), network.eval()
    with torch.no_grad():
        expected, actual = run_transformers(name, model, batch), run_regard(name, network, batch)
    mask = batch["target_mask"] if name == "bart" else batch["mask"]
    difference = (expected[mask] - actual[mask]).abs().max() / expected[mask].abs().max()
    assert difference < 1e-4, f"{name}: outputs differ by {difference:.1e}"


def compare(name, folder, rounds, with_memory, results):
    """Time a network on full and on mixed batches, print a row for each, and add it to the results."""
    for kind in ("full", "mixed"):
        model, batch = save_model(name, folder), make_batch(name, kind)
        network, _ = load(folder)
        check(name, model, network, batch)
        for action, make_fn in (("forward", forward_fn), ("train", training_step_fn)):
            functions = make_fn(run_transformers, name, model, batch), make_fn(run_regard, name, network, batch)
            theirs, ours, noise = time_alternating(*functions, rounds)
            print_row(name, kind, f"{action} ms", theirs, ours, noise)
            what = f"{TITLES[name]}, {TITLES[kind]}, {TITLES[action]}"
            note = f"noise ±{noise * 100:.0f}%"
            results.add("forward", what, "ms", ours=ours * 1e3, peer=theirs * 1e3, peer_name="transformers", note=note)
        del model, network
        for action in ("forward", "train") if with_memory else ():
            peaks = [peak_memory(name, kind, action, backend, folder) for backend in ("transformers", "regard")]
            print_row(name, kind, f"{action} peak MB", *peaks, None)
            what = f"{TITLES[name]}, {TITLES[kind]}, {TITLES[action]}, peak memory"
            results.add("forward", what, "MB", ours=peaks[1], peer=peaks[0], peer_name="transformers")


def forward_fn(run, name, network, batch):
    def forward():
        with torch.no_grad():
            run(name, network, batch)

    return forward


def training_step_fn(run, name, network, batch):
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    return lambda: training_step(run, name, network, batch, optimizer)


def print_row(name, kind, measure, transformers_value, regard_value, noise):
    scale = 1000 if measure.endswith("ms") else 1
    noise_cell = "" if noise is None else f"±{noise * 100:.0f}%"
    ratio = transformers_value / regard_value
    numbers = f"{transformers_value * scale:.0f} | {regard_value * scale:.0f} | {ratio:.2f}×"
    print(f"| {name} | {kind} | {measure} | {numbers} | {noise_cell} |", flush=True)


def peak_memory(name, kind, action, backend, folder):
    command = [sys.executable, __file__, "--memory-worker", json.dumps([name, kind, action, backend, str(folder)])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_worker(name, kind, action, backend, folder):
    """Print the peak memory of one forward pass or two training steps, minus that of the process before."""
    torch.set_num_threads(THREADS)
    batch = make_batch(name, kind)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = proc_status_mb("VmRSS")
    if backend == "transformers":
        run, network = run_transformers, load_transformers(name, folder)
    else:
        run, network = run_regard, load(folder)[0]
    if action == "forward":
        network.eval()
        forward_fn(run, name, network, batch)()
    else:
        train_step = training_step_fn(run, name, network, batch)
        train_step(), train_step()
    print(proc_status_mb("VmHWM") - before)


def proc_status_mb(key):
    """An entry of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(MODELS), help="one network")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--memory-worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if args.memory_worker:
        memory_worker(*json.loads(args.memory_worker))
        return
    torch.set_num_threads(THREADS)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, {THREADS} threads, {platform.machine()}, load {os.getloadavg()[0]:.2f}, best of {args.rounds}")
    print("| network | batch | measure | transformers | regard | ratio | noise |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    results = ResultRows("core", threads=THREADS, packages=("torch", "transformers"))
    for name in [args.only] if args.only else MODELS:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, Path(folder), args.rounds, not args.no_memory, results)
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
