"""Tinyshakespeare, character-level: nanoGPT's CPU setting, and `regard train` in the same wall time, in one run.

    REGARD_DATA=path/to/data python benchmarks/train_characters.py
    REGARD_DATA=path/to/data python benchmarks/train_characters.py --recipe characters-long --no-baseline
    REGARD_DATA=path/to/data python benchmarks/train_characters.py --run RUN     # only evaluate an existing run

The baseline is nanoGPT's published CPU setting in a plain torch loop: 4 layers, 4 heads, 128, context 64, batch size
12, 2,000 iterations, no dropout, AdamW (0.9, 0.99; weight decay 0.1 of matrices), learning rate 1e-3, 100 warm-up
steps, cosine decay to 1e-4, gradients clipped at 1, evaluated on 20 batches of both splits every 250 iterations. It is
compared with a preset recipe, whose training time is the wall time of the baseline's process, minus the start-up and
shutdown of `regard train` (measured first). Both losses are computed by the same code, after the clock has stopped: the
mean over all characters of the last 10% (except the first one), in consecutive windows of the model's context length
without overlap.
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
from result_rows import ResultRows
from torch import nn
from torch.nn import functional

REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
LAYERS, HEADS, DIM, CONTEXT, BATCH_SIZE, ITERATIONS = 4, 4, 128, 64, 12, 2000
LR, MIN_LR, WARMUP_STEPS = 1e-3, 1e-4, 100
PEER = "plain torch, nanoGPT's CPU setting, the same wall time"
GOALS = {"characters": 1.65, "characters-long": 1.4697}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(DIM, bias=False), nn.LayerNorm(DIM, bias=False)
        self.qkv, self.output = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        batch_size, length, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch_size, length, 3, HEADS, DIM // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch_size, length, DIM))
        return x + self.down(functional.gelu(self.up(self.feedforward_norm(x))))


class NanoGPT(nn.Module):
    """GPT-2's architecture without biases, with tied output projection."""

    def __init__(self, vocab_size):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(DIM, bias=False)
        for name, value in self.named_parameters():
            if value.ndim == 2:
                residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(value, std=0.02 / math.sqrt(2 * LAYERS) if residual else 0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


def lr_at(step, steps):
    if step < WARMUP_STEPS:
        return LR * (step + 1) / (WARMUP_STEPS + 1)
    progress = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return MIN_LR + (LR - MIN_LR) * (1 + math.cos(math.pi * progress)) / 2


def train_baseline(work_dir, steps, threads):
    """Train the baseline, in a separate process."""
    torch.set_num_threads(threads)
    torch.manual_seed(1337)
    texts = {name: (work_dir / f"{name}.txt").read_text() for name in ("train", "valid")}
    alphabet = sorted({*texts["train"], *texts["valid"]})
    char_to_id = {character: index for index, character in enumerate(alphabet)}
    ids = {name: torch.tensor([char_to_id[character] for character in text]) for name, text in texts.items()}
    model = NanoGPT(len(alphabet))
    matrices = [value for value in model.parameters() if value.ndim == 2]
    vectors = [value for value in model.parameters() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99))

    def loss(name):
        starts = torch.randint(len(ids[name]) - CONTEXT, (BATCH_SIZE,))
        batch = torch.stack([ids[name][start : start + CONTEXT + 1] for start in starts])
        return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for step in range(steps + 1):
        if step % 250 == 0 or step == steps:
            with torch.no_grad():
                means = {name: sum(loss(name).item() for _ in range(20)) / 20 for name in ids}
            print(f"{step}: {means}", file=sys.stderr, flush=True)
        if step == steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, steps)
        loss("train").backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.save({"alphabet": alphabet, "state": model.state_dict()}, work_dir / "baseline.pt")


@torch.no_grad()
def mean_loss(compute_logits, ids, context):
    """The mean loss of all tokens except the first, in consecutive windows of the context length."""
    total = 0.0
    end = (len(ids) - 1) // context * context
    groups = [(ids[:end].view(-1, context), ids[1 : end + 1].view(-1, context))]
    if end < len(ids) - 1:
        groups.append((ids[end:-1][None], ids[end + 1 :][None]))
    for group_inputs, group_labels in groups:
        for inputs, labels in zip(group_inputs.split(64), group_labels.split(64), strict=True):
            logits = compute_logits(inputs).flatten(0, 1)
            total += functional.cross_entropy(logits, labels.flatten(), reduction="sum").item()
    return total / (len(ids) - 1)


