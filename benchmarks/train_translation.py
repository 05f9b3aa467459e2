"""Training a translator: whole commands compared with JoeyNMT and transformers' Seq2SeqTrainer, in one run.

    REGARD_DATA=path/to/data python benchmarks/train_translation.py \\
        --joeynmt-python path/to/joeynmt/env/bin/python --transformers-python path/to/accelerate/env/bin/python

Multi30k English to German; 4+4 layers, 128, feed-forward 256, 4 heads, one joint vocabulary of 8,000, dropout 0.3,
label smoothing 0.1, batches of at most 4,096 tokens. All backends read the same token ids: those of regard are written
out for the others, so only `regard train` (with a tokenizer loaded from a folder) tokenizes. The measure is target
tokens per second (without padding, with EOS) between two steps of the running command. This includes its data pipeline,
logging and optimizer, but not its start-up, which is reported separately. Backends are timed alternately, and the best
of the rounds is reported. Memory is the peak RSS of the whole process.

JoeyNMT 2.3 needs a separate environment: pip install torch==2.13.0 numpy sacrebleu sacremoses sentencepiece subword-nmt
matplotlib pyyaml packaging datasets tensorboard importlib-metadata; pip install --no-deps joeynmt==2.3.0. It gets token
batches (which it does not sort, so they are padded); the Trainer gets batches of a fixed size, the mean of regard's,
grouped by length.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from result_rows import ResultRows

BATCH_TOKENS, VOCAB_SIZE = 4096, 8000
REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
RECIPE = """
task = "translate"
[data]
train = ["{data}/train.en", "{data}/train.de"]
max_length = 256
[tokenizer]
kind = "bpe"
size = {vocab_size}
shared = true
[network]
family = "transformer"
layers = [4, 4]
model_dim = 128
heads = 4
inner_dim = 256
dropout = 0.3
[objective]
label_smoothing = 0.1
[training]
batch_tokens = {batch_tokens}
steps = 1
optimizer = {{ kind = "adamw", lr = 2e-3, betas = [0.9, 0.98], weight_decay = 0.01 }}
schedule = {{ kind = "inverse_sqrt", warmup_steps = 800 }}
threads = {threads}
"""
JOEYNMT = """
name: "multi30k"
model_dir: "{folder}/run"
use_cuda: False
random_seed: 1
data:
    train: "{folder}/train"
    dev: "{folder}/train"
    sample_dev_subset: 10
    dataset_type: "plain"
    src: &side {{lang: "src", level: "word", lowercase: False, max_length: 256, voc_file: "{folder}/vocab.txt"}}
    trg: {{<<: *side, lang: "trg"}}
training:
    optimizer: "adamw"
    adam_betas: [0.9, 0.98]
    learning_rate: 0.002
    learning_rate_min: 0.0
    learning_rate_warmup: 800
    scheduling: "warmupinversesquareroot"
    weight_decay: 0.01
    clip_grad_norm: 1.0
    label_smoothing: 0.1
    normalization: "tokens"
    batch_type: "token"
    batch_size: {batch_tokens}
    epochs: 1000
    updates: {steps}
    logging_freq: {skip}
    validation_freq: {never}
    overwrite: True
testing: {{}}
model:
    initializer: "xavier_uniform"
    tied_embeddings: True
    tied_softmax: True
    encoder: &stack
        type: "transformer"
        num_layers: 4
        num_heads: 4
        embeddings: {{embedding_dim: 128, scale: True, dropout: 0.3}}
        hidden_size: 128
        ff_size: 256
        dropout: 0.3
        layer_norm: "post"
    decoder: {{<<: *stack}}
