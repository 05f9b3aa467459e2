"""Word vectors: words per second, accuracy on analogy questions and memory, against gensim and the original C program.

    python benchmarks/vectors.py text.txt.xz --gensim-python ENV/bin/python [--word2vec PATH] [--share 0.1] [--save]
    python benchmarks/vectors.py text.txt.xz --growth          threads, dimension and vocabulary, regard alone
    python benchmarks/vectors.py --nearest                     one query over a million vectors

All tools read the same file (lower case, words only, one sentence per line) with the same settings, each in a process
of its own, alternating, and their vectors answer the same questions by the same protocol, which is printed. gensim
reads the file itself (`corpus_file`), which is its fastest way: its workers do not wait for Python.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from result_rows import ResultRows

SETTINGS = dict(dim=100, window=5, negative=5, min_count=5, sample=1e-4, lr=0.05)
GENSIM = """
import json, sys, time
from gensim.models import Word2Vec
from gensim import __version__
text, out, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = Word2Vec(sg=int(settings["kind"] == "skipgram"), vector_size=settings["dim"], window=settings["window"],
    negative=settings["negative"], min_count=settings["min_count"], sample=settings["sample"], alpha=settings["lr"],
    workers=settings["threads"], seed=settings["seed"], epochs=settings["epochs"])
start = time.perf_counter()
model.build_vocab(corpus_file=text)
middle = time.perf_counter()
model.train(corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count,
    epochs=settings["epochs"])
