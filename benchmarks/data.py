"""From files to batches: encoding speed, padding, memory.

    REGARD_DATA=path python benchmarks/data.py                      # a million pairs, and a file of 1 GB
    python benchmarks/data.py --pairs 50000 --gigabytes 0.05        # quick; synthetic text without REGARD_DATA

Speed: reading two files, encoding them and writing a corpus with fsync, compared with only
`tokenizers.Tokenizer.encode_batch` on the same texts, which are in memory and whose result is discarded. Both are timed
alternately, with the same batch size and number of threads; the minimum over the rounds is reported.

Padding: the padding fraction in batches of at most 4,096 tokens (with padding) for source and target each, on Multi30k.
It is compared with batches sorted by source length; with JoeyNMT's token batches (1.x: pools of a hundred batches
sorted by source length, as its bucket iterator did; 2.x: shuffled and not sorted); and with a fixed batch size.

Memory: a separate process encodes a generated file and reports its peak memory.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tokenizers
from result_rows import ResultRows

from regard.data.batches import Batches, LengthBatching, PackedBatching
from regard.data.corpus import Corpus
from regard.data.encoders.pairs import PairEncoder
from regard.data.encoding import ENCODE_BATCH_EXAMPLES, encode
from regard.data.example import Pair
from regard.data.source import DataSource
from regard.tokenization import ByteBPE, load_tokenizer, train_tokenizer

BATCH_TOKENS = 4096
SIDES = ("source", "target")

MEMORY_SCRIPT = """
import json, sys, time
from pathlib import Path
from regard.data.encoders.documents import DocumentEncoder
from regard.data.encoding import encode
from regard.data.example import Document
from regard.data.formats import Text, Unit
from regard.data.source import DataSource
from regard.tokenization import load_tokenizer

def proc_status_mb(key):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024

