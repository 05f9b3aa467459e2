"""The tensors of a checkpoint: untrusted files are read safely, and files are written atomically.

No code is executed: safetensors is plain data, and an old `pytorch_model.bin` goes through torch's restricted loader,
which accepts only tensors. No memory is allocated on the word of a header: names, dtypes and shapes are read first, and
each tensor is read on demand from the memory-mapped file.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.checkpoint.model_folder import CheckpointError
from regard.files import atomic_write, atomic_write_all, format_json, read_json, repair_files

WEIGHTS_FILE = "model.safetensors"
PICKLE_WEIGHTS_FILE = "pytorch_model.bin"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
WEIGHT_NAME = re.compile(
    r"(model|pytorch_model)(-\d{5}-of-\d{5})?\.(safetensors|bin)|(model\.safetensors|pytorch_model\.bin)\.index\.json"
)
MAX_SHARD_BYTES = 5 * 10**9

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class LazyTensor:
    """One tensor of a checkpoint, not yet read."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype | None
    """None if it is not a floating-point type."""
    read: Callable[[], Tensor]
    read_quantized: Callable[[], tuple[Tensor, Tensor]] | None = None
    """For an int8 tensor: reads the quantized values and their scale (`quantized_tensor.py`)."""

    def equals(self, other: LazyTensor) -> bool:
        """Whether both hold the same values. Two int8 tensors are compared without dequantizing them."""
        if self.shape != other.shape:
            return False
        if self.read_quantized is not None and other.read_quantized is not None:
            return all(map(torch.equal, self.read_quantized(), other.read_quantized()))
        return torch.equal(self.read(), other.read())


@contextmanager
def open_tensors(folder: Path) -> Iterator[dict[str, LazyTensor]]:
    """Open all tensors of a folder by name: from safetensors or an old `.bin`, a single file or shards."""
    for single, open_file in ((WEIGHTS_FILE, _open_safetensors), (PICKLE_WEIGHTS_FILE, _open_pickle)):
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            yield dict(_index_tensors(open_file, [folder / single]))
            return
        if index.is_file():
            yield dict(_index_tensors(open_file, _shard_paths(index)))
            return
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise CheckpointError(
        f"{folder} has no weights: expected {WEIGHTS_FILE} (or its shards with an index) or {PICKLE_WEIGHTS_FILE}, "
        f"found {names}"
    )


def _index_tensors(
    open_file: Callable[[Path], Iterable[LazyTensor]], paths: Iterable[Path]
) -> Iterator[tuple[str, LazyTensor]]:
    paths_by_name: dict[str, Path] = {}
    for path in paths:
        for tensor in open_file(path):
            if tensor.name in paths_by_name:
                raise CheckpointError(
                    f"{path}: duplicate tensor {tensor.name}: also in {paths_by_name[tensor.name].name}"
                )
            paths_by_name[tensor.name] = path
            yield tensor.name, tensor


def _shard_paths(index: Path) -> list[Path]:
    names = read_json(index, CheckpointError).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index}: expected a `weight_map` of tensor names to file names")
    paths = []
    for name in dict.fromkeys(names.values()):
        if Path(name).name != name:
            raise CheckpointError(f"{index}: shard {name!r} is not in this folder")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index.parent / name} is missing but listed in {index.name}: copy all shards")
        paths.append(index.parent / name)
    return paths


def _open_safetensors(path: Path) -> list[LazyTensor]:
    try:
        file: Any = safe_open(path, framework="pt")
        return [_lazy_tensor(path, file, name) for name in list(file.keys())]
    except SafetensorError as error:
        raise CheckpointError(f"{path} is corrupt or not a safetensors file ({error}): copy it again") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _lazy_tensor(path: Path, file: Any, name: str) -> LazyTensor:
    view = file.get_slice(name)

    def read() -> Tensor:
        try:
            return cast(Tensor, file.get_tensor(name))
        except SafetensorError as error:
            raise CheckpointError(f"{path}: tensor {name} cannot be read ({error}): copy the file again") from None

    return LazyTensor(name, tuple(view.get_shape()), DTYPES.get(view.get_dtype()), read)


