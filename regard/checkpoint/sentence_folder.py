"""The files of a sentence encoder beside its network, in the layout of sentence-transformers.

    modules.json                        the steps, in order: network, pooling, dense layers, normalisation
    sentence_bert_config.json           the maximum length
    1_Pooling/config.json               how hidden states are pooled
    2_Dense/config.json, model.safetensors
    config_sentence_transformers.json   prompts

Releases from 5.4 on name the classes and keys differently; both are read. The older names are written: every release
from 2.0 to 6.2 reads them. `docs/embeddings.md` describes what is supported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import save as to_safetensors

from regard.checkpoint.model_folder import CheckpointError, ModelFolder
from regard.checkpoint.tensor_files import open_tensors
from regard.files import format_json, read_text
from regard.transformer.config import Activation, Pooling
from regard.transformer.text_embedder import DenseLayer, TextEmbedder, TextEmbedding, UnitLength

MODULES_FILE, PROMPTS_FILE, LENGTH_FILE = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
LENGTH_FILES = (
    LENGTH_FILE,
    *(f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
    "sentence_xlnet_config.json",
)
"""Files with the maximum length; old releases named them after the family."""
POOLING_MODES = {
    "cls": ("pooling_mode_cls_token", Pooling.FIRST),
    "max": ("pooling_mode_max_tokens", Pooling.MAX),
    "mean": ("pooling_mode_mean_tokens", Pooling.MEAN),
    "mean_sqrt_len_tokens": ("pooling_mode_mean_sqrt_len_tokens", Pooling.MEAN_SQRT),
    "weightedmean": ("pooling_mode_weightedmean_tokens", Pooling.WEIGHTED_MEAN),
    "lasttoken": ("pooling_mode_lasttoken", Pooling.LAST),
}
"""The name of each pooling since 5.4 and the key before, in the order in which several are concatenated."""
ACTIVATION_CLASSES: dict[str, Activation | None] = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": Activation.TANH,
    "torch.nn.modules.activation.ReLU": Activation.RELU,
    "torch.nn.modules.activation.GELU": Activation.GELU,
    "torch.nn.modules.activation.SiLU": Activation.SILU,
}
VERSION = {"sentence_transformers": "2.7.0", "transformers": "4.40.0", "pytorch": "2.2.0"}
"""The release whose layout is written."""
PACKAGE = "sentence_transformers.models"


@dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
    """What a sentence encoder has besides its network and tokenizer."""

    embedder: TextEmbedder
    """Pooling, dense layers and normalisation."""
    max_length: int | None = None
    """Maximum number of tokens of a text, special tokens included; None for that of the network."""
    lowercase: bool = False
    """Whether texts are converted to lower case before they are tokenized."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts that are put before an input, by name: `query`, `passage`."""
    default_prompt: str | None = None
    """The name of the prompt that is used if none is named."""


def read_sentence_encoder(folder: str | Path) -> SentenceEncoder | None:
    """Read the files of a sentence encoder; None if the folder has no modules.json."""
    folder = Path(folder)
    if not (folder / MODULES_FILE).is_file():
        return None
    poolings: tuple[Pooling, ...] = ()
    include_prompt, weights = True, list[dict[str, torch.Tensor]]()
    layers: list[DenseLayer | UnitLength] = []
    for kind, path in _read_modules(folder):
        match kind:
            case "Transformer":
                _check_network_path(folder, path)
            case "Pooling" if not poolings:
                poolings, include_prompt = _read_pooling(folder / path / "config.json")
            case "Dense":
                layer, tensors = _read_dense(folder / path)
                layers.append(layer)
                weights.append(tensors)
            case "Normalize":
                layers.append(UnitLength())
            case "Dropout":  # nothing at inference
                pass
            case _:
                raise CheckpointError(
                    f"{folder / MODULES_FILE}: the module {kind!r} at {path!r} is not supported here; expected "
                    "Transformer, then Pooling, Dense, Normalize or Dropout"
                )
    if not poolings:
        raise CheckpointError(f"{folder / MODULES_FILE}: the module Pooling is missing: vectors of texts need it")
    embedder = _make_embedder(
        folder, TextEmbedding(poolings=poolings, layers=tuple(layers), include_prompt=include_prompt), weights
    )
    return SentenceEncoder(embedder=embedder, **_read_lengths(folder), **_read_prompts(folder))


def sentence_encoder_files(encoder: SentenceEncoder, model_dim: int) -> dict[str, bytes]:
    """Return the files of a sentence encoder by name: companions of its network (`Companions.files`)."""
    design, files = encoder.embedder.design, dict[str, bytes]()
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{PACKAGE}.Transformer"}]

    def add(kind: str, values: Mapping[str, Any]) -> str:
        path = f"{len(modules)}_{kind}"
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": path, "type": f"{PACKAGE}.{kind}"})
        files[f"{path}/config.json"] = format_json(values).encode()
        return path

    flags = {key: pooling in design.poolings for key, pooling in POOLING_MODES.values()}
    add("Pooling", {"word_embedding_dimension": model_dim, **flags, "include_prompt": design.include_prompt})
    dense = iter(encoder.embedder.dense)
    for layer in design.layers:
        if isinstance(layer, UnitLength):
            add("Normalize", {})
            continue
        path = add("Dense", _dense_config(layer))
        tensors = {f"linear.{name}": value.detach().contiguous() for name, value in next(dense).named_parameters()}
        files[f"{path}/model.safetensors"] = to_safetensors(tensors, metadata={"format": "pt"})
    prompts = {"prompts": dict(encoder.prompts), "default_prompt_name": encoder.default_prompt}
    files[PROMPTS_FILE] = format_json({"__version__": VERSION, **prompts, "similarity_fn_name": "cosine"}).encode()
    lengths = {"max_seq_length": encoder.max_length, "do_lower_case": encoder.lowercase}
    files[LENGTH_FILE] = format_json(lengths).encode()
    files[MODULES_FILE] = (json.dumps(modules, indent=2) + "\n").encode()
    return files


