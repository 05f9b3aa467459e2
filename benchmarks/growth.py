"""How the cost of writing grows: with texts at once, with the source, with the target; and what memory it takes.

    python benchmarks/growth.py --plot growth.svg
    python benchmarks/growth.py --quick              # a tiny network and short rows, to try the script

A network of Marian's base size (6+6 layers, 512, 8 heads, feed-forward 2,048, vocabulary 32,000) with random weights,
prepared in float32 and in bytes, greedy. No text ends before its limit, so the work is known. The two take turns, the
best of the rounds counts. Before anything is timed, float32 must write what the plain network writes.

The encoder reads rows of the lengths of real sentences (REGARD_DATA, or a like distribution), side by side: its time is
laid against the number of real tokens, and a line a + b · tokens through it. The same tokens in rows of other lengths
show what attention adds, whose cost grows with the length of rows.

Memory is what a process of its own holds at most while it writes, above what it held before. It is laid against

    keys and values    2 · layers · rows · room · width · 4 bytes of what is written (2 in a network of bytes, where
                       they are bfloat16); room: 32 tokens; of a longer row what it has, rounded up to whole pages of
                       4 KB for each head
    of the source      2 · layers · texts · longest source · width · 4 (2): the beams of a text share them
    encoder's output   tokens of all sources · width · 4
    reading            8 · tokens of all sources · width · 4 + 2 · 384 · inner · 4: what the compiled parts work with
                       and keep for later; 384 tokens are passed through a feed-forward layer at a time
    scores             2 · rows · vocabulary · 4: the logits, and their log-softmax
    on the way         2 · rows · room · width · 4 (2): one layer's keys and values, old beside new, where rows outgrow
                       256 tokens; 2 · rows · 32 · width · 4 (2), where they outgrow 32
    kernels            8 MB: their code, and what they work with

with rows = texts · beams. The C library keeps some of what was let go for later, so memory is measured twice: as it is,
and with large blocks given back at once (MALLOC_MMAP_THRESHOLD_), which is what is really in use and has to stay below
the formula. Weights are laid against 4 bytes for each number, or 1 in matrices of bytes.
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
START, TEXTS, SOURCE, NEW = 1, 16, 24, 32
KERNELS = 8 * 2**20
PAGE, FEW, ROOM = 4096, 32, 256  # bytes; the places of a cache that had to grow (regard/engine/kv_cache.py)
AT_A_TIME = 384  # tokens that a feed-forward layer reads (regard/native/c/block.c)
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
PRECISIONS = ("fp32", "int8")
BY_TEXTS = (1, 2, 4, 8, 16, 32, 64)
BY_SOURCE = (8, 16, 32, 64, 128, 256, 512)
BY_NEW = (8, 16, 32, 64, 128, 256)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)
ROWS_OF = (8, 16, 32, 64, 128, 256, 512)
MEMORY = (  # texts, beams, source, new
    (1, 1, 24, 32), (16, 1, 24, 32), (64, 1, 24, 32), (16, 4, 24, 32), (32, 4, 24, 64), (16, 1, 24, 256),
    (16, 1, 256, 32), (8, 4, 128, 128),
)  # fmt: skip


def built(size):
    from regard import transformer_2017
    from regard.transformer import build

    return build(transformer_2017(**size, length=2048), seed=1).eval()


def texts(count, source, vocabulary):
    from regard.generation import Given

    draw = random.Random(0)
    return [Given([START], [draw.randrange(2, vocabulary) for _ in range(source)]) for _ in range(count)]


def write(network, given, new, beams=1):
    """Write so many tokens behind every text, all texts at once."""
    from regard.generation import AtOnce, Beam, Greedy, Settings, generate

    settings = Settings(search=Beam(size=beams) if beams > 1 else Greedy(), limit=new)
    written = [one.tokens for one in generate(network, given, settings, at_once=AtOnce(rows=len(given) * beams))]
    assert all(len(tokens) == new for tokens in written), "not the work that was asked for"
    return written


def best(actions, rounds):
    """The best time of each action, taking turns; the first turn warms up."""
    found = [float("inf")] * len(actions)
    for number in range(rounds + 1):
        for at, action in enumerate(actions):
            start = time.perf_counter()
            action()
            if number:
                found[at] = min(found[at], time.perf_counter() - start)
    return found


def check(plain, networks, vocabulary):
    given = texts(4, SOURCE, vocabulary)
    expected = write(plain, given, 12)
    assert write(networks["fp32"], given, 12) == expected, "prepared in float32, it writes other texts"
    same = sum(one == other for one, other in zip(write(networks["int8"], given, 12), expected, strict=True))
    print(f"float32 writes what the plain network writes; int8 {same} of {len(given)} texts (random weights)")


def speeds(networks, name, points, vocabulary, rounds):
    """Tokens a second at each of the points, which are (texts, source, new)."""
    print(f"\n| {name} | {' | '.join(f'{kind}, {unit}' for unit in ('tokens/s', 's') for kind in networks)} |")
    print(f"| --- |{' --- |' * (2 * len(networks))}")
    curves = {kind: [] for kind in networks}
    for x, (count, source, new) in points.items():
        given = texts(count, source, vocabulary)
        actions = [lambda one=one, given=given, new=new: write(one, given, new) for one in networks.values()]
        seconds = best(actions, rounds)
        rates = [count * new / each for each in seconds]
        for kind, rate in zip(networks, rates, strict=True):
            curves[kind].append((x, rate))
        print(
            f"| {x} | {' | '.join(f'{r:,.0f}' for r in rates)} | {' | '.join(f'{s:.2f}' for s in seconds)} |",
            flush=True,
        )
    return curves


def encoding(networks, lengths, vocabulary):
    import torch

    from regard.transformer.batch_layout import Rows

    lengths = sorted(lengths)  # rows of one length are computed together
    tokens = torch.randint(2, vocabulary, (sum(lengths),), generator=torch.Generator().manual_seed(0))

    def action(network):
        with torch.inference_mode():
            network.encode(tokens, rows=Rows.of(lengths))

    return [lambda one=one: action(one) for one in networks.values()]


def encoder(networks, sentences, vocabulary, rounds):
    """The encoder's time against real tokens, and a line through it."""
    from lengths import lengths

    print(f"\n| sentences | real tokens | {' | '.join(f'{kind}, ms' for kind in networks)} |")
    print(f"| --- | --- |{' --- |' * len(networks)}")
    curves = {kind: [] for kind in networks}
    for count in sentences:
        drawn = lengths("en", count)
        seconds = best(encoding(networks, drawn, vocabulary), 2 * rounds)
        for kind, each in zip(networks, seconds, strict=True):
            curves[kind].append((sum(drawn), each * 1000))
        print(f"| {count} | {sum(drawn)} | {' | '.join(f'{each * 1000:.1f}' for each in seconds)} |", flush=True)
    print()
    for kind, points in curves.items():
        print(f"{kind}: {line(points)}")
    return curves