"""


class TimedRun:
    """A command, observed from outside: the seconds at which it reached each of the timing steps, and its peak RSS."""

    def __init__(self, command, folder, get_step, timing_steps, environment):
        start = time.monotonic()
        log = folder / "output.txt"
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        self.seconds_at = {}
        while len(self.seconds_at) < len(timing_steps):
            current = get_step()
            for step in timing_steps:
                if current >= step:
                    self.seconds_at.setdefault(step, time.monotonic() - start)
            complete = len(self.seconds_at) == len(timing_steps)
            if not complete and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.01)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or len(self.seconds_at) < len(timing_steps):
            sys.exit(f"{command[0]} failed:\n{log.read_text()[-3000:]}")
        self.memory = usage.ru_maxrss / 1024


def prepare_data(work_dir, data, threads):
    """Train the vocabulary, encode the corpus, and write it out for the other backends."""
    from regard.data.batches import Batches, LengthBatching
    from regard.data.corpus import Corpus

    recipe, run = work_dir / "recipe.toml", work_dir / "ours"
    recipe.write_text(RECIPE.format(data=data, vocab_size=VOCAB_SIZE, batch_tokens=BATCH_TOKENS, threads=threads))
    subprocess.run([*REGARD, "train", recipe, "-o", run], check=True, capture_output=True)
    (folder,) = (path.parent for path in (run / "cache" / "train").glob("*/corpus.json"))
    corpus = Corpus(folder)
    special_ids = json.loads((run / "best" / "generation_config.json").read_text())
    excluded = set(special_ids.values())
    joeynmt = work_dir / "joeynmt"
    joeynmt.mkdir()
    for name, column in {"src": corpus.columns["source"], "trg": corpus.columns["target"]}.items():
        lines = [" ".join(str(token) for token in column[n] if token not in excluded) for n in range(len(corpus))]
        (joeynmt / f"train.{name}").write_text("".join(f"{line}\n" for line in lines))
    tokens = [str(token_id) for token_id in range(VOCAB_SIZE) if token_id not in excluded]
    vocab = ["<unk>", "<pad>", "<s>", "</s>", *tokens]
    (joeynmt / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab))
    batches = Batches(corpus, LengthBatching(BATCH_TOKENS), seed=1)
    examples = [{"input_ids": corpus[n]["source"].tolist(), "labels": corpus[n]["target"].tolist()}
                for n in range(len(corpus))]  # fmt: skip
    batch_size = round(len(corpus) / batches.steps())
    task = {"batch_size": batch_size, "special_ids": special_ids, "config": str(run / "best"), "examples": examples}
    (work_dir / "task.json").write_text(json.dumps(task))
    return batches


def run_regard(work_dir, args, environment, batches):
    run = work_dir / "run"
    command = [*REGARD, "train", work_dir / "recipe.toml", "-o", run, f"tokenizer={{ load = '{work_dir}/ours/best' }}"]
    command += [f"training.steps={args.steps}", f"training.log_every={args.skip}"]
    command += ["training.evaluate_every=1000000", "training.save_every=1000000"]

    def get_step():
        lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
        return json.loads(lines[-1])["step"] if lines else 0

    subprocess.run(["rm", "-rf", run], check=True)
    timed_run = TimedRun(command, work_dir, get_step, timing_steps(args), environment)
    timed_batches = (batches.get(0, step % batches.steps()) for step in range(args.skip, args.steps))
    return timed_run, sum(batch["target"].layout.num_tokens for batch in timed_batches)


def run_joeynmt(work_dir, args, environment):
    folder, log = work_dir / "joeynmt", work_dir / "joeynmt" / "run" / "train.log"
    never = args.skip * 10**6
    config = JOEYNMT.format(folder=folder, batch_tokens=BATCH_TOKENS, steps=args.steps, skip=args.skip, never=never)
    (folder / "config.yaml").write_text(config)

    def log_entries():
        text = log.read_text() if log.exists() else ""
        return re.findall(r"Step: +(\d+),.*?Tokens per Sec: +(\d+)", text)

    def get_step():
        return max([0, *(int(step) for step, _ in log_entries())])

    subprocess.run(["rm", "-rf", folder / "run"], check=True)
    command = [args.joeynmt_python, "-m", "joeynmt", "train", folder / "config.yaml", "--skip-test"]
    timed_run = TimedRun(command, folder, get_step, timing_steps(args), environment)
    tokens_per_second = {int(step): int(speed) for step, speed in log_entries()}
    at = timed_run.seconds_at
    intervals = [(step - args.skip, step) for step in timing_steps(args)[1:]]
    return timed_run, sum(tokens_per_second[end] * (at[end] - at[start]) for start, end in intervals)


def run_trainer(work_dir, args, environment):
    log = work_dir / "steps.txt"
    log.unlink(missing_ok=True)

    def log_entries():
        return [tuple(map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []

    def get_step():
        return max([0, *(step for step, _ in log_entries())])

    command = [args.transformers_python, Path(__file__).resolve(), "--worker", work_dir, "--steps", str(args.steps)]
    command += ["--threads", str(args.threads)]
    timed_run = TimedRun(command, work_dir, get_step, timing_steps(args), environment)
    return timed_run, sum(tokens for step, tokens in log_entries() if step > args.skip)


def timing_steps(args):
    return list(range(args.skip, args.steps + 1, args.skip))


def trainer_worker(work_dir, steps, threads):
    """In a separate process: train a Marian network of the same config with transformers' Trainer."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    task = json.loads((work_dir / "task.json").read_text())
    config = transformers.MarianConfig.from_pretrained(task["config"])
    pad, decoder_start = config.pad_token_id, task["special_ids"]["decoder_start_token_id"]
    model = transformers.MarianMTModel(config)

    def pad_batch(sequences, value):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(sequence) for sequence in sequences], True, value)

    def collate(examples):
        source, target = [example["input_ids"] for example in examples], [example["labels"] for example in examples]
        return {
            "input_ids": pad_batch(source, pad),
            "attention_mask": pad_batch([[1] * len(sequence) for sequence in source], 0),
            "labels": pad_batch(target, -100),
            "decoder_input_ids": pad_batch([[decoder_start, *sequence[:-1]] for sequence in target], pad),
        }

    class CountingTrainer(transformers.Seq2SeqTrainer):
        def training_step(self, model, inputs, *args):
            self.tokens = int((inputs["labels"] != -100).sum())
            return super().training_step(model, inputs, *args)

    class StepCallback(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):  # noqa: ARG002 (signature of transformers)
            with (work_dir / "steps.txt").open("a") as log:
                log.write(f"{state.global_step} {trainer.tokens}\n")

    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(work_dir / "trainer"), use_cpu=True, max_steps=steps,
        per_device_train_batch_size=task["batch_size"],
        train_sampling_strategy="group_by_length", label_smoothing_factor=0.1, learning_rate=2e-3, weight_decay=0.01,
        adam_beta2=0.98, max_grad_norm=1.0, logging_steps=steps, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_pin_memory=False, remove_unused_columns=False, seed=1,
    )  # fmt: skip
    trainer = CountingTrainer(
        model=model, args=arguments, train_dataset=task["examples"], data_collator=collate, callbacks=[StepCallback()]
    )
    trainer.train()


