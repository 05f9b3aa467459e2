"""From files to batches: encoding speed, padding, memory.

    REGARD_DATA=path python benchmarks/data.py                      # a million pairs, and a file of 1 GB
    python benchmarks/data.py --pairs 50000 --gigabytes 0.05        # a quick look; text is made up without REGARD_DATA

Speed: reading two files, encoding and writing a corpus, flushed to disk, against `tokenizers.Tokenizer.encode_batch`
alone on the same texts, which it is given in memory and whose result is thrown away. Both take turns, with the same
number of texts in a call and the same threads; the best of the rounds counts.

Padding: the share of padding in batches of at most 4,096 places for each side, on Multi30k. Beside ours: rows sorted by
length of the source; JoeyNMT's token batches (1.x: pools of a hundred batches sorted by the source's length, as its
bucket iterator did; 2.x: rows as they come, shuffled); batches of a fixed number of rows.

Memory: a process of its own encodes a generated file, and says how much memory it had at its peak.
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

from regard.data.batches import Batches, ByLength, Packed
from regard.data.corpus import Corpus
from regard.data.encoders.pairs import Pairs
from regard.data.encoding import EXAMPLES, encode
from regard.data.example import Pair
from regard.data.source import Source
from regard.tokenization.algorithms import ByteBPE
from regard.tokenization.tokenizer_loader import load
from regard.tokenization.tokenizer_trainer import train

BUDGET = 4096
SIDES = ("source", "target")

MEMORY = """
import json, sys, time
from pathlib import Path
from regard.data.encoders.documents import Documents
from regard.data.encoding import encode
from regard.data.example import Plain
from regard.data.formats import Text, Unit
from regard.data.source import Source
from regard.text.load import load

def memory(kind):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024