def _open_pickle(path: Path) -> list[LazyTensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path} contains more than tensors, and loading it would run code: it is refused. Use a safetensors file"
        ) from None
    except Exception as error:  # a corrupt file can make the loader fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is corrupt or not a PyTorch file ({reason}): copy it again") from None
    if not isinstance(tensors, dict):
        raise CheckpointError(f"{path}: expected a dictionary of tensors, found {type(tensors).__name__}")
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or value.layout is not torch.strided:
            raise CheckpointError(f"{path}: expected a dictionary of tensors, found {name!r}: {type(value).__name__}")
        if value.nbytes > value.untyped_storage().nbytes():
            raise CheckpointError(
                f"{path}: tensor {name} needs {value.nbytes} bytes, but its storage in the file is smaller"
            )
    return [_loaded_tensor(name, value) for name, value in tensors.items()]


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _loaded_tensor(name: str, value: Tensor) -> LazyTensor:
    return LazyTensor(name, tuple(value.shape), value.dtype if value.is_floating_point() else None, lambda: value)


def write_tensors(
    folder: Path,
    tensors: Mapping[str, Tensor],
    *,
    max_shard_bytes: int | None = None,
    others: Mapping[str, bytes] = MappingProxyType({}),
    remove: Iterable[str] = (),
) -> None:
    """Write tensors to `model.safetensors`, or to shards with an index, and other files: all of them or none.

    Weights of an earlier model with other names are removed, and the files in `remove` that are not written.
    """
    repair_files(_interrupted_weights(folder))
    shards, index = split_shards(tensors, max_shard_bytes)
    contents = dict(others) if index is None else {INDEX_FILE: format_json(index).encode(), **others}
    names = [*shards, *contents]
    stale = [path for path in _weight_files(folder) if path.name not in names]
    stale += [folder / name for name in dict.fromkeys(remove) if name not in names]
    with atomic_write_all([folder / name for name in names], remove=stale) as temporary:
        for name, part in zip(names, temporary, strict=True):
            if name in shards:
                _fill_safetensors(part, folder / name, shards[name])
            else:
                part.write_bytes(contents[name])


def split_shards(
    tensors: Mapping[str, Tensor], max_shard_bytes: int | None = None
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any] | None]:
    """Return the tensors of each file, by its name, and the index: `model.safetensors` without an index, or shards.

    A shard has at most `max_shard_bytes` (default: `MAX_SHARD_BYTES`), or one larger tensor.
    """
    limit = max_shard_bytes or MAX_SHARD_BYTES
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        return {WEIGHTS_FILE: shards[0]}, None
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(tensor.nbytes for tensor in tensors.values())
    return dict(zip(names, shards, strict=True)), {"metadata": {"total_size": total}, "weight_map": weight_map}


def _interrupted_weights(folder: Path) -> list[Path]:
    """Return the paths of weight files that a killed process may have left under a temporary name."""
    hidden = (path.name.removeprefix(".") for path in folder.iterdir() if path.name.startswith("."))
    matches = (WEIGHT_NAME.match(name) for name in hidden)
    return [folder / name for name in sorted({match[0] for match in matches if match})]


def _weight_files(folder: Path) -> list[Path]:
    """Return all weight files of a folder, and their indexes."""
    return sorted(path for path in folder.iterdir() if WEIGHT_NAME.fullmatch(path.name))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to one safetensors file."""
    with atomic_write(path) as temporary:
        _fill_safetensors(temporary, path, tensors)


def _fill_safetensors(temporary: Path, path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to the temporary file of `path`."""
    mode = temporary.stat().st_mode  # by the umask; safetensors would leave a file that only its owner can read
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None  # a full disk or missing permission, not the tensors
    temporary.chmod(mode)
