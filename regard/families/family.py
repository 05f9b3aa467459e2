"""`Family`: the translation of a published (Hugging Face) config and the map of the published weight names.

A family's file describes the published layout as data; it computes nothing. `architectures` has one entry for each
published class (`BertForMaskedLM`, …). The entry gives the head that the class adds to the family's network, and the
names of the head's weights in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.families.weight_map import Entry
from regard.transformer import config
from regard.transformer.config import Activation, Head, LanguageModel, TwoHeads, Weights
from regard.transformer.suggestion import did_you_mean

ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "tanh": Activation.TANH,
    "quick_gelu": Activation.QUICK_GELU,
}

# Keys that any published config may have and that do not affect the network, with the reason.
IGNORED_KEYS = {
    **dict.fromkeys(
        ["_name_or_path", "transformers_version", "model_type", "architectures", "finetuning_task", "_commit_hash"],
        "provenance only",
    ),
    **dict.fromkeys(["torch_dtype", "dtype"], "the dtype is read from the tensors"),
    **dict.fromkeys(
        ["bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id", "unk_token_id"],
        "tokenizer setting",
    ),
    **dict.fromkeys(
        [
            *["forced_bos_token_id", "forced_eos_token_id", "max_length", "min_length", "num_beams", "early_stopping"],
            *["do_sample", "length_penalty", "no_repeat_ngram_size", "repetition_penalty", "temperature", "top_k"],
            *["top_p", "typical_p", "num_beam_groups", "diversity_penalty", "num_return_sequences", "bad_words_ids"],
            *["encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "suppress_tokens"],
            *["begin_suppress_tokens", "remove_invalid_values", "prefix", "task_specific_params"],
        ],
        "generation setting",
    ),
    **dict.fromkeys(
        [
            *["output_attentions", "output_hidden_states", "output_past", "output_scores", "return_dict"],
            *["return_dict_in_generate", "use_cache", "torchscript", "use_bfloat16", "is_encoder_decoder"],
        ],
        "output format only",
    ),
    **dict.fromkeys(["label2id", "problem_type", "tokenizer_class"], "label metadata"),
    **dict.fromkeys(["gradient_checkpointing", "chunk_size_feed_forward"], "memory setting, same results"),
    **dict.fromkeys(["tf_legacy_loss", "cross_attention_hidden_size"], "used by other libraries"),
}


@dataclass(frozen=True)
class OptionalKey:
    """The type and the default of a config key that may be null."""

    type: type
    default: Any = None
    minimum: int = 1
    """The smallest value, if the type is int."""


# Keys that every family reads.
COMMON_KEYS = {"id2label": OptionalKey(dict), "num_labels": OptionalKey(int), "pruned_heads": OptionalKey(dict)}


class ConfigError(ValueError):
    """A published config cannot be translated. The message names the key, the value found and what was expected."""


class PublishedConfig(Mapping[str, Any]):
    """A published config, completed with the family's defaults and validated.

    Every key must be one of the family's `keys`, or listed as one that does not affect the network; a value must have
    the type of its default. So an unknown or misspelt key is an error and never a silently wrong network.
    """

    def __init__(self, values: Mapping[str, Any], family: Family) -> None:
        keys = {**COMMON_KEYS, **family.keys}
        defaults = {key: value.default if isinstance(value, OptionalKey) else value for key, value in keys.items()}
        self._values = {**defaults, **values}
        self._family = family.name
        valid_keys = {*keys, *IGNORED_KEYS, *family.ignored_keys}
        for key in values:
            if key not in valid_keys:
                raise ConfigError(
                    f"config.json: unknown key {key!r}{did_you_mean(key, valid_keys)} for {family.name}, with the "
                    f"value {values[key]!r}; it may affect the results. Remove it if it does not matter."
                )
        for key, default in keys.items():
            _check(key, default, self._values[key])
        if self._values["pruned_heads"]:
            raise ConfigError("config.json: `pruned_heads` is not empty: pruned heads are not supported")

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def num_labels(self) -> int:
        """The number of labels of a classification head."""
        if self["id2label"] is not None:
            if not self["id2label"]:
                raise ConfigError("config.json: id2label is {}: expected one name per label")
            return len(self["id2label"])
        return 2 if self["num_labels"] is None else int(self["num_labels"])

    def activation(self, key: str) -> Activation:
        """Return the activation that a key names."""
        name = self[key]
        if name not in ACTIVATIONS:
            raise ConfigError(f"config.json: {key} is {name!r}; supported activations: {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def require(self, key: str, *values: Any) -> None:
        """Raise `ConfigError` unless a key has one of these values: no others are supported."""
        if self[key] not in values:
            expected = " or ".join(repr(value) for value in values)
            raise ConfigError(f"config.json: {key} is {self[key]!r}; {self._family} is supported only with {expected}")

    def head_dim(self, size: str, heads: str) -> int:
        """Return the size of an attention head: the value of the key `size` divided by that of the key `heads`."""
        if not self[heads] or self[size] % self[heads]:
            raise ConfigError(f"config.json: {size} {self[size]} is not a multiple of {heads} {self[heads]}")
        return int(self[size] // self[heads])


def _check(key: str, default: Any, value: Any) -> None:
    """Raise `ConfigError` if a value does not have the type of its default, or is out of range."""
    expected: type = default.type if isinstance(default, OptionalKey) else type(default)
    if value is None and (isinstance(default, OptionalKey) or key == "pad_token_id"):
        return
    if expected is tuple:
        return  # one number or several: the family checks it
    allowed: Any = (int, float) if expected is float else (expected,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(f"config.json: {key} must be {expected.__name__}, found {value!r}")
    if expected is int and not _minimum(key, default) <= value < _upper_bound(key):
        raise ConfigError(f"config.json: {key} is {value}: out of range")
    if expected is float and not 0 <= value < math.inf:
        raise ConfigError(f"config.json: {key} is {value}: expected a finite number >= 0")
    if "drop" in key and not value <= 1:
        raise ConfigError(f"config.json: {key} is {value}: a dropout rate must be between 0 and 1")


def _minimum(key: str, default: Any) -> int:
    """The smallest valid integer: 0 for a token id, otherwise 1, or the default if that is smaller."""
    if key.endswith("_token_id"):
        return 0
    return min(1, default) if isinstance(default, int) else int(default.minimum)


def _upper_bound(key: str) -> int:
    """The first integer that is rejected as absurd. Smaller ones are checked against the tensors before allocation."""
    return 10**4 if "layer" in key else 10**7 if key == "num_labels" else 2**31


@dataclass(frozen=True, kw_only=True)
class FamilyInfo:
    """The publication of a family."""

    title: str
    """Its usual name."""
    year: int
    paper: str
    objective: str
    """The pretraining objective."""
    parent: str | None
    """The title of the family that it is derived from."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One published class: the family's network with a head on it."""

    head: Callable[[PublishedConfig], Head | None]
    """Builds the config of the head."""
    weights: tuple[Entry, ...] = ()
    """The weight map of the head."""
    prefix: str = ""
    """The prefix of the names of the network's weights (`@` in the weight map)."""
    network: Callable[[PublishedConfig, Head | None], config.Network] | None = None
    """Builds the network config of a class with another network (decoder-only, …). Default: the family's `network`."""
    buffers: Callable[[Any], dict[str, Tensor]] | None = None
    """Computes tensors that are not parameters, but that readers of the published layout expect in the file."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Networks with the same architecture that are published under one name."""

    name: str
    """The `model_type` of its configs."""
    info: FamilyInfo
    """Title, year, paper, pretraining objective."""
    keys: Mapping[str, Any]
    """The config keys that define the network, with their defaults."""
    ignored_keys: Mapping[str, str] = field(default_factory=dict)
    """Further keys that a config may have, with the reason why they are ignored."""
    ignored_weights: Mapping[str, str] = field(default_factory=dict)
    """Patterns of tensor names that a checkpoint may have, with the reason why they are ignored."""
    network_types: tuple[type, ...]
    """The types of its network configs: EncoderOnly, DecoderOnly, EncoderDecoder, DualEncoder, TwoStream."""
    network: Callable[[PublishedConfig, Head | None], config.Network]
    """Builds the network config from a published config and a head."""
    describe: Callable[[Any], dict[str, Any]]
    """The inverse of `network`: the config keys of a network. It may assume a network of this family."""
    weights: Callable[[Any], tuple[Entry, ...]]
    """The weight map of the network, without its head."""
    architectures: Mapping[str, Architecture]
    """The published classes; among classes with the same network, the most common first."""
    presets: Mapping[str, Mapping[str, Any]]
    """Published sizes: the keys that differ from the defaults in `keys`."""

    def read_config(self, values: Mapping[str, Any], architecture: str | None = None) -> tuple[config.Network, str]:
        """Translate a published config: return the network config and the name of the published class."""
        name = architecture or self.architecture_of(values)
        if name not in self.architectures:
            raise ConfigError(
                f"config.json: unknown architecture {name!r} for {self.name}; "
                f"supported: {', '.join(self.architectures)}"
            )
        theirs, entry = PublishedConfig(values, self), self.architectures[name]
        try:
            return (entry.network or self.network)(theirs, entry.head(theirs)), name
        except (ZeroDivisionError, KeyError, TypeError) as error:
            raise ConfigError(f"config.json: inconsistent sizes: {error}") from None

    def architecture_of(self, values: Mapping[str, Any]) -> str:
        """Return the class that a config names. Default: the network without a head."""
        names = values.get("architectures") or [next(iter(self.architectures))]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise ConfigError(f"config.json: architectures must be a list of names, found {names!r}")
        return names[0]

    def write_config(self, design: config.Network) -> dict[str, Any] | None:
        """Return the published config of a network, or None if the network does not belong to this family."""
        if not isinstance(design, self.network_types):
            return None
        try:
            published = self.describe(design)
        except AttributeError:
            return None  # a field that every network of this family has is missing
        for name in self.architectures:
            values = {"architectures": [name], "model_type": self.name, **published}
            try:
                if same_architecture(self.read_config(values)[0], design):
                    return values
            except ConfigError:
                return None
        return None

    def preset(self, name: str) -> config.Network:
        """Return the network config of a published size."""
        return self.read_config(self.presets[name], self.presets[name]["architectures"][0])[0]


