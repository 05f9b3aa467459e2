"""The rows of results that benchmarks keep, one JSON file for each script in `benchmarks/results`.

A script adds its rows and writes them at the end; `make docs` writes docs/benchmarks.md from the JSON files alone.

    rows = ResultRows("core", threads=2, packages=("torch", "transformers"))
    rows.add("forward", "BERT-base, full batches, forward pass", "ms", ours=1852, peer=1895, peer_name="transformers")
    rows.save()

A row replaces the one with the same kind, name and peer that was measured on the same CPU with the same kernels.
"""

import datetime
import json
import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of work: one table of the page."""

    title: str
    intro: str
    """What is compared, and how; Markdown."""


KINDS = {
    "forward": Kind(
        title="Forward pass and training step",
        intro="BERT-base (masked language model, 8 × 128 tokens), GPT-2 small (4 × 128) and BART-base (8 × 64 + 64), "
        "and 32 sentences with the lengths of Multi30k captions. A training step is forward pass, cross-entropy, "
        "backward pass and AdamW, with the published dropout. transformers uses SDPA attention. Memory is the peak of "
        "a process, minus its memory before.",
    ),
    "loading": Kind(
        title="Loading a checkpoint",
        intro="Weights are mapped, not copied; *load and read* is the time until every weight has been read once. "
        "Memory is the peak of a process, minus that of its imported libraries.",
    ),
    "data": Kind(
        title="Data",
        intro="From files to batches: reading two files of one million pairs, encoding them, writing the corpus and "
        "flushing it to disk, compared with `tokenizers` alone on texts that are already in memory; padding in batches "
        "of Multi30k; memory.",
    ),
    "decoding": Kind(
        title="Decoding",
        intro="Networks of Marian's base size (6+6 layers, 512, feed-forward 2,048, vocabulary 32,000) and of GPT-2's "
        "small size, with random weights; each library in a process of its own; tokens per second. *Real lengths*: "
        "inputs with the lengths of Multi30k's sentences, each output ended where its real translation ends. *Fixed "
        "lengths*: sources of 24 tokens and 32 new tokens; prompts of 16 tokens and 48 new ones. In float32 the "
        "outputs equal those of transformers.",
    ),
    "encoding": Kind(
        title="Sentence encoding",
        intro="MiniLM's weights (6 layers, 384), 64 captions of 6 to 40 tokens (1,522 in all), from token ids to "
        "normalized vectors; each library with its best batch size.",
    ),
    "embedding": Kind(
        title="Vectors of texts",
        intro="All sentences of STS-B's development set from text to vectors, with MiniLM's weights (6 layers, 384), "
        "alternately with sentence-transformers; and the exact search of `regard search`.",
    ),
    "file": Kind(
        title="A whole file",
        intro="A small trained translator (2.6 million parameters, 10 MB) translates a file of about 1,000 lines with "
        "beam 4, from the start of the process to its exit; the peers with their best batch size.",
    ),
    "startup": Kind(
        title="Start of a command",
        intro="Each command in a process of its own; the peer is the same command without one shortcut, or "
        "`import torch`.",
    ),
    "training": Kind(
        title="Training speed",
        intro="Whole commands on Multi30k (4+4 layers, 128, feed-forward 256, 4 heads, vocabulary 8,000, dropout 0.3, "
        "batches of 4,096 tokens): real target tokens per second, without the start.",
    ),
    "scaling": Kind(
        title="Scaling",
        intro="A network of Marian's base size with random weights, compiled, greedy search; sources of 24 tokens and "
        "32 new tokens.",
    ),
    "vectors": Kind(
        title="Word vectors",
        intro="Training on the same text with the same settings (100 numbers, window 5, 5 negative samples, words that "
        "occur 5 times, subsampling 1e-4, learning rate 0.05), each tool in a process of its own, alternating; the "
        "vectors answer the questions of questions-words by the same protocol. gensim reads the file itself "
        "(`corpus_file`). The time of word2vec.c includes reading the vocabulary. Then exact nearest neighbours.",
    ),
    "quality": Kind(
        title="Quality",
        intro="Scores of trained models on data that training did not see.",
    ),
    "test-set": Kind(
        title="Every evaluation on a test set",
        intro="Recipes, beams and penalties are chosen on validation data. Each look at a test set is logged here, "
        "whatever its result; rows are added, never replaced.",
    ),
}
"""The kinds of work, in the order of the page."""

APPENDED_KINDS = ("test-set",)
"""Kinds whose rows are a log: a new row replaces none."""


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One measurement, with all that is needed to measure it again."""

    kind: str
    """A key of `KINDS`."""
    what: str
    """What was measured; together with the peer, unique within the kind."""
    unit: str
    """The unit of `ours` and `peer`: ms, s, MB, tokens/s, BLEU …"""
    better: Literal["lower", "higher"]
    """Whether lower or higher values are better."""
    ours: float | None
    """The value of regard; None where only the ratio was kept."""
    peer: float | None = None
    """The value of the peer in the same run."""
    peer_name: str = ""
    """The peer, as in "CTranslate2 int8"; empty without one."""
    ratio: float | None = None
    """How much better regard is: above 1, regard is faster, smaller or more accurate."""
    date: str
    """The day of the run, as in 2026-11-18."""
    versions: dict[str, str]
    """Versions of the libraries."""
    cpu: str
    """The CPU, its instruction sets and the number of cores."""
    threads: int
    """Threads of each library."""
    kernels: Literal["compiled", "off"]
    """Whether regard ran with its compiled kernels."""
    command: str
    """The command that measured it, from the root of the project."""
    note: str = ""
    """What else a reader needs to know, in a sentence."""

    def __post_init__(self):
        assert self.kind in KINDS, f"unknown kind {self.kind!r}: add it to KINDS in {Path(__file__).name}"
        assert self.ours is not None or self.ratio is not None, f"{self.what}: neither a value nor a ratio"
        datetime.date.fromisoformat(self.date)

    @property
    def anchor(self):
        """The id of the row on the page, for links: `docs/benchmarks.md#anchor`."""
        words = [self.kind, self.what, *([f"vs {self.peer_name}"] if self.peer_name else [])]
        words += ["without kernels"] if self.kernels == "off" else []
        words += [self.date] if self.kind in APPENDED_KINDS else []
        return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


