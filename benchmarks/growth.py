"""Scaling of generation cost with batch size, source length and target length; and memory.

    python benchmarks/growth.py --plot growth.svg --output growth.json
    python benchmarks/growth.py --plot growth.svg --results growth.json     # draw recorded results again
    python benchmarks/growth.py --quick              # a tiny network and short sequences, to try the script

A network of Marian's base size (6+6 layers, 512, 8 heads, feed-forward 2,048, vocabulary 32,000) with random weights,
compiled in float32 and int8, greedy search. No sequence ends before its maximum length, so the work is known. The two
are timed alternately, and the minimum over the rounds is reported. Before anything is timed, the float32 output must
equal that of the eager network.

The encoder gets packed batches with the lengths of real sentences (REGARD_DATA, or a similar distribution): its time is
compared with the number of real tokens, with a fitted line a + b · tokens. The same number of tokens in sequences of
other lengths shows the cost of attention, which grows with the sequence length.

Memory is the peak of a separate process during generation, minus its memory before. It is compared with

    self-attention KV cache    2 · layers · sequences · capacity · width · 4 bytes (2 in an int8 network, where the
                               cache is bfloat16); capacity: 32 tokens; of a longer sequence its length, rounded up to
                               whole pages of 4 KB for each head
    cross-attention KV cache   2 · layers · batch size · source length · width · 4 (2): the beams of an input share it
    encoder output             tokens of all sources · width · 4
    encoder workspace          8 · tokens of all sources · width · 4 + 2 · 384 · inner · 4: buffers of the compiled
                               modules, kept for reuse; the feed-forward layer processes chunks of 384 tokens
    logits                     2 · sequences · vocabulary · 4: the logits and their log-softmax
    cache reallocation         2 · sequences · capacity · width · 4 (2): old and new cache of one layer, when sequences
                               outgrow 256 tokens; 2 · sequences · 32 · width · 4 (2), when they outgrow 32
    kernels                    8 MB: their code and scratch buffers

with sequences = batch size · beam size. The C library keeps some freed memory for reuse, so memory is measured twice:
as it is, and with large blocks returned to the OS at once (MALLOC_MMAP_THRESHOLD_), which is the memory really in use
and has to stay below the formula. Weights are compared with 4 bytes per weight, or 1 in int8 matrices.
"""

import argparse
import ctypes
import gc
import json
import os
import platform
import random
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

BASE = dict(vocabulary=32000, layers=(6, 6), model_dim=512, heads=8, inner_dim=2048)
TINY = dict(vocabulary=4000, layers=(2, 2), model_dim=64, heads=4, inner_dim=256)
DECODER_START, BATCH_SIZE, SOURCE_LENGTH, NEW_TOKENS = 1, 16, 24, 32
KERNEL_BYTES = 8 * 2**20
PAGE_BYTES = 4096
SMALL_CAPACITY, LARGE_CAPACITY = 32, 256  # of a cache that had to grow (regard/engine/kv_cache.py)
FEEDFORWARD_CHUNK = 384  # tokens (regard/native/c/block.c)
RETURN_MEMORY_ENV = {"MALLOC_MMAP_THRESHOLD_": "65536"}
PRECISIONS = ("float32", "int8")
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
SOURCE_LENGTHS = (8, 16, 32, 64, 128, 256, 512)
TARGET_LENGTHS = (8, 16, 32, 64, 128, 256)
NUM_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
MEMORY_POINTS = (  # batch size, beam size, source length, new tokens
    (1, 1, 24, 32), (16, 1, 24, 32), (64, 1, 24, 32), (16, 4, 24, 32), (32, 4, 24, 64), (16, 1, 24, 256),
    (16, 1, 256, 32), (8, 4, 128, 128),
)  # fmt: skip


def build_network(size):
    from regard import transformer_2017
    from regard.transformer import build

    return build(transformer_2017(**size, length=2048), seed=1).eval()


def make_inputs(count, source_length, vocab_size):
    from regard.generation import Inputs

    rng = random.Random(0)
    return [Inputs([DECODER_START], [rng.randrange(2, vocab_size) for _ in range(source_length)]) for _ in range(count)]


def generate_tokens(network, inputs, new_tokens, beam_size=1):
    """Generate this many tokens for every input, in one batch."""
    from regard.generation import BatchSize, BeamSearch, DecodingOptions, GreedySearch, generate

    search = BeamSearch(beam=beam_size) if beam_size > 1 else GreedySearch()
    options = DecodingOptions(search=search, max_new_tokens=new_tokens)
    batch_size = BatchSize(sequences=len(inputs) * beam_size)
    outputs = [result.tokens for result in generate(network, inputs, options, batch_size=batch_size)]
    assert all(len(tokens) == new_tokens for tokens in outputs), "wrong number of generated tokens"
    return outputs