def same_architecture(left: config.Network, right: config.Network) -> bool:
    """Whether two configs describe the same network, ignoring initialization.

    An untied output projection counts as tied: if a checkpoint holds both matrices and they differ, readers load both.
    """
    return _comparable(left) == _comparable(right)


def _comparable(design: config.Network) -> Any:
    if isinstance(design, config.DualEncoder):
        return (_comparable(design.text), _comparable(design.vision))
    head = design.head
    if isinstance(head, LanguageModel):
        head = replace(head, weights=Weights.TIED)
    if isinstance(head, TwoHeads):
        head = replace(head, words=replace(head.words, weights=Weights.TIED))
    return replace(design, initialization=config.Glorot(), head=head)


def activation_name(activation: Activation) -> str:
    """Return the published name of an activation."""
    return next(name for name, value in ACTIVATIONS.items() if value is activation)


def label_keys(design: config.SingleNetwork) -> dict[str, Any]:
    """Return the config keys that name the labels, or no keys if the head has no labels."""
    head = design.head.sentence if isinstance(design.head, TwoHeads) else design.head
    count = getattr(head, "labels", None)
    if count is None:
        return {}
    return {
        "id2label": {str(i): f"LABEL_{i}" for i in range(count)},
        "label2id": {f"LABEL_{i}": i for i in range(count)},
    }


def output_weights(theirs: PublishedConfig) -> Weights:
    """Whether the output projection is tied to the token embedding, from the published config."""
    return Weights.TIED if theirs["tie_word_embeddings"] else Weights.OWN


def is_tied(design: config.SingleNetwork) -> bool:
    """Whether the output projection is tied to the token embedding, from the network config."""
    head = design.head.words if isinstance(design.head, TwoHeads) else design.head
    return not isinstance(head, LanguageModel) or head.weights is Weights.TIED