def _read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return the class and the path of each module, in their order."""
    path = folder / MODULES_FILE
    try:
        values = json.loads(read_text(path, CheckpointError))
        modules = sorted(values, key=lambda module: module["idx"])
        found = [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in modules]
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{path}: expected a list of modules with idx, path and type ({type(error).__name__}: {error})"
        ) from None
    for _, name in found:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise CheckpointError(f"{path}: the path {name!r} leaves the folder")
    if not found or found[0][0] != "Transformer":
        kind = found[0][0] if found else "nothing"
        raise CheckpointError(f"{path}: the first module is {kind}; expected Transformer")
    return found


def _check_network_path(folder: Path, path: str) -> None:
    if path:
        raise CheckpointError(
            f"{folder / MODULES_FILE}: the network is in the subfolder {path!r}, as the first releases wrote it: move "
            f'its files to {folder} and set the path to ""'
        )


def _read_pooling(path: Path) -> tuple[tuple[Pooling, ...], bool]:
    values = ModelFolder(path.parent).read_if_exists(path.name) if path.is_file() else None
    if values is None:
        raise CheckpointError(f"{path} is missing: it says how hidden states are pooled")
    if "pooling_mode" in values:
        names = values["pooling_mode"]
        names = [names] if isinstance(names, str) else names
    else:
        names = [name for name, (key, _) in POOLING_MODES.items() if values.get(key)] or ["mean"]
    unknown = [name for name in names if name not in POOLING_MODES]
    if unknown or not names:
        raise CheckpointError(f"{path}: pooling_mode is {names!r}; expected some of {', '.join(POOLING_MODES)}")
    return tuple(POOLING_MODES[name][1] for name in names), bool(values.get("include_prompt", True))


def _read_dense(folder: Path) -> tuple[DenseLayer, dict[str, torch.Tensor]]:
    path = folder / "config.json"
    values = ModelFolder(folder).read_if_exists("config.json")
    name = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in ACTIVATION_CLASSES or values.get("use_residual"):
        raise CheckpointError(
            f"{path}: a dense layer with activation {name!r} and use_residual {values.get('use_residual', False)} is "
            f"not supported; expected no residual and one of {', '.join(ACTIVATION_CLASSES)}"
        )
    with open_tensors(folder) as tensors:
        weights = {name.removeprefix("linear."): tensor.read() for name, tensor in tensors.items()}
    try:
        shape = (int(values["out_features"]), int(values["in_features"]))
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path}: expected in_features and out_features, two numbers") from None
    has_bias = bool(values.get("bias", True))
    expected = {"weight": shape, **({"bias": shape[:1]} if has_bias else {})}
    found = {key: tuple(value.shape) for key, value in weights.items()}
    if found != expected:
        raise CheckpointError(f"{folder}: the dense layer has the tensors {found}, config.json says {expected}")
    layer = DenseLayer(input_dim=shape[1], output_dim=shape[0], bias=has_bias, activation=ACTIVATION_CLASSES[name])
    return layer, weights


def _make_embedder(folder: Path, design: TextEmbedding, weights: list[dict[str, torch.Tensor]]) -> TextEmbedder:
    sizes = [layer for layer in design.layers if isinstance(layer, DenseLayer)]
    for layer, following in pairwise(sizes):
        if layer.output_dim != following.input_dim:
            raise CheckpointError(
                f"{folder}: a dense layer gives {layer.output_dim} numbers, and the next reads {following.input_dim}"
            )
    embedder = TextEmbedder(design)
    for linear, tensors in zip(embedder.dense, weights, strict=True):
        linear.load_state_dict(tensors)
    return embedder.eval().requires_grad_(False)


def _read_lengths(folder: Path) -> dict[str, Any]:
    files = ModelFolder(folder)
    name = next((name for name in LENGTH_FILES if (folder / name).is_file()), LENGTH_FILE)
    values = files.read_if_exists(name)
    length = values.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise CheckpointError(f"{folder / name}: max_seq_length is {length!r}; expected a number of tokens")
    return {"max_length": length, "lowercase": bool(values.get("do_lower_case", False))}


def _read_prompts(folder: Path) -> dict[str, Any]:
    values = ModelFolder(folder).read_if_exists(PROMPTS_FILE)
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise CheckpointError(f"{folder / PROMPTS_FILE}: prompts is {prompts!r}; expected texts by name")
    if default is not None and default not in prompts:
        raise CheckpointError(
            f"{folder / PROMPTS_FILE}: default_prompt_name is {default!r}; the prompts are "
            f"{', '.join(prompts) or 'none'}"
        )
    return {"prompts": prompts, "default_prompt": default}


def _dense_config(layer: DenseLayer) -> dict[str, Any]:
    name = next(name for name, activation in ACTIVATION_CLASSES.items() if activation is layer.activation)
    return {
        "in_features": layer.input_dim,
        "out_features": layer.output_dim,
        "bias": layer.bias,
        "activation_function": name,
    }