def best_times(functions, rounds):
    """Minimum time of each function over the rounds, timed alternately after a warm-up round."""
    best = [float("inf")] * len(functions)
    for round_ in range(rounds + 1):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if round_:
                best[index] = min(best[index], time.perf_counter() - start)
    return best


def check_outputs(eager, networks, vocab_size):
    inputs = make_inputs(4, SOURCE_LENGTH, vocab_size)
    expected = generate_tokens(eager, inputs, 12)
    assert generate_tokens(networks["float32"], inputs, 12) == expected, "compiled float32 output differs"
    int8 = generate_tokens(networks["int8"], inputs, 12)
    same = sum(output == reference for output, reference in zip(int8, expected, strict=True))
    print(f"float32 output equals that of the eager network; int8: {same} of {len(inputs)} equal (random weights)")


def measure_throughput(networks, name, points, vocab_size, rounds):
    """Tokens per second at each point (batch size, source length, new tokens)."""
    print(
        f"\n| {name} | {' | '.join(f'{precision}, {unit}' for unit in ('tokens/s', 's') for precision in networks)} |"
    )
    print(f"| --- |{' --- |' * (2 * len(networks))}")
    curves = {precision: [] for precision in networks}
    for x, (batch_size, source_length, new_tokens) in points.items():
        inputs = make_inputs(batch_size, source_length, vocab_size)
        functions = [
            lambda network=network, inputs=inputs, new_tokens=new_tokens: generate_tokens(network, inputs, new_tokens)
            for network in networks.values()
        ]
        times = best_times(functions, rounds)
        speeds = [batch_size * new_tokens / seconds for seconds in times]
        for precision, speed in zip(networks, speeds, strict=True):
            curves[precision].append((x, speed))
        cells = [*(f"{speed:,.0f}" for speed in speeds), *(f"{seconds:.2f}" for seconds in times)]
        print(f"| {x} | {' | '.join(cells)} |", flush=True)
    return curves


def encode_calls(networks, lengths, vocab_size):
    import torch

    from regard.transformer.batch_layout import BatchLayout

    lengths = sorted(lengths)  # sequences of equal length are computed together
    tokens = torch.randint(2, vocab_size, (sum(lengths),), generator=torch.Generator().manual_seed(0))

    def encode(network):
        with torch.inference_mode():
            network.encode(tokens, layout=BatchLayout.of(lengths))

    return [lambda network=network: encode(network) for network in networks.values()]


def measure_encoder(networks, counts, vocab_size, rounds):
    """The encoder's time against real tokens, with a fitted line."""
    from lengths import sentence_lengths

    print(f"\n| sentences | real tokens | {' | '.join(f'{precision}, ms' for precision in networks)} |")
    print(f"| --- | --- |{' --- |' * len(networks)}")
    curves = {precision: [] for precision in networks}
    for count in counts:
        lengths = sentence_lengths("en", count)
        times = best_times(encode_calls(networks, lengths, vocab_size), 2 * rounds)
        for precision, seconds in zip(networks, times, strict=True):
            curves[precision].append((sum(lengths), seconds * 1000))
        print(f"| {count} | {sum(lengths)} | {' | '.join(f'{s * 1000:.1f}' for s in times)} |", flush=True)
    print()
    for precision, points in curves.items():
        print(f"{precision}: {fit_line(points)[1]}")
    return curves


def save_rows(curves, args):
    """Save the speed of each batch size, and the encoder's time per token (the slope of the fitted line)."""
    from result_rows import ResultRows

    rows = ResultRows("growth", threads=args.threads, packages=("torch",))
    for precision, points in curves["time"]["batch size"].items():
        for count, speed in points:
            rows.add("scaling", f"batch of {count}, {precision}", "tokens/s", ours=speed, better="higher")
    for precision, points in curves["encoder"].items():
        slope, line = fit_line(points)
        rows.add("scaling", f"encoder, time per real token, {precision}", "µs", ours=slope, note=f"fitted line: {line}")
    rows.save()


