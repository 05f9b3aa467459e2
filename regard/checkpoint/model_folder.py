"""The model folder: the one reader and writer of its files. docs/model-folders.md describes them.

Reading is lazy, and nothing here imports torch before tensors are read or written: a tokenizer is loaded without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from regard.files import (
    find_leftovers,
    format_json,
    read_bytes,
    read_json,
    repair_files,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from regard.checkpoint.tensor_files import LazyTensor

CONFIG_FILE = "config.json"
GENERATION_CONFIG_FILE = "generation_config.json"
INFO_FILE = "regard.json"
BEST_FOLDER = "best"
"""The best model in the folder of a training run."""
OLD_QUANTIZATION_FILE = "engine.json"
"""The file of the quantization record in folders of version 0.1."""
REGARD_MODEL_TYPE = "regard"
"""The `model_type` of networks of no published family, saved in regard's own layout."""
PROBLEM_TYPES = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
"""The values of `problem` in regard.json and of `problem_type` in config.json."""
FITTED_KEYS = ("temperature", "no_answer_threshold")
"""Keys of regard.json that were fitted to validation data with one head."""
FORMAT_VERSION = 1
"""The version of regard.json."""

SENTENCE_MODULE_FILES = (
    *(("Pooling", "config.json"), ("Normalize", "config.json"), ("Dropout", "config.json")),
    *(("Dense", "config.json"), ("Dense", "model.safetensors"), ("Dense", "pytorch_model.bin")),
)
"""Folders and files of the modules of a sentence encoder (`sentence_folder.py`)."""
SENTENCE_CONFIG_NAMES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
COMPANION_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "target_vocab.json", "source.spm", "target.spm"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"),
    *("target/tokenizer.json", "target/tokenizer_config.json"),
    GENERATION_CONFIG_FILE,
    *("modules.json", "config_sentence_transformers.json", "preprocessor_config.json"),
    *(f"sentence_{name}_config.json" for name in SENTENCE_CONFIG_NAMES),
    *(f"{number}_{kind}/{name}" for number in range(1, 6) for kind, name in SENTENCE_MODULE_FILES),
)
"""Files besides the weights, config.json and regard.json. They are copied with a model, byte for byte; those that a new
model does not have are removed. Files of other names are neither copied nor removed."""
SUBFOLDERS = tuple(dict.fromkeys(name.partition("/")[0] for name in COMPANION_FILES if "/" in name))


class CheckpointError(ValueError):
    """A checkpoint cannot be read. The message names the file, what was found, what was expected and what to do."""


class QuantizationRecord(TypedDict):
    """The key `quantization` of regard.json."""

    precision: str
    """The precision that the weights were quantized for: int8."""
    quantization_error: dict[str, Any] | None
    """The fields of `QuantizationMetrics`; null if it was not measured."""


class AnswerFormat(TypedDict):
    """The key `answer_format` of regard.json."""

    input: str
    """The input, with {question} and {context}."""
    no_answer: str
    """The output that stands for no answer."""


class ModelInfo(TypedDict, total=False):
    """The content of regard.json: what the other files have no place for. Unknown keys are kept in copies."""

    format_version: int
    """The version of this schema. Files without it are older than version 1, which reads them too."""
    task: str
    """The task that the model was trained for: `translate`, `classify` …"""
    labels: list[str]
    """The label names, in the order of the logits. A published family has them in config.json too."""
    temperature: float
    """The number that logits are divided by before the softmax, so that probabilities are calibrated."""
    problem: str
    """What a classification head predicts: `single_label`, `multi_label` or `regression`."""
    no_answer_threshold: float
    """A question has no answer if the score of no answer exceeds that of the best span by more than this."""
    answer_format: AnswerFormat
    """How a network that generates answers reads question and context."""
    pooling: str
    """How the vectors of the tokens become the vector of a text: `mean`, `first`, `last` …"""
    prompts: dict[str, str]
    """Texts that are put before an input, by name: `query`, `passage`."""
    quantization: QuantizationRecord
    """The precision that the weights were quantized for, and the quantization error."""
    test_evaluations: dict[str, int]
    """How often the model was evaluated on each test set, by the name of the test set."""
    recipe: dict[str, Any]
    """The recipe that the model was trained with, all defaults filled in."""
    metrics: dict[str, float]
    """Metrics of the model on its validation data."""


