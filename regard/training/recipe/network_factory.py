"""Build the network of a recipe: a family of any size, a preset, or a pretrained network, with the head of the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.load import load as load_folder
from regard.checkpoint.model_folder import ModelFolder
from regard.checkpoint.report import LoadReport
from regard.data.example import Pair
from regard.families import gpt3, transformer
from regard.families.family import Family as Published
from regard.families.registry import FAMILIES, preset
from regard.families.transformer import transformer_2017
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.recipe.objective_section import RegressionConfig
from regard.training.recipe.schema import (
    FamilySection,
    NewTokenizerSection,
    NoTokenizerSection,
    PresetSection,
    PretrainedNetworkSection,
    PretrainedTokenizerSection,
    Recipe,
)
from regard.training.task import AnyTask, describe_network
from regard.transformer import config
from regard.transformer.interface import NetworkInterface
from regard.transformer.network import build, build_on_meta
from regard.transformer.suggestion import did_you_mean

SIZE_KEYS = {
    "model_dim": ("d_model", "hidden_size", "n_embd", "dim", "d_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "inner_dim": ("intermediate_size", "n_inner", "d_ff", "dff", "d_inner", "hidden_dim", "encoder_ffn_dim"),
    "dropout": ("dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate", "resid_pdrop"),
    "max_length": ("max_position_embeddings", "n_positions"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
}
"""The keys of published configs for each size; a family has one of them."""
LINKED_KEYS = {
    "encoder_attention_heads": ("decoder_attention_heads",),
    "encoder_ffn_dim": ("decoder_ffn_dim",),
    "resid_pdrop": ("embd_pdrop", "attn_pdrop"),
}
"""Keys that get the same value as another."""
DECODER_KEYS = {"encoder_layers": "decoder_layers", "num_layers": "num_decoder_layers"}


def num_outputs(recipe: Recipe, num_labels: int) -> int:
    """Return the number of outputs of a classification head for this number of labels; 0 for other heads."""
    return 1 if isinstance(recipe.objective, RegressionConfig) else num_labels if recipe.task.has_labels else 0


@dataclass(frozen=True)
class NetworkRequirements:
    """What tokenizer and data require of the network: vocabulary sizes, padding token, number of labels."""

    vocab_size: int
    target_vocab_size: int
    shared: bool
    """Whether source and target share a vocabulary; two separate ones may have the same size."""
    padding_token: int | None
    num_labels: int
    end_token: int | None = None
    """The token that ends every text."""

    @property
    def separate_target_vocab_size(self) -> int | None:
        """The size of the target vocabulary if it is separate, otherwise None."""
        return None if self.shared else self.target_vocab_size

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer | None, labels: int) -> NetworkRequirements:
        """Read the requirements from a tokenizer (None for images) and the number of labels."""
        if tokenizer is None:
            return cls(0, 0, True, None, labels)
        target = tokenizer.target
        shared = (
            target is tokenizer or target.get_vocab() == tokenizer.get_vocab()
        )  # Marian: two tokenizers, one vocabulary
        ids = tokenizer.special_ids
        end = ids.eos if ids.eos is not None else ids.sep
        return cls(len(tokenizer), len(tokenizer.target), shared, ids.pad, labels, end)


def network_config(recipe: Recipe, requirements: NetworkRequirements) -> config.Network:
    """Return the config of a new network."""
    section = recipe.network
    match section:
        case FamilySection(family="transformer"):
            network: config.Network = _transformer_config(section, requirements)
        case FamilySection(family=name):
            if name not in FAMILIES:
                names = ["transformer", *FAMILIES]
                hint = did_you_mean(name, names)
                raise ValueError(f"network.family: unknown family {name!r}{hint}; available: {', '.join(names)}")
            network = _family_config(FAMILIES[name], section, recipe.task, requirements)
        case PresetSection(preset=name):
            network = _preset_config(name, recipe.task, requirements)
        case PretrainedNetworkSection(load=folder):
            raise ValueError(f"network.load: {folder} comes with its own config")
    check_network(build_on_meta(network), recipe)
    return network


def provisional_network_config(recipe: Recipe) -> config.Network:
    """Return the config before the data is read, with the maximum vocabulary size and a few labels."""
    if isinstance(recipe.network, PretrainedNetworkSection):
        return load_folder(recipe.network.load)[0].config
    labels = num_outputs(recipe, 2)
    match recipe.tokenizer:
        case NewTokenizerSection(size=size, shared=shared):
            requirements = NetworkRequirements(size, size, shared or recipe.task.example is not Pair, 0, labels, 1)
        case NoTokenizerSection():
            requirements = NetworkRequirements.from_tokenizer(None, labels)
        case PretrainedTokenizerSection(load=path):
            requirements = NetworkRequirements.from_tokenizer(load_tokenizer(path), labels)
    return network_config(recipe, requirements)


def build_network(recipe: Recipe, requirements: NetworkRequirements) -> tuple[AnyNetwork, LoadReport | None]:
    """Build a new network, or load one; the report of a loaded network lists its tensors."""
    if not isinstance(recipe.network, PretrainedNetworkSection):
        return build(network_config(recipe, requirements), seed=recipe.seed), None
    folder = Path(recipe.network.load)
    model_type = ModelFolder(folder).config.get("model_type") if folder.is_dir() else None
    if model_type in FAMILIES:
        architecture = _architecture_name(FAMILIES[str(model_type)], recipe.task)
        overrides: dict[str, Any] = {"num_labels": requirements.num_labels} if requirements.num_labels else {}
        network, report = load_folder(
            folder, architecture=architecture, config_overrides=overrides, dtype=torch.float32, seed=recipe.seed
        )
    else:
        network, report = load_folder(folder, dtype=torch.float32)
    check_network(network, recipe)
    _check_sizes(network, folder, requirements)
    return network, report


def _check_sizes(network: NetworkInterface, folder: Path, requirements: NetworkRequirements) -> None:
    """Raise if a loaded network has fewer tokens than the tokenizer, or another number of labels than the data."""
    source, target = network.limits
    for required, side in ((requirements.vocab_size, source or target), (requirements.target_vocab_size, target)):
        if required > side.vocabulary:
            raise ValueError(
                f"the tokenizer has {required:,} tokens, but the network in {folder} only {side.vocabulary:,}: use the "
                "tokenizer of the network"
            )
    labels, required = network.num_labels, requirements.num_labels
    if required and labels != required:
        raise ValueError(f"the data has {required} labels, but the head of the network in {folder} has {labels}")


def check_network(network: NetworkInterface, recipe: Recipe) -> None:
    """Raise if a network does not read and predict what the task needs."""
    task = recipe.task
    if not task.can_train(network):
        raise ValueError(
            f"task {task.name!r} needs {task.describe_networks()} only; found one that {describe_network(network)}: "
            "choose another [network]"
        )


def _transformer_config(section: FamilySection, requirements: NetworkRequirements) -> config.EncoderDecoder:
    if section.config:
        raise ValueError(
            "network.config: family 'transformer' has no config keys; use family 'marian', the same architecture"
        )
    model_dim = section.model_dim or 512
    layers = section.layers or 6
    return transformer_2017(
        vocabulary=requirements.vocab_size,
        target_vocabulary=requirements.separate_target_vocab_size,
        layers=(layers, layers) if isinstance(layers, int) else layers,
        model_dim=model_dim,
        heads=section.heads or max(1, model_dim // 64),
        inner_dim=section.inner_dim,
        dropout=0.1 if section.dropout is None else section.dropout,
        length=section.max_length or 1024,
        padding=requirements.padding_token or 0,
    )


def _family_config(
    family: Published, section: FamilySection, task: AnyTask, requirements: NetworkRequirements
) -> config.Network:
    values = {**_size_values(family, section), **_vocabulary_values(family, requirements)}
    values = {name: _merge(values.get(name), section.config.get(name)) for name in {**values, **section.config}}
    network, _ = family.read_config(values, _architecture_name(family, task))
    if section.dropout and not _config_keys("dropout", family):
        return _with_dropout(network, section.dropout)
    return network


def _merge(required: Any, chosen: Any) -> Any:
    """Join the values of a key; those of the recipe take precedence, also within a sub-config (CLIP)."""
    if isinstance(required, Mapping) and isinstance(chosen, Mapping):
        return {**required, **chosen}
    return required if chosen is None else chosen


def _with_dropout(network: config.Network, dropout: float) -> config.Network:
    """Add dropout to a family that was published without it (Llama), where the 2017 Transformer has it.

    The published config has no key for it, so a saved model has no dropout.
    """
    parts: dict[str, Any] = {}
    for name in ("embedding", "source", "target"):
        if hasattr(network, name):
            parts[name] = replace(getattr(network, name), dropout=dropout)
    for name in ("encoder", "decoder"):
        if hasattr(network, name):
            stack = getattr(network, name)
            parts[name] = replace(stack, blocks=tuple(_block_with_dropout(block, dropout) for block in stack.blocks))
    return replace(network, **parts)


def _block_with_dropout(block: config.Block, dropout: float) -> config.Block:
    return replace(
        block,
        attention=replace(block.attention, output_dropout=dropout),
        cross_attention=block.cross_attention and replace(block.cross_attention, output_dropout=dropout),
        feedforward=replace(block.feedforward, output_dropout=dropout),
    )


def _config_keys(name: str, family: Published) -> list[str]:
    """Return the keys that a family's config uses for a size."""
    return [key for key in SIZE_KEYS[name] if key in family.keys]