tokenizer, folder, unit, file = sys.argv[1:]
encoder = DocumentEncoder(tokenizer=load_tokenizer(tokenizer))
before, start, samples = proc_status_mb("VmRSS"), time.perf_counter(), []
source = DataSource(Document, [file], Text(unit=Unit(unit)))
corpus = encode(source, encoder, folder, lambda done: samples.append(proc_status_mb("VmRSS")))
seconds, tokens = time.perf_counter() - start, corpus.num_tokens
tenths = [round(samples[i * (len(samples) - 1) // 9]) for i in range(10)]
print(json.dumps(dict(before=before, peak=proc_status_mb("VmHWM"), seconds=seconds, tokens=tokens, tenths=tenths)))
"""


def load_pairs():
    """Load Multi30k and Tatoeba if REGARD_DATA is set, else generate words with the frequencies of a language."""
    data = os.environ.get("REGARD_DATA")
    if data:
        sides = [
            (Path(data) / f"multi30k/train.{side}").read_text(encoding="utf-8").split("\n")[:-1]
            for side in ("en", "de")
        ]
        tatoeba = (Path(data) / "tatoeba-en-de/en-de.tsv").read_text(encoding="utf-8").split("\n")[:-1]
        return list(zip(*sides, strict=True)), [tuple(line.split("\t")) for line in tatoeba]
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlucmfwyp", k=rng.randint(1, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 2) for rank in range(len(words))]

    def sentence(length):
        return " ".join(rng.choices(words, weights, k=length))

    lengths = [max(3, round(rng.lognormvariate(2.45, 0.33))) for _ in range(29_000)]
    pairs = [(sentence(n), sentence(max(3, n + rng.randint(-3, 3)))) for n in lengths]
    return pairs, pairs


def write_pairs(folder, count, pairs):
    """Write `count` random pairs to two files."""
    rng = random.Random(1)
    with (
        (folder / "x.en").open("w", encoding="utf-8") as source,
        (folder / "x.de").open("w", encoding="utf-8") as target,
    ):
        for _ in range(count):
            pair = pairs[rng.randrange(len(pairs))]
            source.write(pair[0] + "\n")
            target.write(pair[1] + "\n")
    return [folder / "x.en", folder / "x.de"]


def encode_raw(encode_batch, texts):
    for start in range(0, len(texts[0]), ENCODE_BATCH_EXAMPLES):
        for side in texts:
            encode_batch(side[start : start + ENCODE_BATCH_EXAMPLES])


def time_call(function, *arguments):
    """Wall seconds, and CPU seconds of all threads, which are more reliable on a shared machine."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = function(*arguments)
    return time.perf_counter() - start, time.process_time() - cpu_start, result


def measure_speed(folder, count, rounds, tokenizer, pairs, results):
    files = write_pairs(folder, count, pairs)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    texts = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in files]
    times = {"encode_batch": [], "encode_batch_fast": [], "regard": []}
    for round_ in range(rounds):
        times["encode_batch"].append(time_call(encode_raw, backend.encode_batch, texts)[:2])
        times["encode_batch_fast"].append(time_call(encode_raw, backend.encode_batch_fast, texts)[:2])
        encoder = PairEncoder(tokenizer=tokenizer)
        *seconds, corpus = time_call(encode, DataSource(Pair, files), encoder, folder / f"cache{round_}")
        times["regard"].append(seconds)
    index = random.Random(2).randrange(count)
    assert corpus[index]["source"].tolist() == tokenizer.encode(texts[0][index]).ids
    start = time.perf_counter()
    encode(DataSource(Pair, files), PairEncoder(tokenizer=tokenizer), folder / f"cache{rounds - 1}")
    cached = time.perf_counter() - start
    print(f"\nEncoding {count:,} pairs, {sum(corpus.num_tokens.values()):,} tokens\n")
    print(
        "| | seconds | pairs/s | regard's relative speed | CPU seconds | regard's relative CPU |\n" + "| --- " * 6 + "|"
    )
    best = {name: [min(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    for name, (seconds, cpu_seconds) in best.items():
        ratios = [other / regard for other, regard in zip((seconds, cpu_seconds), best["regard"], strict=True)]
        cells = f"{seconds:.1f} | {count / seconds:,.0f} | {ratios[0]:.0%} | {cpu_seconds:.1f} s | {ratios[1]:.0%}"
        print(f"| {name} | {cells} |")
        if name != "regard":
            peer, note = f"tokenizers, {name}", "the peer only encodes texts in memory"
            what = f"{count:,} pairs, from files to a corpus"
            results.add("data", what, "s", ours=best["regard"][0], peer=seconds, peer_name=peer, note=note)
            what = f"{count:,} pairs, CPU time of all threads"
            results.add("data", what, "s", ours=best["regard"][1], peer=cpu_seconds, peer_name=peer)
    results.add("data", f"{count:,} pairs again, unchanged files", "s", ours=cached)
    print(f"\nCorpus cache hit: {cached:.2f} s")
    start = time.perf_counter()
    batches = Batches(corpus, LengthBatching(BATCH_TOKENS), seed=1)
    sorting = time.perf_counter() - start
    start = time.perf_counter()
    steps = batches.steps(7)
    next(batches.iter_from(7, steps - 1))
    seconds = time.perf_counter() - start
    print(f"Sorting by length: {sorting:.2f} s; then the last of {steps:,} steps of epoch 7: {seconds:.2f} s")


def make_batches(lengths, order, batch_tokens=BATCH_TOKENS):
    """Batches of pairs in this order, each as large as the number of tokens allows for source and target."""
    batches, start, longest = [], 0, np.zeros(2, int)
    for position, index in enumerate(order):
        longer = np.maximum(longest, lengths[:, index])
        if (longer * (position - start + 1)).max() > batch_tokens:
            batches.append(order[start:position])
            start, longer = position, lengths[:, index]
        longest = longer
    return [*batches, order[start:]]


def make_bucketed_batches(lengths, order, rng):
    """Pools of a hundred batches, each sorted by source length, as by torchtext's bucket iterator in JoeyNMT."""
    batches = []
    for pool in make_batches(lengths, order, 100 * BATCH_TOKENS):
        batches += make_batches(lengths, pool[np.argsort(lengths[0, pool], kind="stable")])
    rng.shuffle(batches)
    return batches


def padding_fraction(lengths, batches):
    padded = sum(int(lengths[:, batch].max(axis=1).sum()) * len(batch) for batch in batches)
    return 1 - lengths.sum() / padded


def measure_padding(folder, tokenizer, pairs, results):
    table = [{"source": source, "target": target} for source, target in pairs]
    corpus = encode(DataSource(Pair, table), PairEncoder(tokenizer=tokenizer), folder / "padding")
    lengths = np.stack([corpus.lengths[side] for side in SIDES]).astype(int)
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(corpus))
    by_source = shuffled[np.argsort(lengths[0, shuffled], kind="stable")]
    kinds = {
        "regard": [batch.indices for batch in Batches(corpus, LengthBatching(BATCH_TOKENS), seed=0)],
        "sorted by source": make_batches(lengths, by_source),
        "sorted by source, then target": make_batches(lengths, shuffled[np.lexsort(lengths[::-1, shuffled])]),
        "JoeyNMT 1.x: sorted in pools": make_bucketed_batches(lengths, shuffled, rng),
        "JoeyNMT 2.x: shuffled": make_batches(lengths, shuffled),
        "64 pairs, shuffled": np.split(shuffled, range(64, len(shuffled), 64)),
        "64 pairs, sorted by source": np.split(by_source, range(64, len(shuffled), 64)),
    }
    means = lengths.mean(axis=1).round(1).tolist()
    print(f"\nPadding, {len(corpus):,} pairs, at most {BATCH_TOKENS:,} tokens for each side, mean lengths {means}\n")
    print("| batches | padding | batches/epoch | tokens/batch |\n| --- | --- | --- | --- |")
    for name, batches in kinds.items():
        assert sorted(np.concatenate(batches)) == list(range(len(corpus)))
        tokens = lengths.sum() / len(batches)
        print(f"| {name} | {padding_fraction(lengths, batches):.1%} | {len(batches):,} | {tokens:,.0f} |")
        if name != "regard":
            ours, theirs = (100 * padding_fraction(lengths, each) for each in (kinds["regard"], batches))
            results.add("data", "padding in batches of Multi30k", "%", ours=ours, peer=theirs, peer_name=name)
    print("\nNetworks take packed batches (`batch['source'].values`, `.layout`): no padding.")


def measure_memory(folder, gigabytes, pairs, results):
    file = folder / "large.txt"
    lines = [text for pair in pairs for text in pair]
    random.Random(3).shuffle(lines)
    block = ("\n".join(lines) + "\n").encode()
    with file.open("wb") as stream:
        while stream.tell() < gigabytes * 1e9:
            stream.write(block)
    print(f"\nMemory, a file of {file.stat().st_size / 1e9:.2f} GB\n")
    print("| documents | before | peak | RSS at ten moments | tokens | time |\n| --- | --- | --- | --- | --- | --- |")
    for unit in ("line", "file"):
        arguments = [folder / "tokenizer", folder / f"large.{unit}", unit, file]
        command = [sys.executable, "-c", MEMORY_SCRIPT, *map(str, arguments)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        tokens = sum(result["tokens"].values())
        print(
            f"| each {unit} | {result['before']:.0f} MB | {result['peak']:.0f} MB | {result['tenths']} | {tokens:,} | "
            f"{result['seconds']:.0f} s |"
        )
        what = f"encoding a file of {gigabytes:g} GB, each {unit} a document, peak memory of the process"
        note = f"{tokens:,} tokens; {result['before']:.0f} MB before it begins"
        results.add("data", what, "MB", ours=result["peak"], note=note)
    (large,) = (folder / "large.file").glob("[!.]*")
    batches = Batches(Corpus(large), PackedBatching(batch_tokens=BATCH_TOKENS, max_length=512), seed=0)
    start, sizes = time.perf_counter(), []
    for batch, _ in zip(batches.iter_from(0, 0), range(2000), strict=False):
        sizes.append(len(batch["tokens"].values))
    seconds = time.perf_counter() - start
    print(f"\nPacked: {np.mean(sizes):,.0f} of {BATCH_TOKENS:,} tokens/batch, {len(sizes) / seconds:,.0f} batches/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    multi30k, tatoeba = load_pairs()
    print(f"tokenizers {tokenizers.__version__}, numpy {np.__version__}, Python {platform.python_version()}, ", end="")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    results = ResultRows("data", threads=os.cpu_count(), packages=("tokenizers", "numpy"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [text for pair in multi30k for text in pair]
        train_tokenizer(ByteBPE(size=args.vocab_size), texts).save(folder / "tokenizer")
        tokenizer = load_tokenizer(folder / "tokenizer")
        measure_padding(folder, tokenizer, multi30k, results)
        if args.pairs:
            measure_speed(folder, args.pairs, args.rounds, tokenizer, multi30k + tatoeba, results)
        if args.gigabytes:
            measure_memory(folder, args.gigabytes, multi30k, results)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