tokenizer, folder, unit, file = sys.argv[1:]
encoder = Documents(tokenizer=load(tokenizer))
before, start, seen = memory("VmRSS"), time.perf_counter(), []
source = Source(Plain, [file], Text(unit=Unit(unit)))
corpus = encode(source, encoder, folder, lambda done: seen.append(memory("VmRSS")))
seconds = time.perf_counter() - start
tenths = [round(seen[i * (len(seen) - 1) // 9]) for i in range(10)]
print(json.dumps(dict(before=before, peak=memory("VmHWM"), seconds=seconds, tokens=corpus.tokens, tenths=tenths)))
"""


def pairs_of_text():
    """Real pairs where they are at hand, or words with the frequencies of a language."""
    data = os.environ.get("REGARD_DATA")
    if data:
        sides = [
            (Path(data) / f"multi30k/train.{side}").read_text(encoding="utf-8").split("\n")[:-1]
            for side in ("en", "de")
        ]
        tatoeba = (Path(data) / "tatoeba-en-de/en-de.tsv").read_text(encoding="utf-8").split("\n")[:-1]
        return list(zip(*sides, strict=True)), [tuple(line.split("\t")) for line in tatoeba]
    generator = random.Random(0)
    words = ["".join(generator.choices("etaoinshrdlucmfwyp", k=generator.randint(1, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 2) for rank in range(len(words))]

    def sentence(length):
        return " ".join(generator.choices(words, weights, k=length))

    lengths = [max(3, round(generator.lognormvariate(2.45, 0.33))) for _ in range(29_000)]
    made = [(sentence(n), sentence(max(3, n + generator.randint(-3, 3)))) for n in lengths]
    return made, made


def write_pairs(folder, count, known):
    """Two files of so many pairs, in a random order."""
    generator = random.Random(1)
    with (folder / "x.en").open("w", encoding="utf-8") as one, (folder / "x.de").open("w", encoding="utf-8") as two:
        for _ in range(count):
            pair = known[generator.randrange(len(known))]
            one.write(pair[0] + "\n")
            two.write(pair[1] + "\n")
    return [folder / "x.en", folder / "x.de"]


def raw(encode_batch, texts):
    for begin in range(0, len(texts[0]), EXAMPLES):
        for side in texts:
            encode_batch(side[begin : begin + EXAMPLES])


def timed(work, *arguments):
    """Seconds, and seconds of computing on all threads, which tell more where others use the machine too."""
    start, computing = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return time.perf_counter() - start, time.process_time() - computing, result


def speed(folder, count, rounds, tokenizer, known):
    files = write_pairs(folder, count, known)
    core = tokenizers.Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    texts = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in files]
    found = {"encode_batch": [], "encode_batch_fast": [], "regard": []}
    for turn in range(rounds):
        found["encode_batch"].append(timed(raw, core.encode_batch, texts)[:2])
        found["encode_batch_fast"].append(timed(raw, core.encode_batch_fast, texts)[:2])
        pairs = Pairs(tokenizer=tokenizer)
        *seconds, corpus = timed(encode, Source(Pair, files), pairs, folder / f"cache{turn}")
        found["regard"].append(seconds)
    row = random.Random(2).randrange(count)
    assert corpus[row]["source"].tolist() == tokenizer.encode(texts[0][row]).ids
    start = time.perf_counter()
    encode(Source(Pair, files), Pairs(tokenizer=tokenizer), folder / f"cache{rounds - 1}")
    again = time.perf_counter() - start
    print(f"\nEncoding {count:,} pairs, {sum(corpus.tokens.values()):,} tokens\n")
    print("| | seconds | pairs/s | regard's speed to it | computing | regard's to it |\n" + "| --- " * 6 + "|")
    best = {name: [min(column) for column in zip(*turns, strict=True)] for name, turns in found.items()}
    for name, (seconds, computing) in best.items():
        ratios = [theirs / ours for theirs, ours in zip((seconds, computing), best["regard"], strict=True)]
        times = f"{seconds:.1f} | {count / seconds:,.0f} | {ratios[0]:.0%} | {computing:.1f} s | {ratios[1]:.0%}"
        print(f"| {name} | {times} |")
    print(f"\nThe corpus again, when nothing has changed: {again:.2f} s")
    start = time.perf_counter()
    batches = Batches(corpus, ByLength(BUDGET), seed=1)
    made = time.perf_counter() - start
    start = time.perf_counter()
    steps = batches.steps(7)
    next(batches.at(7, steps - 1))
    seconds = time.perf_counter() - start
    print(f"Lengths sorted: {made:.2f} s; then the last of {steps:,} steps of epoch 7: {seconds:.2f} s")


def cut(lengths, order, budget=BUDGET):
    """Batches of rows in this order, as many in each as the budget allows on both sides."""
    batches, begin, longest = [], 0, np.zeros(2, int)
    for place, row in enumerate(order):
        longer = np.maximum(longest, lengths[:, row])
        if (longer * (place - begin + 1)).max() > budget:
            batches.append(order[begin:place])
            begin, longer = place, lengths[:, row]
        longest = longer
    return [*batches, order[begin:]]


def in_pools(lengths, order, generator):
    """Pools of a hundred batches, each sorted by the source and cut, as torchtext's bucket iterator did for JoeyNMT."""
    batches = []
    for pool in cut(lengths, order, 100 * BUDGET):
        batches += cut(lengths, pool[np.argsort(lengths[0, pool], kind="stable")])
    generator.shuffle(batches)
    return batches


def waste(lengths, batches):
    area = sum(int(lengths[:, batch].max(axis=1).sum()) * len(batch) for batch in batches)
    return 1 - lengths.sum() / area


def padding(folder, tokenizer, pairs):
    table = [{"source": one, "target": two} for one, two in pairs]
    corpus = encode(Source(Pair, table), Pairs(tokenizer=tokenizer), folder / "padding")
    lengths = np.stack([corpus.lengths[side] for side in SIDES]).astype(int)
    generator = np.random.default_rng(0)
    mixed = generator.permutation(len(corpus))
    ours = Batches(corpus, ByLength(BUDGET), seed=0)
    kinds = {
        "regard": [batch.indices for batch in ours],
        "sorted by the source": cut(lengths, mixed[np.argsort(lengths[0, mixed], kind="stable")]),
        "sorted by source, then target": cut(lengths, mixed[np.lexsort(lengths[::-1, mixed])]),
        "JoeyNMT 1.x: sorted in pools": in_pools(lengths, mixed, generator),
        "JoeyNMT 2.x: shuffled": cut(lengths, mixed),
        "64 rows, shuffled": np.split(mixed, range(64, len(mixed), 64)),
        "64 rows, sorted by the source": np.split(
            mixed[np.argsort(lengths[0, mixed], kind="stable")], range(64, len(mixed), 64)
        ),
    }
    means = lengths.mean(axis=1).round(1).tolist()
    print(f"\nPadding, {len(corpus):,} pairs, budget {BUDGET:,} for each side, mean lengths {means}\n")
    print("| batches | padding | batches an epoch | tokens a batch |\n| --- | --- | --- | --- |")
    for name, batches in kinds.items():
        assert sorted(np.concatenate(batches)) == list(range(len(corpus)))
        tokens = lengths.sum() / len(batches)
        print(f"| {name} | {waste(lengths, batches):.1%} | {len(batches):,} | {tokens:,.0f} |")
    print("\nNetworks take the rows packed (`batch['source'].tokens`, `.rows`): no padding at all.")


def memory(folder, gigabytes, pairs):
    file = folder / "large.txt"
    lines = [one for pair in pairs for one in pair]
    random.Random(3).shuffle(lines)
    block = ("\n".join(lines) + "\n").encode()
    with file.open("wb") as stream:
        while stream.tell() < gigabytes * 1e9:
            stream.write(block)
    print(f"\nMemory, a file of {file.stat().st_size / 1e9:.2f} GB\n")
    print("| documents | before | peak | during (ten moments) | tokens | time |\n| --- | --- | --- | --- | --- | --- |")
    for unit in ("line", "file"):
        call = [sys.executable, "-c", MEMORY, str(folder / "tokenizer"), str(folder / f"large.{unit}"), unit, str(file)]
        found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
        tokens = sum(found["tokens"].values())
        print(
            f"| each {unit} | {found['before']:.0f} MB | {found['peak']:.0f} MB | {found['tenths']} | {tokens:,} | "
            f"{found['seconds']:.0f} s |"
        )
    (large,) = (folder / "large.file").glob("[!.]*")
    batches = Batches(Corpus(large), Packed(tokens=BUDGET, length=512), seed=0)
    start, sizes = time.perf_counter(), []
    for batch, _ in zip(batches.at(0, 0), range(2000), strict=False):
        sizes.append(len(batch["tokens"].tokens))
    seconds = time.perf_counter() - start
    print(f"\nPacked: {np.mean(sizes):,.0f} of {BUDGET:,} tokens a batch, {len(sizes) / seconds:,.0f} batches/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--vocabulary", type=int, default=8000)
    options = parser.parse_args()
    multi30k, tatoeba = pairs_of_text()
    print(f"tokenizers {tokenizers.__version__}, numpy {np.__version__}, Python {platform.python_version()}, ", end="")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [text for pair in multi30k for text in pair]
        train(ByteBPE(size=options.vocabulary), texts).save(folder / "tokenizer")
        tokenizer = load(folder / "tokenizer")
        padding(folder, tokenizer, multi30k)
        if options.pairs:
            speed(folder, options.pairs, options.rounds, tokenizer, multi30k + tatoeba)
        if options.gigabytes:
            memory(folder, options.gigabytes, multi30k)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
