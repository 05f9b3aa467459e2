"""Vectors of texts compared with sentence-transformers, and exact search, in one run.

    python benchmarks/embed.py MODEL STSB.csv [--save]

MODEL is a sentence encoder's folder, STSB.csv the development set of STS-B. Both libraries embed all its sentences,
alternately, with the same weights; the best of several rounds counts. The quality is the rank correlation of cosines
and human scores. The search is that of `regard search`: the ten nearest of a million random vectors of 384 numbers,
once the matrix is in memory.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np
import scipy.stats
import torch
from result_rows import ResultRows
from sentence_transformers import SentenceTransformer

import regard
from regard.vectors.nearest import NearestNeighbours

VECTORS, DIM, QUERIES = 1_000_000, 384, 5


def read_pairs(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]


def spearman(left, right, scores):
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    return float(scipy.stats.spearmanr(cosines, scores).statistic)


def best_times(encoders, texts, rounds):
    """Run each encoder on all texts, alternately; return the best seconds and the vectors of each."""
    times, vectors = dict.fromkeys(encoders, float("inf")), {}
    for _ in range(rounds):
        for name, encode in encoders.items():
            start = time.perf_counter()
            vectors[name] = encode(texts)
            times[name] = min(times[name], time.perf_counter() - start)
    return times, vectors


def regard_encoder(folder, precision):
    model = regard.load(folder, precision=precision)
    return lambda texts: np.array([result.vector for result in model.embed(texts)])


def search_seconds(rounds):
    """Seconds of one query on a million vectors of length one."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((VECTORS, DIM), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    index = NearestNeighbours(matrix, lengths=1.0)
    queries = rng.standard_normal((QUERIES, DIM)).astype(np.float32)
    best = [float("inf")] * QUERIES
    for _ in range(rounds):
        for number, query in enumerate(queries):
            start = time.perf_counter()
            index.search(query, 10)
            best[number] = min(best[number], time.perf_counter() - start)
    return max(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("stsb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    torch.set_num_threads(2)
    first, second, scores = read_pairs(args.stsb)
    theirs = SentenceTransformer(args.model, device="cpu", local_files_only=True)
    encoders = {
        "sentence-transformers": lambda texts: theirs.encode(texts, show_progress_bar=False),
        "float32": regard_encoder(args.model, "float32"),
        "int8": regard_encoder(args.model, "int8"),
    }
    times, vectors = best_times(encoders, first + second, args.rounds)
    results = ResultRows("embed", threads=2, packages=("torch", "transformers", "sentence-transformers"))
    print(f"load {os.getloadavg()[0]:.2f}, {2 * len(first)} sentences, best of {args.rounds}")
    peer = "sentence-transformers"
    peer_quality = spearman(vectors[peer][: len(first)], vectors[peer][len(first) :], scores)
    for name, seconds in times.items():
        quality = spearman(vectors[name][: len(first)], vectors[name][len(first) :], scores)
        print(f"{name}: {seconds:.2f} s, {times[peer] / seconds:.2f}x, Spearman {quality:.4f}")
        if name != peer:
            what = f"STS-B dev, {2 * len(first)} sentences, {name}"
            results.add("embedding", what, "s", ours=seconds, peer=times[peer], peer_name=peer)
            results.add(
                "quality",
                f"{what}, Spearman",
                "Spearman",
                ours=quality,
                peer=peer_quality,
                peer_name=peer,
                better="higher",
            )
    del theirs, encoders
    seconds = search_seconds(args.rounds)
    print(f"search in {VECTORS:,} vectors of {DIM}: {seconds:.3f} s")
    results.add("embedding", f"ten nearest of {VECTORS:,} vectors of {DIM} numbers", "s", ours=seconds)
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
