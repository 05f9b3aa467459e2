"""Training a translator: whole commands against JoeyNMT and transformers' Seq2SeqTrainer, side by side in one run.

    REGARD_DATA=path/to/data python benchmarks/train_translation.py \\
        --joey path/to/joeynmt/env/bin/python --transformers path/to/accelerate/env/bin/python

Multi30k English to German; 4+4 layers, 128, feed-forward 256, 4 heads, one vocabulary of 8,000, dropout 0.3, label
smoothing 0.1, batches of at most 4,096 tokens. All sides read the same tokens: ours are written out for the others, so
nobody but `regard train` (from a folder, here) tokenizes anything. What counts is real target tokens (no padding, the
end included) in each second between two steps of the running command: its data, its logging and its optimizer are in
it, its start is not (it is printed beside). Sides take turns, the best of the rounds counts. Memory is the most that
the whole process ever held.

JoeyNMT 2.3 in an environment of its own: pip install torch==2.13.0 numpy sacrebleu sacremoses sentencepiece subword-nmt
matplotlib pyyaml packaging datasets tensorboard importlib-metadata; pip install --no-deps joeynmt==2.3.0. It gets token
batches (it sorts nothing, so they are padded); the Trainer gets batches of rows, as many as ours have on average,
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

TOKENS, VOCABULARY = 4096, 8000
REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
RECIPE = """
task = "translate"
[data]
train = ["{data}/train.en", "{data}/train.de"]
length = 256
[tokenizer]
kind = "bpe"
size = {vocabulary}
shared = true
[network]
family = "transformer"
layers = [4, 4]
model_dim = 128
heads = 4
inner_dim = 256
dropout = 0.3
[objective]
smoothing = 0.1
[training]
tokens = {tokens}
steps = 1
optimizer = {{ kind = "adamw", rate = 2e-3, betas = [0.9, 0.98], decay = 0.01 }}
schedule = {{ kind = "inverse_root", warmup = 800 }}
threads = {threads}
"""
JOEY = """
name: "multi30k"
model_dir: "{place}/run"
use_cuda: False
random_seed: 1
data:
    train: "{place}/train"
    dev: "{place}/train"
    sample_dev_subset: 10
    dataset_type: "plain"
    src: &side {{lang: "src", level: "word", lowercase: False, max_length: 256, voc_file: "{place}/vocabulary.txt"}}
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
    batch_size: {tokens}
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


class Run:
    """A command that is watched from outside: when it had done so many steps, and what it held in memory."""

    def __init__(self, command, folder, steps_done, marks, environment):
        began = time.monotonic()
        log = folder / "output.txt"
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        self.at = {}
        while len(self.at) < len(marks):
            done = steps_done()
            for mark in marks:
                if done >= mark:
                    self.at.setdefault(mark, time.monotonic() - began)
            if len(self.at) < len(marks) and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.01)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or len(self.at) < len(marks):
            sys.exit(f"{command[0]} failed:\n{log.read_text()[-3000:]}")
        self.memory = used.ru_maxrss / 1024


def prepare(place, data, threads):
    """Learn the vocabulary, encode the corpus, and write it out for the others."""
    from regard.data.batches import Batches, ByLength
    from regard.data.corpus import Corpus

    recipe = place / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data, vocabulary=VOCABULARY, tokens=TOKENS, threads=threads))
    subprocess.run([*REGARD, "train", recipe, "--folder", place / "ours"], check=True, capture_output=True)
    (folder,) = (path.parent for path in (place / "ours" / "cache" / "train").glob("*/corpus.json"))
    corpus = Corpus(folder)
    special = json.loads((place / "ours" / "best" / "generation_config.json").read_text())
    outside = set(special.values())
    sides = {"src": corpus.columns["source"], "trg": corpus.columns["target"]}
    joey = place / "joey"
    joey.mkdir()
    for name, column in sides.items():
        rows = [[str(token) for token in column[row] if token not in outside] for row in range(len(corpus))]
        (joey / f"train.{name}").write_text("".join(" ".join(row) + "\n" for row in rows))
    tokens = [str(number) for number in range(VOCABULARY) if number not in outside]
    (joey / "vocabulary.txt").write_text("".join(f"{token}\n" for token in ["<unk>", "<pad>", "<s>", "</s>", *tokens]))
    batches = Batches(corpus, ByLength(TOKENS), seed=1)
    rows = [{"input_ids": corpus[row]["source"].tolist(), "labels": corpus[row]["target"].tolist()}
            for row in range(len(corpus))]  # fmt: skip
    about = {"rows": round(len(corpus) / batches.steps()), "special": special, "config": str(place / "ours" / "best")}
    (place / "rows.json").write_text(json.dumps({**about, "examples": rows}))
    return batches


def ours(place, given, environment, batches):
    run = place / "run"
    command = [*REGARD, "train", place / "recipe.toml", "--folder", run, f"tokenizer={{ load = '{place}/ours/best' }}"]
    command += [f"training.steps={given.steps}", f"training.report_every={given.skip}"]
    command += ["training.evaluate_every=1000000", "training.save_every=1000000"]

    def done():
        lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
        return json.loads(lines[-1])["step"] if lines else 0

    subprocess.run(["rm", "-rf", run], check=True)
    found = Run(command, place, done, marks(given), environment)
    counted = range(given.skip, given.steps)
    return found, sum(batches.get(0, step % batches.steps())["target"].rows.tokens for step in counted)


