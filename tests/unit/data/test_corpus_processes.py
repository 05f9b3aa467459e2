"""Processes that are killed while they encode, concurrent processes, and memory use."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from unit.data.tiny_tokenizers import words

from regard.data.corpus import Corpus
from regard.data.encoders.pairs import PairEncoder
from regard.data.encoding import encode
from regard.data.example import Pair
from regard.data.reader import read
from regard.data.source import DataSource
from regard.tokenization.tokenizer_loader import load_tokenizer

# Without pytest and its runtime type checks, as users run it.
SCRIPT = """
import json, sys
from pathlib import Path
from regard.data import encoding
from regard.data.encoders.pairs import PairEncoder
from regard.data.encoding import encode
from regard.data.example import Pair
from regard.data.source import DataSource
from regard.tokenization.tokenizer_loader import load_tokenizer

def memory(field):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024

tokenizer, folder, chunk, *files = sys.argv[1:]
encoding.ENCODE_BATCH_EXAMPLES = int(chunk)
encoder = PairEncoder(tokenizer=load_tokenizer(tokenizer))
before = memory("VmRSS")
print("ready", flush=True)
calls, encode_batch = [], PairEncoder.encode
PairEncoder.encode = lambda self, examples: calls.append(1) or encode_batch(self, examples)
corpus = encode(DataSource(Pair, files), encoder, folder)
print(json.dumps(dict(rows=len(corpus), calls=len(calls), grown=memory("VmHWM") - before)))
"""


def files(folder, count):
    vocabulary = [f"w{number}" for number in range(50)]
    generator = random.Random(0)
    for name in ("x.en", "x.de"):
        lines = (" ".join(generator.choices(vocabulary, k=generator.randint(3, 30))) for _ in range(count))
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    words(*vocabulary).save(folder / "tokenizer")
    return [str(folder / "x.en"), str(folder / "x.de")]


def start(folder, chunk, paths):
    arguments = [sys.executable, "-c", SCRIPT, str(folder / "tokenizer"), str(folder / "cache"), str(chunk), *paths]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})


def test_killed_at_any_moment_it_leaves_nothing_broken(tmp_path):
    """Each attempt kills the process a little later, from before the first group of examples to after the last."""
    paths = files(tmp_path, 3000)
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    generator = random.Random(1)
    states = set()
    for attempt in range(14):
        process = start(tmp_path, 100, paths)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.004 * 1.4**attempt * generator.uniform(0.5, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = [path for path in (tmp_path / "cache").glob("*") if path.is_dir() and not path.name.startswith(".")]
        assert all(len(Corpus(path)) == 3000 for path in found)  # every published corpus is complete
        states.add((bool(found), any((tmp_path / "cache").glob(".*.part"))))
        if found:
            break
    assert (False, True) in states  # at least once it was killed while writing
    corpus = encode(DataSource(Pair, paths), PairEncoder(tokenizer=tokenizer), tmp_path / "cache")
    for number, pair in enumerate(read(Pair, paths)):
        assert corpus[number]["source"].tolist() == tokenizer.encode(pair.source).ids
        assert corpus[number]["target"].tolist() == tokenizer.encode(pair.target).ids
    assert not [*(tmp_path / "cache").glob(".*.part")]


def test_two_processes_at_once_encode_once(tmp_path):
    paths = files(tmp_path, 2000)
    processes = [start(tmp_path, 100, paths) for _ in range(2)]
    results = [json.loads(process.communicate()[0].splitlines()[1]) for process in processes]
    assert [result["rows"] for result in results] == [2000, 2000]
    assert sorted(result["calls"] for result in results) == [0, 20]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc, which only Linux has")
def test_memory_does_not_grow_with_the_file(tmp_path):
    grown = []
    for count in (10_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        process = start(folder, 1000, files(folder, count))
        result = json.loads(process.communicate()[0].splitlines()[1])
        assert result["rows"] == count
        grown.append(result["grown"])
    assert grown[1] < 1.3 * grown[0] + 8, grown
