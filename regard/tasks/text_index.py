"""An index of texts: their vectors in a folder, for exact search.

index.json       the model (folder and fingerprint), the options, the number of texts
vectors.npy      a vector for each text: float32 or int8
scales.npy       with int8, what each vector is multiplied with
lengths.npy      the length of each vector
texts.jsonl      the texts, a JSON string per line
offsets.npy      where each line of texts.jsonl starts

index = TextIndex.open("index", regard.load("model"))
index.search("a horse by the sea", count=5)      # [Match(text=…, score=0.71, index=17), …]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.files import atomic_folder, read_json, write_json
from regard.tasks.embed import EmbedOptions, TextVector
from regard.tasks.long_input import LongInput
from regard.tasks.matrix_file import MatrixFile
from regard.vectors.nearest import NearestNeighbours

FORMAT_VERSION = 1
SAMPLE_BYTES = 1 << 20
"""Size of the parts of the weights that the fingerprint of a model reads."""


class TextIndexError(ValueError):
    """A folder is no index, or does not fit the model."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """A text that is near a query."""

    text: str
    score: float
    """The cosine of both vectors."""
    index: int
    """The number of the text, counted from 0."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {"text": self.text, "score": round(self.score, 6), "index": self.index}


def model_fingerprint(folder: Path) -> str:
    """Identify a model by its config, and by the size and parts of its weights."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*/model.safetensors")]):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            size = path.stat().st_size
            digest.update(str(size).encode())
            for start in (0, max(0, size // 2 - SAMPLE_BYTES // 2), max(0, size - SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:32]


def write_index(
    folder: Path, model_folder: Path, options: EmbedOptions, results: Iterable[tuple[str, TextVector]]
) -> int:
    """Write an index of texts and their vectors, atomically; return the number of texts. Memory use is constant."""
    if folder.exists() and not (folder / "index.json").is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise TextIndexError(f"{folder} exists and is no index: choose another name")
    lengths, scales, offsets = [], [], [0]
    with atomic_folder(folder) as temporary:
        with (
            MatrixFile(temporary / "vectors.npy", np.int8 if options.int8 else np.float32) as vectors,
            (temporary / "texts.jsonl").open("wb") as texts,
        ):
            for text, result in results:
                vectors.append(result.vector)
                scale = 1.0 if result.scale is None else result.scale
                scales.append(scale)
                lengths.append(scale * float(np.linalg.norm(result.vector)))
                offsets.append(offsets[-1] + texts.write(json.dumps(text, ensure_ascii=False).encode() + b"\n"))
        if not lengths:
            raise TextIndexError("there are no texts to index")
        np.save(temporary / "lengths.npy", np.array(lengths, np.float32))
        np.save(temporary / "offsets.npy", np.array(offsets, np.int64))
        if options.int8:
            np.save(temporary / "scales.npy", np.array(scales, np.float32))
        values = {"format_version": FORMAT_VERSION, "count": len(lengths), "dim": vectors.dim}
        model = {"folder": str(model_folder.resolve()), "fingerprint": model_fingerprint(model_folder)}
        write_json(temporary / "index.json", {**values, "model": model, "options": asdict(options)})
    return len(lengths)


class TextIndex:
    """An index, its model, and a search by text."""

    def __init__(self, folder: Path, embed: Callable[[Sequence[str]], Sequence[TextVector]]) -> None:
        self.folder, self.embed = folder, embed
        self.info = read_index_info(folder)
        vectors = self._array("vectors.npy")
        self.offsets, lengths = self._array("offsets.npy"), self._array("lengths.npy")
        self._check_sizes(vectors, lengths)
        scales = self._array("scales.npy") if vectors.dtype == np.int8 else None
        self.neighbours = NearestNeighbours(vectors, lengths=lengths, scales=scales)

    @classmethod
    def open(cls, folder: str | Path, model: Any, *, prompt: str | None = None) -> TextIndex:
        """Open an index with the model that it was made with.

        `prompt` is put before queries, in place of the one before the indexed texts.
        """
        folder = Path(folder)
        info = read_index_info(folder)
        check_model(info, folder, model.folder)
        options = query_options(info, prompt)
        return cls(folder, lambda texts: list(model.prepare("embed", options).run(texts)))

    def search(self, query: str, count: int = 10) -> list[Match]:
        """Return the texts nearest to a query, best first."""
        (matches,) = self.search_all([query], count)
        return matches

    def search_all(self, queries: Iterable[str], count: int = 10) -> Iterator[list[Match]]:
        """Yield the texts nearest to each query, best first."""
        texts = list(queries)
        if not texts:
            return
        vectors = np.array([result.vector for result in self.embed(texts)])
        found = self.neighbours.search(vectors, count)
        for indices, scores in zip(found.indices.tolist(), found.scores.tolist(), strict=True):
            yield [
                Match(text=self.text(index), score=score, index=index)
                for index, score in zip(indices, scores, strict=True)
            ]

    def text(self, index: int) -> str:
        """Return one of the texts."""
        with (self.folder / "texts.jsonl").open("rb") as file:
            file.seek(int(self.offsets[index]))
            return str(json.loads(file.read(int(self.offsets[index + 1] - self.offsets[index]))))

    def __len__(self) -> int:
        return int(self.info["count"])

    def _array(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise TextIndexError(f"{self.folder / name} cannot be read ({error}): make the index again") from None
        return array

    def _check_sizes(self, vectors: NDArray[Any], lengths: NDArray[Any]) -> None:
        count, dim = len(self), self.info["dim"]
        size = (self.folder / "texts.jsonl").stat().st_size
        if vectors.shape != (count, dim) or len(lengths) != count or int(self.offsets[-1]) != size:
            raise TextIndexError(f"{self.folder}: its files do not fit each other: make the index again")


def read_index_info(folder: Path) -> dict[str, Any]:
    """Read index.json."""
    if not (folder / "index.json").is_file():
        raise TextIndexError(f"{folder} is no index: `regard embed MODEL FILE --index {folder}` makes one")
    info = read_json(folder / "index.json", TextIndexError)
    if info.get("format_version") != FORMAT_VERSION or not isinstance(info.get("model"), Mapping):
        raise TextIndexError(
            f"{folder / 'index.json'}: format_version is {info.get('format_version')!r}, this version of regard reads "
            f"{FORMAT_VERSION}: make the index again"
        )
    return info


def check_model(info: Mapping[str, Any], folder: Path, model_folder: Path | None) -> None:
    """Raise if an index was made with another model: its vectors could not be compared."""
    if model_folder is None or model_fingerprint(model_folder) != info["model"]["fingerprint"]:
        raise TextIndexError(
            f"{folder} was made with another model ({info['model']['folder']}), so its vectors cannot be compared with "
            f"those of {model_folder}: use that model, or make the index again"
        )


def query_options(info: Mapping[str, Any], prompt: str | None) -> EmbedOptions:
    """Return the options for queries: those of the index, in float32, perhaps with another prompt."""
    options = {**info["options"], "long": LongInput(info["options"]["long"])}
    values = {**options, "int8": False, "tokens": False, "images": False}
    return EmbedOptions(**(values if prompt is None else {**values, "prompt": prompt}))
