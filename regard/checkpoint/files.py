"""Folders of tensors on disk, read without trusting them and written so that nobody ever sees half a file.

Nothing is executed: safetensors is plain data, and an old `pytorch_model.bin` goes through torch's restricted loader,
which knows tensors and nothing else. Nothing is allocated by what a header claims: names, types and shapes are read
first, tensors one by one when they are asked for, straight from the mapped file.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
SHARD_BYTES = 5 * 10**9

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class CheckpointError(ValueError):
    """A folder that cannot be read: it names the file, what was found, what was expected and what to do."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a checkpoint, not yet read."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype | None
    """None where it is no floating-point type."""
    read: Callable[[], Tensor]
    levels: Callable[[], tuple[Tensor, Tensor]] | None = None
    """Where it is bytes: its levels, and the scales that make them numbers (`rounding.py`)."""

    def same(self, other: Stored) -> bool:
        """Whether both hold the same numbers. Bytes are compared as they are."""
        if self.shape != other.shape:
            return False
        if self.levels is not None and other.levels is not None:
            return all(map(torch.equal, self.levels(), other.levels()))
        return torch.equal(self.read(), other.read())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (UnicodeDecodeError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as text: {error}") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}, line {error.lineno}: this is no valid JSON ({error.msg})") from None
    except RecursionError:
        raise CheckpointError(f"{path}: JSON nested too deeply to be a model's") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: this is no JSON of a model's ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


@contextmanager
def open_tensors(folder: Path) -> Iterator[dict[str, Stored]]:
    """All tensors of a folder by name: from safetensors or an old `.bin`, whole or in shards."""
    for single, open_one in ((WEIGHTS, _safetensors), (OLD_WEIGHTS, _restricted_pickle)):
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            yield dict(_stored(open_one, [folder / single]))
            return
        if index.is_file():
            yield dict(_stored(open_one, _shards(index)))
            return
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise CheckpointError(
        f"{folder} has no weights: expected {WEIGHTS} (or its shards with an index) or {OLD_WEIGHTS}, found {there}"
    )


def _stored(open_one: Callable[[Path], Iterable[Stored]], paths: Iterable[Path]) -> Iterator[tuple[str, Stored]]:
    seen: dict[str, Path] = {}
    for path in paths:
        for stored in open_one(path):
            if stored.name in seen:
                raise CheckpointError(f"{path}: tensor {stored.name} stands in {seen[stored.name].name} too")
            seen[stored.name] = path
            yield stored.name, stored


def _shards(index: Path) -> list[Path]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index}: expected a `weight_map` of tensor names to file names")
    paths = []
    for name in dict.fromkeys(names.values()):
        if Path(name).name != name:
            raise CheckpointError(f"{index}: shard {name!r} is not in this folder")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index.parent / name} is missing, though {index.name} lists it: copy all shards")
        paths.append(index.parent / name)
    return paths


def _safetensors(path: Path) -> list[Stored]:
    try:
        file: Any = safe_open(path, framework="pt")
        return [_slice(path, file, name) for name in list(file.keys())]
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or no safetensors file ({error}): copy it again") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of one safetensors file, whatever its name."""
    return {stored.name: stored.read() for stored in _safetensors(path)}


def _slice(path: Path, file: Any, name: str) -> Stored:
    part = file.get_slice(name)

    def read() -> Tensor:
        try:
            return cast(Tensor, file.get_tensor(name))
        except SafetensorError as error:
            raise CheckpointError(f"{path}: tensor {name} cannot be read ({error}): copy the file again") from None

    return Stored(name, tuple(part.get_shape()), DTYPES.get(part.get_dtype()), read)


def _restricted_pickle(path: Path) -> list[Stored]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path} holds more than tensors, and loading it would run code: it is refused. Ask for a safetensors file"
        ) from None
    except Exception as error:  # a damaged file can make the loader fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged or no torch file ({reason}): copy it again") from None
    if not isinstance(tensors, dict):
        raise CheckpointError(f"{path}: expected a dictionary of tensors, found {type(tensors).__name__}")
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or value.layout is not torch.strided:
            raise CheckpointError(f"{path}: expected a dictionary of tensors, found {name!r}: {type(value).__name__}")
        if value.nbytes > value.untyped_storage().nbytes():
            raise CheckpointError(f"{path}: tensor {name} claims {value.nbytes} bytes, and the file holds fewer")
    return [_in_memory(name, value) for name, value in tensors.items()]


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _in_memory(name: str, value: Tensor) -> Stored:
    return Stored(name, tuple(value.shape), value.dtype if value.is_floating_point() else None, lambda: value)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; when done, what was written is flushed and takes the real name at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object to a file."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(folder: Path, tensors: Mapping[str, Tensor], shard_bytes: int = SHARD_BYTES) -> None:
    """Tensors to `model.safetensors`, or to shards with an index where they are many."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        _write({folder / WEIGHTS: shards[0]})
        _remove(folder, keep={WEIGHTS})
        return
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    _write({folder / name: shard for name, shard in zip(names, shards, strict=True)})
    where = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(folder / f"{WEIGHTS}.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    _remove(folder, keep={*names, f"{WEIGHTS}.index.json"})


def write_file(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors to one safetensors file, whatever its name."""
    _write({path: tensors})


def _write(files: Mapping[Path, Mapping[str, Tensor]]) -> None:
    """All files or none: they take their names when the last of them is written."""
    with ExitStack() as stack:
        for path, tensors in files.items():
            temporary = stack.enter_context(replacing(path))
            try:
                save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {"format": "pt"})
            except SafetensorError as error:
                raise OSError(f"{path}: {error}") from None  # it is the disk that refuses, whoever says so


def _remove(folder: Path, keep: set[str]) -> None:
    """Weights that an earlier save left here under other names: a reader must not find two."""
    for pattern in (WEIGHTS, "model-*-of-*.safetensors", f"{WEIGHTS}.index.json"):
        for path in folder.glob(pattern):
            if path.name not in keep:
                path.unlink()