class ResultRows:
    """Collects the rows of one script and saves them."""

    def __init__(self, script, *, threads, packages, results=RESULTS):
        self.file = results / f"{script}.json"
        self.rows = []
        self.common = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "versions": {name: version(name) for name in packages},
            "cpu": cpu_name(),
            "threads": threads,
            "kernels": kernels_status(),
            "command": command_line(),
        }

    def add(
        self, kind, what, unit, *, ours, peer=None, peer_name="", better="lower", note="", versions=None, threads=None
    ):
        """Add a row; the ratio is computed from the unrounded values."""
        ratio = None
        if peer is not None:
            ratio = peer / ours if better == "lower" else ours / peer
        common = self.common | {"versions": self.common["versions"] | (versions or {})}
        common |= {"threads": threads} if threads else {}
        values = {"ours": ours, "peer": peer, "ratio": ratio}
        rounded = {name: None if value is None else float(f"{value:.5g}") for name, value in values.items()}
        row = ResultRow(
            kind=kind, what=what, unit=unit, better=better, peer_name=peer_name, note=note, **rounded, **common
        )
        self.rows.append(row)

    def save(self):
        """Write the rows to the file of the script, in place of those that they replace."""
        replaced = {replacement_key(row) for row in self.rows}
        kept = [row for row in read_file(self.file) if replacement_key(row) not in replaced]
        write_file(self.file, kept + self.rows)
        print(f"\nsaved {len(self.rows)} rows to {self.file.name}; `make docs` writes the page", file=sys.stderr)


def replacement_key(row):
    """What two rows have in common if the later one replaces the earlier one."""
    key = (row.kind, row.what, row.peer_name, row.cpu, row.kernels)
    return (*key, row.date, row.command, row.ours) if row.kind in APPENDED_KINDS else key


def read_results(folder=RESULTS):
    """The rows of all files, by file name."""
    return {file.stem: read_file(file) for file in sorted(folder.glob("*.json"))}


def read_file(file):
    """The rows of a file; keys that `ResultRow` has no default for are required, unknown ones are an error."""
    if not file.exists():
        return []
    return [ResultRow(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def write_file(file, rows):
    """Write one row per line, so that a difference between two versions is readable."""
    optional = {field.name: field.default for field in fields(ResultRow) if field.name in ("peer", "peer_name", "note")}
    entries = [{key: value for key, value in asdict(row).items() if optional.get(key, ()) != value} for row in rows]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    temporary = file.with_name(f".{file.name}.part")
    temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    temporary.replace(file)


def cpu_name():
    """The CPU's model, its vector instructions and the number of cores, as in `results/*.json`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        import platform

        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    entries = dict(line.split(":", 1) for line in lines if ":" in line)
    entries = {key.strip(): value.strip() for key, value in entries.items()}
    flags = entries.get("flags", "").split()
    sets = {"AVX2": "avx2", "AVX-512": "avx512f", "VNNI": "avx512_vnni", "bf16": "avx512_bf16", "AMX": "amx_tile"}
    features = " ".join(name for name, flag in sets.items() if flag in flags) or "no AVX2"
    model = re.sub(r"\((R|TM)\)", "", entries.get("model name", "unknown CPU"))
    return f"{' '.join(model.split())}, {features}, {os.cpu_count()} cores"


def kernels_status():
    """Whether the compiled kernels of regard are in use."""
    from regard.native.library import available

    return "compiled" if available() else "off"


def command_line():
    """The command of this process; of absolute paths, only the last name."""
    script = Path(sys.argv[0])
    words = [f"benchmarks/{script.name}", *sys.argv[1:]]
    words = [f"…/{Path(word).name}" if Path(word).is_absolute() else word for word in words if word != "--save"]
    variables = ["REGARD_NATIVE=0"] if os.environ.get("REGARD_NATIVE") == "0" else []
    variables += ["REGARD_DATA=…"] if os.environ.get("REGARD_DATA") else []
    return " ".join([*variables, "python", *(word if "…" in word else shlex.quote(word) for word in words)])