def _vocabulary_values(family: Published, requirements: NetworkRequirements) -> dict[str, Any]:
    if "text_config" in family.keys:
        return _text_encoder_values(requirements)
    if "vocab_size" not in family.keys and not requirements.vocab_size:
        return {"num_labels": requirements.num_labels} if requirements.num_labels else {}
    values: dict[str, Any] = {"vocab_size": requirements.vocab_size}
    if not requirements.shared:
        if "decoder_vocab_size" not in family.keys:
            raise ValueError(f"{family.name} supports only a shared vocabulary: set tokenizer.shared = true")
        values |= {"decoder_vocab_size": requirements.target_vocab_size, "share_encoder_decoder_embeddings": False}
    if requirements.padding_token is not None and "pad_token_id" in family.keys:
        values["pad_token_id"] = requirements.padding_token
    return values | ({"num_labels": requirements.num_labels} if requirements.num_labels else {})


def _text_encoder_values(requirements: NetworkRequirements) -> dict[str, Any]:
    """Return what a tokenizer requires of CLIP's text encoder, which pools at the end-of-text token."""
    if requirements.end_token is None:
        raise ValueError(
            "CLIP's text encoder pools at the end-of-sequence token, and this tokenizer has none: use tokenizer.kind = "
            "'bpe'"
        )
    text = {"vocab_size": requirements.vocab_size, "eos_token_id": requirements.end_token}
    return {
        "text_config": text
        | ({} if requirements.padding_token is None else {"pad_token_id": requirements.padding_token})
    }