def baseline_loss(work_dir, text):
    saved = torch.load(work_dir / "baseline.pt", weights_only=True)
    model = NanoGPT(len(saved["alphabet"]))
    model.load_state_dict(saved["state"])
    char_to_id = {character: index for index, character in enumerate(saved["alphabet"])}
    return mean_loss(model, torch.tensor([char_to_id[character] for character in text]), CONTEXT)


def run_loss(run, text):
    """The context length and the loss of a run, in windows of the length that it was trained with."""
    import regard

    model, context = regard.load(run / "best"), context_length(run)
    ids = torch.tensor(model.tokenizer.encode(text, add_special_tokens=False).ids)
    if len(ids) != len(text):
        sys.exit(f"{len(text)} characters became {len(ids)} tokens: the loss is not per character")
    return context, mean_loss(lambda batch: model.network.eval()(batch).logits, ids, context)


def context_length(run):
    data = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["data"]
    return data["max_length"] if "max_length" in data else data["length"]  # the key of version 0.1


def time_command(command, environment):
    start = time.monotonic()
    result = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"{command[0]} failed:\n{result.stderr[-3000:]}")
    return time.monotonic() - start


def split_data(work_dir, data):
    """Write the first 90% for training and the rest for validation; return the latter."""
    text = (data / "input.txt").read_text(encoding="utf-8")
    boundary = int(0.9 * len(text))
    (work_dir / "train.txt").write_text(text[:boundary], encoding="utf-8")
    (work_dir / "valid.txt").write_text(text[boundary:], encoding="utf-8")
    return text[boundary:]


def train_regard(work_dir, args, minutes, run, environment):
    command = [*REGARD, "train", work_dir / "recipe.toml", *args.overrides, f"training.threads={args.threads}"]
    command += [] if minutes is None else [f"training.minutes={minutes:.5f}"]
    return time_command([*command, "-o", run], environment)


def compare(args, work_dir, text, environment):
    from regard.training.recipe import presets

    print(f"load {os.getloadavg()[0]:.1f}, {args.threads} threads, torch {torch.__version__}, "
          f"Python {platform.python_version()}")  # fmt: skip
    (work_dir / "recipe.toml").write_text(presets.preset_text(args.recipe), encoding="utf-8")
    results, minutes = [], None
    if not args.no_baseline:
        script = Path(__file__).resolve()
        command = [sys.executable, script, "--baseline-worker", work_dir, "--iterations", args.iterations]
        budget = time_command([*command, "--threads", args.threads], environment)
        results.append(("plain torch, nanoGPT's CPU setting", budget, CONTEXT, baseline_loss(work_dir, text)))
        overhead = train_regard(work_dir, args, 1e-4, work_dir / "first", environment)
        minutes = (budget - overhead) / 60
        if minutes <= 0:
            sys.exit(f"start-up and shutdown take {overhead:.1f} s of a budget of {budget:.1f} s")
    seconds = train_regard(work_dir, args, minutes, work_dir / "run", environment)
    results.append((f"regard train, recipe {args.recipe}", seconds, *run_loss(work_dir / "run", text)))
    print(f"load {os.getloadavg()[0]:.1f}\n\n| backend | wall s | context | validation loss per character |")
    print("| --- | --- | --- | --- |")
    for name, seconds, context, loss in results:
        print(f"| {name} | {seconds:.1f} | {context} | {loss:.4f} |")
    print(f"\ngoal: {GOALS.get(args.recipe, math.nan)}")
    if args.save:
        rows = ResultRows("train_characters", threads=args.threads, packages=("torch",))
        what = (
            f"tinyshakespeare, recipe `{args.recipe}`, loss of a validation character after {seconds:.0f} s of training"
        )
        peer = {} if args.no_baseline else {"peer": results[0][3], "peer_name": PEER}
        rows.add("quality", what, "nats", ours=results[-1][3], **peer)
        rows.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", ".")) / "tinyshakespeare")
    parser.add_argument("--recipe", default="characters", help="a preset recipe")
    parser.add_argument("--no-baseline", action="store_true", help="only the recipe, for the minutes set in it")
    parser.add_argument("--run", type=Path, help="only evaluate this run")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of the baseline; fewer to try this script")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--baseline-worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="recipe overrides, e.g. training.batch_tokens=1024")
    args = parser.parse_args()
    if args.baseline_worker:
        train_baseline(args.baseline_worker, args.iterations, args.threads)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}
    with tempfile.TemporaryDirectory() as folder:
        text = split_data(Path(folder), args.data)
        if args.run:
            print("context {}: validation loss per character {:.4f}".format(*run_loss(args.run, text)))
        else:
            compare(args, Path(folder), text, environment)


if __name__ == "__main__":
    main()