end = time.perf_counter()
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
model.wv.save_word2vec_format(out, binary=True)
print(json.dumps([middle - start, end - middle, peak, __version__]))
"""


def prepare(source, target, share):
    """Write the text that all tools read; return its number of words."""
    from regard.vectors.vector_options import TextOptions, Tokens
    from regard.vectors.word_text import read_words

    lines, count = [[]], 0
    with target.open("w", encoding="utf-8") as stream:
        for block in read_words([source], TextOptions(tokens=Tokens.WORDS, lowercase=True)):
            lines[-1] += block[0]
            lines += block[1:]
            for line in lines[:-1]:
                count += len(line)
                stream.write(" ".join(line) + "\n" if line else "")
            lines = lines[-1:]
    if share < 1:  # every n-th line: both halves of the text
        step = round(1 / share)
        text = target.read_text(encoding="utf-8").splitlines(keepends=True)[::step]
        target.write_text("".join(text), encoding="utf-8")
        count = sum(len(line.split()) for line in text)
    return count


def run_regard(text, out, settings):
    """Train with regard in this process; print seconds before and in training, and the peak of memory."""
    from regard.vectors.hogwild import train_word2vec
    from regard.vectors.vector_files import save
    from regard.vectors.vector_options import Kind, TextOptions, Word2VecOptions
    from regard.vectors.word_corpus import encode
    from regard.vectors.word_kernels import load_kernels
    from regard.vectors.word_vectors import WordVectors

    min_count, kind = settings.pop("min_count"), Kind(settings.pop("kind"))
    max_vocabulary = settings.pop("max_vocabulary", None)
    options = Word2VecOptions(kind=kind, **settings)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        corpus = encode([Path(text)], TextOptions(min_count=min_count, max_vocabulary=max_vocabulary), Path(folder))
        load_kernels()
        middle = time.perf_counter()
        inputs, _ = train_word2vec(corpus, options)
        end = time.perf_counter()
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    save(WordVectors(corpus.vocabulary.words, inputs[:, : options.dim]), out)
    print(json.dumps([middle - start, end - middle, peak, len(corpus.vocabulary)]))


def train(tool, args, text, out, settings):
    """Train with a tool in a process of its own; return seconds before and in training, peak of memory in MB, note."""
    if tool == "regard":
        command = [sys.executable, __file__, "--worker", json.dumps([str(text), str(out), settings])]
    elif tool == "gensim":
        command = [args.gensim_python, "-c", GENSIM, str(text), str(out), json.dumps(settings)]
    else:
        return train_c(args.word2vec, text, out, settings)
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def train_c(program, text, out, settings):
    """The original program; it has no seed, and its time includes that of reading the vocabulary."""
    options = {
        "train": text, "output": out, "cbow": int(settings["kind"] == "cbow"), "size": settings["dim"],
        "window": settings["window"], "negative": settings["negative"], "hs": 0, "sample": settings["sample"],
        "threads": settings["threads"], "iter": settings["epochs"], "min-count": settings["min_count"],
        "alpha": settings["lr"], "binary": 1,
    }  # fmt: skip
    command = [program, *(str(word) for name, value in options.items() for word in (f"-{name}", value))]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return [0.0, time.perf_counter() - start, usage.ru_maxrss / 1024, ""]


def compare(args, text, words, results):
    from regard.vectors.vector_files import load
    from regard.vectors.word_evaluation import evaluate_analogies

    tools = ["regard", *(["gensim"] if args.gensim_python else []), *(["word2vec.c"] if args.word2vec else [])]
    measured = {tool: [] for tool in tools}
    for seed in args.seeds:
        for tool in tools:
            out = text.with_name(f"{tool}.bin")
            settings = SETTINGS | dict(kind=args.kind, epochs=args.epochs, threads=args.threads, seed=seed)
            before, seconds, memory, note = train(tool, args, text, out, settings)
            scores = evaluate_analogies(load(out), args.questions)
            speed = words * args.epochs / seconds
            entry = (speed, 100 * scores.total.accuracy, memory, before)
            measured[tool].append(entry)
            line = dict(tool=tool, seed=seed, words_per_second=round(speed), accuracy=round(entry[1], 2),
                semantic=round(100 * scores.semantic.accuracy, 2), syntactic=round(100 * scores.syntactic.accuracy, 2),
                correct=scores.total.correct, total=scores.total.total, memory_mb=round(memory),
                seconds_before=round(before, 1), seconds=round(seconds, 1), note=note)  # fmt: skip
            line["load"] = os.getloadavg()[0]
            print(json.dumps(line), flush=True)
    print(f"protocol: {scores.protocol}; {scores.total.total} questions")
    name = (
        f"{'skip-gram' if args.kind == 'skipgram' else 'CBOW'}, {words / 1e6:.1f} million words, {args.epochs} epochs"
    )
    for tool in tools[1:]:
        means = [(statistics.mean(ours), statistics.mean(theirs)) for ours, theirs in zip(
            zip(*measured["regard"], strict=True), zip(*measured[tool], strict=True), strict=True)]  # fmt: skip
        versions = {"gensim": str(note)} if tool == "gensim" else {}
        note_text = f"mean of {len(args.seeds)} seeds; {scores.protocol}; {scores.total.total:,} questions"
        for (ours, theirs), (what, unit, better) in zip(
            means,
            [("speed", "words/s", "higher"), ("questions-words", "%", "higher"), ("memory", "MB", "lower")],
            strict=False,
        ):
            print(f"{name}, {what}: regard {ours:,.2f}, {tool} {theirs:,.2f} {unit}, ratio {ours / theirs:.2f}")
            results.add(
                "vectors", f"{name}, {what}", unit, ours=ours, peer=theirs, peer_name=tool, better=better,
                note=note_text if what == "questions-words" else f"mean of {len(args.seeds)} runs", versions=versions,
            )  # fmt: skip


def growth(args, text, words, results):
    """Words per second of regard by threads, dimension and vocabulary."""
    base = SETTINGS | dict(kind=args.kind, epochs=1, threads=args.threads, seed=1)
    points = [("threads", value) for value in (1, 2)] + [("dim", value) for value in (50, 100, 200, 300)]
    points += [("max_vocabulary", value) for value in (1000, 10_000)]
    for name, value in points:
        runs = [train("regard", args, text, text.with_name("growth.bin"), base | {name: value}) for _ in range(2)]
        speed = words / min(run[1] for run in runs)
        print(f"{name} {value}: {speed:,.0f} words/s, {runs[0][2]:.0f} MB", flush=True)
        results.add("vectors", f"skip-gram, {name} {value}", "words/s", ours=speed, better="higher",
            threads=value if name == "threads" else None, note="best of 2 runs of 1 epoch")  # fmt: skip


def nearest(args, results):
    from regard.vectors.nearest import NearestNeighbours

    rng = np.random.default_rng(0)
    vectors = np.empty((1_000_000, 384), np.float32)
    for start in range(0, len(vectors), 100_000):
        vectors[start : start + 100_000] = rng.standard_normal((100_000, 384), np.float32)
    integers = np.clip(np.rint(vectors * 30), -127, 127).astype(np.int8)
    for name, matrix, scales in (("float32", vectors, None), ("int8", integers, 1 / 30)):
        index = NearestNeighbours(matrix, scales=scales, threads=args.threads)
        for queries in (1, 64):
            seconds = []
            for _ in range(7 if queries == 1 else 3):
                query = rng.standard_normal((queries, 384))
                start = time.perf_counter()
                index.search(query, 10)
                seconds.append(time.perf_counter() - start)
            what = f"exact search, a million vectors of 384 numbers, {name}, queries at once: {queries}"
            print(f"{what}: best {1000 * min(seconds):.0f} ms, median {1000 * statistics.median(seconds):.0f} ms, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
            results.add("vectors", what, "ms", ours=1000 * min(seconds), note="best of several")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--kind", choices=("skipgram", "cbow"), default="skipgram")
    parser.add_argument("--share", type=float, default=1.0, help="share of the lines to use")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gensim-python", help="python of an environment with gensim 4")
    parser.add_argument("--word2vec", help="the original program, compiled")
    parser.add_argument("--questions", type=Path, help="questions-words.txt [that of gensim]")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--nearest", action="store_true")
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        run_regard(*json.loads(args.worker))
        return
    results = ResultRows("vectors", threads=args.threads, packages=("numpy",))
    if args.nearest:
        nearest(args, results)
    else:
        if args.gensim_python and not args.questions:
            code = "import gensim.test, pathlib; print(pathlib.Path(gensim.test.__file__).parent / 'test_data')"
            output = subprocess.run([args.gensim_python, "-c", code], check=True, capture_output=True, text=True).stdout
            args.questions = Path(re.sub(r"\s+$", "", output)) / "questions-words.txt"
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "words.txt"
            words = prepare(args.text, text, args.share)
            print(f"{words:,} words, load {os.getloadavg()[0]:.2f}", flush=True)
            (growth if args.growth else compare)(args, text, words, results)
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