def _size_values(family: Published, section: FamilySection) -> dict[str, Any]:
    """Return the sizes under the config keys of the family. By default,
    heads = model_dim / 64 and inner_dim = 4 · model_dim."""
    sizes: dict[str, Any] = {name: getattr(section, name) for name in SIZE_KEYS if getattr(section, name) is not None}
    if section.model_dim is not None:
        sizes = {"heads": max(1, section.model_dim // 64), "inner_dim": 4 * section.model_dim, **sizes}
    values: dict[str, Any] = {}
    for name, value in sizes.items():
        keys = _config_keys(name, family)
        if not keys and getattr(section, name) is not None and name != "dropout":
            raise ValueError(f"network.{name}: {family.name} has no such size; its keys are {', '.join(family.keys)}")
        for key in keys:
            values |= _config_values(key, value, family)
    if "d_kv" in family.keys and "model_dim" in sizes:
        values["d_kv"] = section.model_dim // sizes["heads"]
    return values


def _config_values(key: str, value: Any, family: Published) -> dict[str, Any]:
    if isinstance(value, tuple):
        if key not in DECODER_KEYS:
            raise ValueError(f"network.layers is {list(value)}: {family.name} has a single stack: give one number")
        return {key: value[0], DECODER_KEYS[key]: value[1]}
    linked = (*LINKED_KEYS.get(key, ()), *([DECODER_KEYS[key]] if key in DECODER_KEYS else ()))
    return {key: value, **{name: value for name in linked if name in family.keys}}


def _preset_config(name: str, task: AnyTask, requirements: NetworkRequirements) -> config.Network:
    if name in transformer.PRESETS:
        sizes = transformer.PRESETS[name]
        return transformer_2017(
            vocabulary=requirements.vocab_size,
            target_vocabulary=requirements.separate_target_vocab_size,
            model_dim=int(sizes["d_model"]),
            heads=int(sizes["heads"]),
            inner_dim=int(sizes["inner"]),
            dropout=sizes["dropout"],
            padding=requirements.padding_token or 0,
        )
    for family in FAMILIES.values():
        if name in family.presets:
            values: Mapping[str, Any] = {**family.presets[name], **_vocabulary_values(family, requirements)}
            return family.read_config(values, _architecture_name(family, task))[0]
    if name in gpt3.PRESETS:
        raise ValueError(f"network.preset {name!r} has a fixed vocabulary: use family = 'gpt2' with its sizes")
    return preset(name)  # its error lists the presets


def _architecture_name(family: Published, task: AnyTask) -> str:
    for suffix in task.architectures:
        for name in family.architectures:
            if name.endswith(suffix):
                return name
    raise ValueError(
        f"network: {family.name} has no network for task {task.name!r}; it has {', '.join(family.architectures)}"
    )