def line(points):
    """The straight line with the least squares of relative distances, so that short batches count too."""
    import numpy

    x, y = (numpy.array(part, dtype=float) for part in zip(*points, strict=True))
    (slope, start), *_ = numpy.linalg.lstsq(numpy.stack([1 / y * x, 1 / y], axis=1), numpy.ones_like(y), rcond=None)
    away = (start + slope * x) / y - 1
    explained = 1 - ((start + slope * x - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    said = f"{start:.2f} ms + {slope * 1000:.1f} µs · tokens, R² {explained:.4f}"
    return f"{said}, farthest from it {abs(away).max() * 100:.0f}% (at {x[abs(away).argmax()]:.0f} tokens)"


def same_tokens(networks, rows_of, vocabulary, rounds):
    total = max(rows_of)
    print(f"\n| {total} tokens in rows of | {' | '.join(f'{kind}, ms' for kind in networks)} |")
    print(f"| --- |{' --- |' * len(networks)}")
    for length in rows_of:
        seconds = best(encoding(networks, [length] * (total // length), vocabulary), rounds)
        print(f"| {length} | {' | '.join(f'{each * 1000:.1f}' for each in seconds)} |", flush=True)


def room(longest, head):
    """The places of a row that take memory, when those of a head have so many bytes each (`regard/engine/kv_cache.py`)."""
    a_page = max(1, PAGE // head)
    return FEW if longest <= FEW else -(-longest // a_page) * a_page


def formula(size, precision, count, beams, source, new):
    """The bytes that writing takes besides the weights, part by part."""
    layers, width, rows = size["layers"][1], size["model_dim"], count * beams
    number = 4 if precision == "fp32" else 2
    a_place = 2 * rows * width * number
    places = room(new, width // size["heads"] * number)
    return {
        "keys and values": layers * places * a_place,
        "of the source": 2 * layers * count * source * width * number,
        "encoder's output": count * source * width * 4,
        "reading": 8 * count * source * width * 4 + 2 * AT_A_TIME * size["inner_dim"] * 4,
        "scores": 2 * rows * size["vocabulary"] * 4,
        "on the way": a_place * (places if new > ROOM else FEW if new > FEW else 0),
        "kernels": KERNELS,
    }


def stated(size, precision, count, beams, source, new):
    """The most that writing takes."""
    return sum(formula(size, precision, count, beams, source, new).values())


def weights(size, precision):
    """The bytes of a prepared network: matrices, the table of tokens (also of bytes, to score with), norms, biases."""
    width, inner = size["model_dim"], size["inner_dim"]
    block = 4 * width * width + 2 * width * inner
    matrices = size["layers"][0] * block + size["layers"][1] * (block + 4 * width * width)
    table = size["vocabulary"] * width
    return (matrices + table) * (4 if precision == "fp32" else 1) + table * 4


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def held():
    """What this process holds when all that was let go is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return status("VmRSS")


def memory(size, precision, count, beams, source, new, threads):
    """A process of its own: print what the weights and what writing held at most."""
    import torch

    from regard.engine import Precision, prepare

    torch.set_num_threads(threads)
    tiny = prepare(built(TINY), Precision(precision))
    write(tiny, texts(2, 4, TINY["vocabulary"]), 3, beams)  # all code that is needed is now read
    before = held()
    network = prepare(built(size), Precision(precision))
    loaded = held()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    write(network, texts(count, source, size["vocabulary"]), new, beams)
    print(json.dumps([loaded - before, status("VmHWM") - loaded]))


def memories(size, points, threads):
    """What was held against the formula."""
    print("\n| | texts | beams | source | new | weights MB | stated | in use MB | stated | to it | held MB | to it |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    found = []
    for precision in PRECISIONS:
        for point in points:
            command = [sys.executable, __file__, "--memory", json.dumps([size, precision, *point, threads])]
            runs = [
                subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **settings})
                for settings in (GIVEN_BACK, {})
            ]
            (kept, used), (_, most) = ([one / 2**20 for one in json.loads(run.stdout)] for run in runs)
            said = stated(size, precision, *point) / 2**20
            numbers = f"{kept:.0f} | {weights(size, precision) / 2**20:.0f} | {used:.1f} | {said:.1f}"
            ratios = f"{used / said:.2f} | {most:.1f} | {most / said:.2f}"
            print(f"| {precision} | {' | '.join(map(str, point))} | {numbers} | {ratios} |", flush=True)
            found.append((said, used, most))
    above = sum(used > said for said, used, _ in found)
    print(f"\nin use above the formula: {above} of {len(found)}" + "; its parts in fp32, MB:")
    for point in points:
        parts = ", ".join(f"{name} {part / 2**20:.1f}" for name, part in formula(size, "fp32", *point).items())
        print(f"- {point[0]} texts, {point[1]} beams, source {point[2]}, new {point[3]}: {parts}")
    return sorted(found)


def picture(file, panels, memory_points):
    from regard.training.run.curves import Curve, svg

    drawn = [[Curve("int8", curves["int8"]), Curve(f"fp32: {name}", curves["fp32"])] for name, curves in panels.items()]
    if memory_points:
        stated_, used, most = ([(point[0], point[at]) for point in memory_points] for at in range(3))
        drawn.append([Curve("formula", stated_), Curve("held", most), Curve("in use: MB by MB of the formula", used)])
    file.write_text(svg(drawn, "How the cost of writing grows"), encoding="utf-8")
    print(f"\n{file}: drawn")


def compare(options, size, reach):
    import torch

    from regard.engine import Precision, prepare

    torch.set_num_threads(options.threads)
    vocabulary = size["vocabulary"]
    plain = built(size)
    networks = {kind: prepare(plain, Precision(kind)) for kind in PRECISIONS}
    check(plain, networks, vocabulary)
    by_texts = {n: (n, SOURCE, NEW) for n in reach(BY_TEXTS)}
    by_source = {n: (TEXTS, n, NEW) for n in reach(BY_SOURCE)}
    by_new = {n: (TEXTS, SOURCE, n) for n in reach(BY_NEW)}
    names = {"texts at once": by_texts, "tokens of the source": by_source, "new tokens": by_new}
    panels = {
        f"tokens/s by {name}": speeds(networks, name, points, vocabulary, options.rounds)
        for name, points in names.items()
    }
    panels["encoder, ms by real tokens"] = encoder(networks, reach(SENTENCES), vocabulary, options.rounds)
    same_tokens(networks, reach(ROWS_OF), vocabulary, options.rounds)
    return panels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--plot", type=Path, help="draw the curves to this file, as SVG")
    parser.add_argument("--quick", action="store_true", help="a tiny network and short rows")
    parser.add_argument("--only", choices=("time", "memory"), help="one of the two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        memory(*json.loads(options.memory))
        return
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    size = TINY if options.quick else BASE

    def reach(points):
        return points[:4] if options.quick else points

    said = f"torch {version('torch')}, Python {platform.python_version()}, {options.threads} threads"
    print(f"{said}, load {os.getloadavg()[0]:.1f}, {size}, best of {options.rounds}")
    print(f"where nothing else is said: {TEXTS} texts, sources of {SOURCE} tokens, {NEW} new tokens")
    held_points = memories(size, reach(MEMORY), options.threads) if options.only != "time" else []
    panels = compare(options, size, reach) if options.only != "memory" else {}
    print(f"\nload {os.getloadavg()[0]:.1f}")
    if options.plot:
        picture(options.plot, panels, held_points)


if __name__ == "__main__":
    main()