def joey(place, given, environment):
    folder, log = place / "joey", place / "joey" / "run" / "train.log"
    never = given.skip * 10**6
    text = JOEY.format(place=folder, tokens=TOKENS, steps=given.steps, skip=given.skip, never=never)
    (folder / "config.yaml").write_text(text)

    def told():
        text = log.read_text() if log.exists() else ""
        return re.findall(r"Step: +(\d+),.*?Tokens per Sec: +(\d+)", text)

    subprocess.run(["rm", "-rf", folder / "run"], check=True)
    command = [given.joey, "-m", "joeynmt", "train", folder / "config.yaml", "--skip-test"]
    found = Run(command, folder, lambda: max([0, *(int(step) for step, _ in told())]), marks(given), environment)
    rates = {int(step): int(rate) for step, rate in told()}
    windows = [(mark - given.skip, mark) for mark in marks(given)[1:]]
    return found, sum(rates[end] * (found.at[end] - found.at[begin]) for begin, end in windows)


def trainer(place, given, environment):
    file = place / "marks.txt"
    file.unlink(missing_ok=True)

    def told():
        return [tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []

    command = [given.transformers, Path(__file__).resolve(), "--side", place, "--steps", str(given.steps)]
    command += ["--threads", str(given.threads)]
    found = Run(command, place, lambda: max([0, *(step for step, _ in told())]), marks(given), environment)
    return found, sum(tokens for step, tokens in told() if step > given.skip)


def marks(given):
    return list(range(given.skip, given.steps + 1, given.skip))


def side(place, steps, threads):
    """transformers' side, in a process of its own: a Marian network of the same config, trained by its Trainer."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    about = json.loads((place / "rows.json").read_text())
    config = transformers.MarianConfig.from_pretrained(about["config"])
    padding, start = config.pad_token_id, about["special"]["decoder_start_token_id"]
    model = transformers.MarianMTModel(config)

    def padded(rows, fill):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, fill)

    def collate(rows):
        source, target = [row["input_ids"] for row in rows], [row["labels"] for row in rows]
        return {
            "input_ids": padded(source, padding),
            "attention_mask": padded([[1] * len(row) for row in source], 0),
            "labels": padded(target, -100),
            "decoder_input_ids": padded([[start, *row[:-1]] for row in target], padding),
        }

    class Counting(transformers.Seq2SeqTrainer):
        def training_step(self, model, inputs, *more):
            self.tokens = int((inputs["labels"] != -100).sum())
            return super().training_step(model, inputs, *more)

    class Marks(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):  # noqa: ARG002 (it is called so)
            with (place / "marks.txt").open("a") as file:
                file.write(f"{state.global_step} {counting.tokens}\n")

    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(place / "theirs"), use_cpu=True, max_steps=steps, per_device_train_batch_size=about["rows"],
        train_sampling_strategy="group_by_length", label_smoothing_factor=0.1, learning_rate=2e-3, weight_decay=0.01,
        adam_beta2=0.98, max_grad_norm=1.0, logging_steps=steps, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_pin_memory=False, remove_unused_columns=False, seed=1,
    )  # fmt: skip
    examples = about["examples"]
    counting = Counting(model=model, args=arguments, train_dataset=examples, data_collator=collate, callbacks=[Marks()])
    counting.train()


def versions(python, *names):
    code = f"import importlib.metadata as m; print(', '.join(f'{{n}} {{m.version(n)}}' for n in {names!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joey", help="the python of an environment with JoeyNMT; left out: without it")
    parser.add_argument("--transformers", help="the python of an environment with transformers and accelerate")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", ".")) / "multi30k")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--skip", type=int, default=20, help="the first steps, which are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side(given.side, given.steps, given.threads)
        return
    if given.steps % given.skip or given.steps == given.skip:
        sys.exit("--steps must be a multiple of --skip, and more")
    compare(given)


def compare(given):
    environment = {**os.environ, "OMP_NUM_THREADS": str(given.threads), "MKL_NUM_THREADS": str(given.threads)}
    print(f"load {os.getloadavg()[0]:.1f}, {given.threads} threads, Python {platform.python_version()}")
    print("regard:", versions(sys.executable, "torch"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        batches = prepare(place, given.data.resolve(), given.threads)
        sides = {"regard": lambda: ours(place, given, environment, batches)}
        if given.transformers:
            print("transformers:", versions(given.transformers, "torch", "transformers", "accelerate"))
            sides["Seq2SeqTrainer"] = lambda: trainer(place, given, environment)
        if given.joey:
            print("JoeyNMT:", versions(given.joey, "torch", "joeynmt"))
            sides["JoeyNMT"] = lambda: joey(place, given, environment)
        best = measured(sides, given)
    print(f"load {os.getloadavg()[0]:.1f}\n\n| side | target tokens/s | regard's to it | start s | peak MB |")
    print("| --- | --- | --- | --- | --- |")
    for name, (speed, start, memory) in best.items():
        print(f"| {name} | {speed:,.0f} | {best['regard'][0] / speed:.2f}× | {start:.1f} | {memory:,.0f} |")


def measured(sides, given):
    best = {}
    for number in range(given.rounds):
        for name, run in sides.items():
            found, tokens = run()
            seconds = found.at[given.steps] - found.at[given.skip]
            start = found.at[given.skip] - seconds * given.skip / (given.steps - given.skip)
            print(f"round {number + 1}, {name}: {tokens:,.0f} tokens in {seconds:.1f} s", flush=True)
            now = (tokens / seconds, max(0.0, start), found.memory)
            best[name] = max(best.get(name, now), now)
    return best


if __name__ == "__main__":
    main()