def fit_line(points):
    """The slope in µs and a description of the line with the least relative squared error: small batches count too."""
    import numpy

    x, y = (numpy.array(values, dtype=float) for values in zip(*points, strict=True))
    (slope, intercept), *_ = numpy.linalg.lstsq(numpy.stack([1 / y * x, 1 / y], axis=1), numpy.ones_like(y), rcond=None)
    predicted = intercept + slope * x
    relative_error = abs(predicted / y - 1)
    r2 = 1 - ((predicted - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    line = f"{intercept:.2f} ms + {slope * 1000:.1f} µs · tokens, R² {r2:.4f}"
    return (
        slope * 1000,
        f"{line}, maximum error {relative_error.max() * 100:.0f}% (at {x[relative_error.argmax()]:.0f} tokens)",
    )


def measure_by_length(networks, lengths, vocab_size, rounds):
    total = max(lengths)
    print(f"\n| {total} tokens in sequences of | {' | '.join(f'{precision}, ms' for precision in networks)} |")
    print(f"| --- |{' --- |' * len(networks)}")
    for length in lengths:
        times = best_times(encode_calls(networks, [length] * (total // length), vocab_size), rounds)
        print(f"| {length} | {' | '.join(f'{seconds * 1000:.1f}' for seconds in times)} |", flush=True)


def cache_capacity(length, head_bytes):
    """Tokens of a sequence that take memory, with `head_bytes` per token and head (`regard/engine/kv_cache.py`)."""
    tokens_per_page = max(1, PAGE_BYTES // head_bytes)
    return SMALL_CAPACITY if length <= SMALL_CAPACITY else -(-length // tokens_per_page) * tokens_per_page


def memory_formula(size, precision, batch_size, beam_size, source_length, new_tokens):
    """The bytes of generation without the weights, by part."""
    layers, width, sequences = size["layers"][1], size["model_dim"], batch_size * beam_size
    cache_bytes = 4 if precision == "float32" else 2
    bytes_per_position = 2 * sequences * width * cache_bytes
    capacity = cache_capacity(new_tokens, width // size["heads"] * cache_bytes)
    reallocated = SMALL_CAPACITY if new_tokens > SMALL_CAPACITY else 0
    if new_tokens > LARGE_CAPACITY:
        reallocated = capacity
    source_tokens = batch_size * source_length
    return {
        "self-attention KV cache": layers * capacity * bytes_per_position,
        "cross-attention KV cache": 2 * layers * source_tokens * width * cache_bytes,
        "encoder output": source_tokens * width * 4,
        "encoder workspace": 8 * source_tokens * width * 4 + 2 * FEEDFORWARD_CHUNK * size["inner_dim"] * 4,
        "logits": 2 * sequences * size["vocabulary"] * 4,
        "cache reallocation": bytes_per_position * reallocated,
        "kernels": KERNEL_BYTES,
    }


def predicted_bytes(size, precision, *point):
    """The maximum memory of generation by the formula."""
    return sum(memory_formula(size, precision, *point).values())


def weight_bytes(size, precision):
    """The bytes of a compiled network: matrices, and token embedding (twice: to embed tokens, and for the logits)."""
    width, inner = size["model_dim"], size["inner_dim"]
    block = 4 * width * width + 2 * width * inner
    matrices = size["layers"][0] * block + size["layers"][1] * (block + 4 * width * width)
    embedding = size["vocabulary"] * width
    return (matrices + embedding) * (4 if precision == "float32" else 1) + embedding * 4


def proc_status_bytes(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def resident_bytes():
    """The RSS of this process after all freed memory is returned to the OS."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return proc_status_bytes("VmRSS")


def memory_worker(size, precision, batch_size, beam_size, source_length, new_tokens, threads):
    """In a separate process: print the memory of the weights, and the peak of generation."""
    import torch

    from regard.engine import Precision, compile

    torch.set_num_threads(threads)
    tiny = compile(build_network(TINY), Precision(precision))
    generate_tokens(tiny, make_inputs(2, 4, TINY["vocabulary"]), 3, beam_size)  # loads all code that is needed
    before = resident_bytes()
    network = compile(build_network(size), Precision(precision))
    loaded = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    generate_tokens(network, make_inputs(batch_size, source_length, size["vocabulary"]), new_tokens, beam_size)
    print(json.dumps([loaded - before, proc_status_bytes("VmHWM") - loaded]))


def measure_memory(size, points, threads):
    """Measured memory compared with the formula."""
    print("\n| | batch size | beam size | source | new | weights MB | predicted | in use MB | predicted | ratio "
          "| peak RSS MB | ratio |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    results = []
    for precision in PRECISIONS:
        for point in points:
            command = [sys.executable, __file__, "--memory-worker", json.dumps([size, precision, *point, threads])]
            runs = [
                subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
                for environment in (RETURN_MEMORY_ENV, {})
            ]
            (weights, in_use), (_, peak) = ([value / 2**20 for value in json.loads(run.stdout)] for run in runs)
            predicted = predicted_bytes(size, precision, *point) / 2**20
            numbers = f"{weights:.0f} | {weight_bytes(size, precision) / 2**20:.0f} | {in_use:.1f} | {predicted:.1f}"
            ratios = f"{in_use / predicted:.2f} | {peak:.1f} | {peak / predicted:.2f}"
            print(f"| {precision} | {' | '.join(map(str, point))} | {numbers} | {ratios} |", flush=True)
            results.append((predicted, in_use, peak))
    above = sum(in_use > predicted for predicted, in_use, _ in results)
    print(f"\nin use above the formula: {above} of {len(results)}; its parts in float32, MB:")
    for point in points:
        formula = memory_formula(size, "float32", *point)
        parts = ", ".join(f"{name} {value / 2**20:.1f}" for name, value in formula.items())
        print(f"- batch size {point[0]}, beam size {point[1]}, source {point[2]}, new {point[3]}: {parts}")
    return sorted(results)


def plot(file, results):
    """Draw the results: sizes are doubled, so their axes are logarithmic; a straight line is a constant ratio."""
    from regard.figure import Figure, Line, Panel, Scale, write_figure

    def lines(curves):
        return [
            Line(name=name, points=[(float(x), float(y)) for x, y in curves[name]], colour=number)
            for number, name in enumerate(PRECISIONS)
        ]

    units = {"batch size": "sequences in a batch", "source length": "tokens of each source",
             "new tokens": "new tokens of each sequence"}  # fmt: skip
    panels = [
        Panel(title=f"Decoding speed by {name}", x_label=units[name], y_label="tokens per second",
              x_scale=Scale.LOG2, y_scale=Scale.LOG, lines=lines(curves))
        for name, curves in results["time"].items()
    ]  # fmt: skip
    if results["encoder"]:
        panels.append(Panel(title="Encoder time by number of tokens", x_label="real tokens of a batch",
                            y_label="milliseconds", x_scale=Scale.LOG, y_scale=Scale.LOG,
                            lines=lines(results["encoder"])))  # fmt: skip
    if results["memory"]:
        columns = list(zip(*results["memory"], strict=True))
        names = ("formula (upper bound)", "in use", "peak of the process")
        memory = [
            Line(name=name, points=list(zip(columns[0], column, strict=True)), colour=number, dashed=not number)
            for number, (name, column) in enumerate(zip(names, columns, strict=True))
        ]
        panels.append(Panel(title="Memory of generation", x_label="MB by the formula", y_label="MB", lines=memory))
    caption = (
        f"A network of Marian's base size, greedy search; batch of {BATCH_SIZE}, sources of {SOURCE_LENGTH} tokens, "
        f"{NEW_TOKENS} new tokens where not varied."
    )
    write_figure(Figure(title="How the cost of generation grows", panels=panels, caption=caption), file)
    print(f"\nwrote {file}")


def compare(args, size, select):
    import torch

    from regard.engine import Precision, compile

    torch.set_num_threads(args.threads)
    vocab_size = size["vocabulary"]
    eager = build_network(size)
    networks = {precision: compile(eager, Precision(precision)) for precision in PRECISIONS}
    check_outputs(eager, networks, vocab_size)
    points_by_name = {
        "batch size": {n: (n, SOURCE_LENGTH, NEW_TOKENS) for n in select(BATCH_SIZES)},
        "source length": {n: (BATCH_SIZE, n, NEW_TOKENS) for n in select(SOURCE_LENGTHS)},
        "new tokens": {n: (BATCH_SIZE, SOURCE_LENGTH, n) for n in select(TARGET_LENGTHS)},
    }
    time = {
        name: measure_throughput(networks, name, points, vocab_size, args.rounds)
        for name, points in points_by_name.items()
    }
    encoder = measure_encoder(networks, select(NUM_SENTENCES), vocab_size, args.rounds)
    measure_by_length(networks, select(LENGTHS), vocab_size, args.rounds)
    return {"time": time, "encoder": encoder}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--plot", type=Path, help="draw the curves to this file, .svg or .png")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    parser.add_argument("--results", type=Path, help="measure nothing; draw the results in this JSON file")
    parser.add_argument("--quick", action="store_true", help="a tiny network and short sequences")
    parser.add_argument("--only", choices=("time", "memory"), help="measure only one of the two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--memory-worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_worker:
        memory_worker(*json.loads(args.memory_worker))
        return
    if args.results:
        plot(args.plot, json.loads(args.results.read_text()))
        return
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    size = TINY if args.quick else BASE

    def select(points):
        return points[:4] if args.quick else points

    versions = f"torch {version('torch')}, Python {platform.python_version()}, {args.threads} threads"
    print(f"{versions}, load {os.getloadavg()[0]:.1f}, {size}, best of {args.rounds}")
    print(f"defaults: batch size {BATCH_SIZE}, source length {SOURCE_LENGTH}, {NEW_TOKENS} new tokens")
    memory_results = measure_memory(size, select(MEMORY_POINTS), args.threads) if args.only != "time" else []
    curves = compare(args, size, select) if args.only != "memory" else {"time": {}, "encoder": {}}
    results = {**curves, "memory": memory_results}
    print(f"\nload {os.getloadavg()[0]:.1f}")
    if args.save and curves["time"] and not args.quick:
        save_rows(curves, args)
    if args.output:
        args.output.write_text(json.dumps(results) + "\n")
    if args.plot:
        plot(args.plot, results)


if __name__ == "__main__":
    main()