@dataclass(frozen=True)
class Companions:
    """What a model folder holds besides the network."""

    files: Mapping[str, bytes]
    """Tokenizer files and generation_config.json, by name."""
    info: ModelInfo
    """The content of regard.json."""

    def without_head(self) -> Companions:
        """Return the same for a network with a new head: what describes the old one is left out."""
        return Companions(self.files, _without(self.info, "labels", "problem", *FITTED_KEYS, "metrics"))


def find_model(path: str | Path) -> Path:
    """Return a model folder itself, or the folder of the best model if it is that of a training run."""
    path = Path(path)
    best = path / BEST_FOLDER
    return best if (best / CONFIG_FILE).is_file() and not (path / CONFIG_FILE).exists() else path


class ModelFolder:
    """The files of a model folder. JSON files are read once, at the first access."""

    def __init__(self, path: str | Path) -> None:
        self.path = find_model(path)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        if not self.path.exists():
            raise CheckpointError(
                f"folder {self.path} does not exist. Nothing is downloaded unless requested: "
                "`regard.load(name, download=True)` downloads a model from the Hugging Face hub"
            )
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file: pass its folder")
        if not any(self.path.iterdir()):
            raise CheckpointError(f"{self.path} is empty: expected {CONFIG_FILE} and model.safetensors")
        self._check_complete()
        return read_json(self.path / CONFIG_FILE, CheckpointError)

    def _check_complete(self) -> None:
        leftovers = [path.name for path in find_leftovers(self.path / CONFIG_FILE) if path.suffix != ".part"]
        if leftovers:
            raise CheckpointError(
                f"{self.path} is half replaced: a process was killed while it wrote a model there. Write it again; the "
                "files of the model before are hidden files that end in .old"
            )

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        """The content of generation_config.json; empty if there is none."""
        return self.read_if_exists(GENERATION_CONFIG_FILE)

    @cached_property
    def info(self) -> ModelInfo:
        """The content of regard.json; empty if there is none. An older quantization record is included."""
        values = self.read_if_exists(INFO_FILE)
        _check_info(values, self.path / INFO_FILE)
        if "quantization" not in values and (old := self.read_if_exists(OLD_QUANTIZATION_FILE)):
            values = {**values, "quantization": old}
        if "problem" not in values and (problem := self._published_problem()):
            values = {**values, "problem": problem}
        return cast(ModelInfo, values)

    def _published_problem(self) -> str | None:
        """Return what a classification head predicts, by the name that transformers gives it in config.json."""
        name = self.read_if_exists(CONFIG_FILE).get("problem_type")
        return next((ours for ours, theirs in PROBLEM_TYPES.items() if theirs == name), None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label names in the order of the logits; empty if the folder has none."""
        if "labels" in self.info:
            return tuple(self.info["labels"])
        names = self.read_if_exists(CONFIG_FILE).get("id2label") or {}
        return tuple(name for _, name in sorted((int(number), str(name)) for number, name in names.items()))

    def read_if_exists(self, name: str, error: type[ValueError] = CheckpointError) -> dict[str, Any]:
        """Read a JSON file of the folder; return an empty object if it does not exist."""
        path = self.path / name
        return read_json(path, error) if path.is_file() else {}

    def tensors(self) -> AbstractContextManager[dict[str, LazyTensor]]:
        """Open all tensors by name."""
        from regard.checkpoint.tensor_files import open_tensors

        return open_tensors(self.path)

    def companions(self) -> Companions:
        """Read what a copy of the folder needs besides the network."""
        if not self.path.is_dir():
            raise CheckpointError(
                f"folder {self.path} no longer exists, so its tokenizer and generation config cannot be copied: "
                "restore it, or save only the network with `regard.checkpoint.save.save`"
            )
        files = {name: read_bytes(self.path / name) for name in COMPANION_FILES if (self.path / name).is_file()}
        return Companions(files, _without(self.info, "quantization"))  # it is about the weights of this folder

    def write(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], companions: Companions | None = None
    ) -> None:
        """Write the weights, the companions and config.json: all of them or, if anything fails, none.

        Files of an earlier model that this one does not have are removed: weights, tokenizer files, generation config,
        quantization record. Without companions, those in the folder stay, except for the quantization record. Links in
        the folder are replaced, and not written through.
        """
        from regard.checkpoint.tensor_files import write_tensors

        self.path.mkdir(parents=True, exist_ok=True)
        repair_files(self.path / name for name in (*COMPANION_FILES, INFO_FILE, CONFIG_FILE))
        info = companions.info if companions else _without(self.info, "quantization")
        others = dict(companions.files) if companions else {}
        if values := _without(info, "format_version"):
            others[INFO_FILE] = format_json({"format_version": FORMAT_VERSION, **values}).encode()
        named = _with_label_names(config, companions.info if companions else {})
        others[CONFIG_FILE] = format_json(named).encode()  # last: it completes the model
        remove = [INFO_FILE, OLD_QUANTIZATION_FILE, *(COMPANION_FILES if companions else ())]
        with self._own_subfolders(others):
            write_tensors(self.path, tensors, others=others, remove=remove)
        for name in ("config", "generation_config", "info"):
            vars(self).pop(name, None)  # read them again

    @contextmanager
    def _own_subfolders(self, names: Iterable[str]) -> Iterator[None]:
        """Make the subfolders of these files. Links in their place are replaced, or put back after an error."""
        links = {
            self.path / name: (self.path / name).readlink() for name in SUBFOLDERS if (self.path / name).is_symlink()
        }
        for link in links:
            link.unlink()
        for folder in {(self.path / name).parent for name in names}:
            folder.mkdir(exist_ok=True)
        try:
            yield
        except BaseException:
            self._remove_empty_subfolders()
            for link, target in links.items():
                link.symlink_to(target)
            raise
        self._remove_empty_subfolders()

    def write_info(self, info: ModelInfo) -> None:
        """Write regard.json; without any information there is no such file."""
        values = _without(info, "format_version")
        if values:
            write_json(self.path / INFO_FILE, {"format_version": FORMAT_VERSION, **values})
        self._remove(OLD_QUANTIZATION_FILE, *(() if values else (INFO_FILE,)))
        vars(self).pop("info", None)

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def _remove_empty_subfolders(self) -> None:
        for name in SUBFOLDERS:
            with suppress(OSError):  # it does not exist, or has files
                (self.path / name).rmdir()


def _without(info: ModelInfo, *keys: str) -> ModelInfo:
    return cast(ModelInfo, {key: value for key, value in info.items() if key not in keys})


def _check_info(values: Mapping[str, Any], path: Path) -> None:
    version, labels = values.get("format_version", FORMAT_VERSION), values.get("labels", [])
    if not isinstance(version, int) or isinstance(version, bool):
        raise CheckpointError(f"{path}: format_version is {version!r}; expected an integer")
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version {version} is newer than {FORMAT_VERSION}, the newest that this version of regard "
            "reads: update regard (`pip install --upgrade regard`)"
        )
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise CheckpointError(f"{path}: labels is {labels!r}; expected a list of label names")


def _with_label_names(config: Mapping[str, Any], info: ModelInfo) -> dict[str, Any]:
    """Add label names and problem type to a published config. regard's own configs have no place for them."""
    labels, result = info.get("labels"), dict(config)
    if config["model_type"] == REGARD_MODEL_TYPE:
        return result
    if labels:
        result["id2label"] = {str(number): name for number, name in enumerate(labels)}
        result["label2id"] = {name: number for number, name in enumerate(labels)}
    if "problem" in info:
        result["problem_type"] = PROBLEM_TYPES[info["problem"]]
    return result