def save_rows(best, args):
    """Save speed and memory beside those of each peer."""
    rows = ResultRows("train_translation", threads=args.threads, packages=("torch", "transformers"))
    pythons = {
        "JoeyNMT": ("JoeyNMT", args.joeynmt_python, ("torch", "joeynmt")),
        "Seq2SeqTrainer": ("Seq2SeqTrainer (transformers)", args.transformers_python, ("transformers", "accelerate")),
    }
    speed, _, memory = best["regard"]
    for name, (title, python, packages) in pythons.items():
        if name in best:
            versions = dict(entry.split() for entry in package_versions(python, *packages).split(", "))
            extra = {"peer_name": title, "versions": {f"{library} (peer)": v for library, v in versions.items()}}
            what = "translator on Multi30k"
            rows.add("training", what, "target tokens/s", ours=speed, peer=best[name][0], better="higher", **extra)
            rows.add("training", f"{what}, peak memory", "MB", ours=memory, peer=best[name][2], **extra)
    rows.save()


def package_versions(python, *names):
    code = f"import importlib.metadata as m; print(', '.join(f'{{n}} {{m.version(n)}}' for n in {names!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def compare(args):
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}
    print(f"load {os.getloadavg()[0]:.1f}, {args.threads} threads, Python {platform.python_version()}")
    print("regard:", package_versions(sys.executable, "torch"))
    with tempfile.TemporaryDirectory() as folder:
        work_dir = Path(folder)
        batches = prepare_data(work_dir, args.data.resolve(), args.threads)
        backends = {"regard": lambda: run_regard(work_dir, args, environment, batches)}
        if args.transformers_python:
            print("transformers:", package_versions(args.transformers_python, "torch", "transformers", "accelerate"))
            backends["Seq2SeqTrainer"] = lambda: run_trainer(work_dir, args, environment)
        if args.joeynmt_python:
            print("JoeyNMT:", package_versions(args.joeynmt_python, "torch", "joeynmt"))
            backends["JoeyNMT"] = lambda: run_joeynmt(work_dir, args, environment)
        best = measure_all(backends, args)
    print(f"load {os.getloadavg()[0]:.1f}\n\n| backend | target tokens/s | regard's speedup | start s | peak MB |")
    print("| --- | --- | --- | --- | --- |")
    for name, (speed, start, memory) in best.items():
        print(f"| {name} | {speed:,.0f} | {best['regard'][0] / speed:.2f}× | {start:.1f} | {memory:,.0f} |")
    if args.save:
        save_rows(best, args)


def measure_all(backends, args):
    best = {}
    for round_ in range(args.rounds):
        for name, run in backends.items():
            timed_run, tokens = run()
            seconds = timed_run.seconds_at[args.steps] - timed_run.seconds_at[args.skip]
            start = timed_run.seconds_at[args.skip] - seconds * args.skip / (args.steps - args.skip)
            print(f"round {round_ + 1}, {name}: {tokens:,.0f} tokens in {seconds:.1f} s", flush=True)
            result = (tokens / seconds, max(0.0, start), timed_run.memory)
            best[name] = max(best.get(name, result), result)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joeynmt-python", help="the python of an environment with JoeyNMT. Default: without JoeyNMT")
    parser.add_argument("--transformers-python", help="the python of an environment with transformers and accelerate")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", ".")) / "multi30k")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--skip", type=int, default=20, help="number of first steps that are not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        trainer_worker(args.worker, args.steps, args.threads)
        return
    if args.steps % args.skip or args.steps == args.skip:
        sys.exit("--steps must be a multiple of --skip, and larger")
    compare(args)


if __name__ == "__main__":
    main()
