"""What a family is: a translation of its published config, and a table of its weights.

A family's file says how *its* people write things down; nothing in it computes. `architectures` has one entry for each
published class (`BertForMaskedLM`, …); the entry names the head that the class puts on the family's network and where
the head's weights stand in a checkpoint.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.families.weight_map import Entry
from regard.transformer import config
from regard.transformer.config import Activation, Head, LanguageModel, TwoHeads, Weights

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

# Keys that any published config may have, and why the network does not need them.
COMMON = {
    **dict.fromkeys(
        ["_name_or_path", "transformers_version", "model_type", "architectures", "finetuning_task", "_commit_hash"],
        "says where the model comes from",
    ),
    **dict.fromkeys(["torch_dtype", "dtype"], "the tensors say their own type"),
    **dict.fromkeys(
        ["bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id", "unk_token_id"],
        "for whoever prepares the tokens",
    ),
    **dict.fromkeys(
        [
            *["forced_bos_token_id", "forced_eos_token_id", "max_length", "min_length", "num_beams", "early_stopping"],
            *["do_sample", "length_penalty", "no_repeat_ngram_size", "repetition_penalty", "temperature", "top_k"],
            *["top_p", "typical_p", "num_beam_groups", "diversity_penalty", "num_return_sequences", "bad_words_ids"],
            *["encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "suppress_tokens"],
            *[
                "begin_suppress_tokens",
                "remove_invalid_values",
                "prefix",
                "task_specific_params",
            ],
        ],
        "for whoever generates",
    ),
    **dict.fromkeys(
        [
            *["output_attentions", "output_hidden_states", "output_past", "output_scores", "return_dict"],
            *["return_dict_in_generate", "use_cache", "torchscript", "use_bfloat16", "is_encoder_decoder"],
        ],
        "says what a call returns, not what is computed",
    ),
    **dict.fromkeys(["label2id", "problem_type", "tokenizer_class"], "for whoever uses the labels"),
    **dict.fromkeys(["gradient_checkpointing", "chunk_size_feed_forward"], "saves memory, changes no number"),
    **dict.fromkeys(["tf_legacy_loss", "cross_attention_hidden_size"], "for other libraries"),
}


@dataclass(frozen=True)
class Maybe:
    """The kind of a key that may be null, and what it is where it is left out."""

    kind: type
    default: Any = None
    least: int = 1
    """The smallest value, where the kind is int."""


# Keys that matter in every family.
ANYWHERE = {"id2label": Maybe(dict), "num_labels": Maybe(int), "pruned_heads": Maybe(dict)}


class ConfigError(ValueError):
    """A published config that cannot be translated: it says which key, what was found and what was expected."""


class Theirs(Mapping[str, Any]):
    """A published config as its family reads it: a key that is left out has the family's default.

    Every key must be known to the family (`keys`), or be listed as one that changes no number; a value must be of the
    kind of its default. So a key that somebody invented, or misspelt, is an error and never a silently wrong network.
    """

    def __init__(self, values: Mapping[str, Any], family: Family) -> None:
        keys = {**ANYWHERE, **family.keys}
        defaults = {key: value.default if isinstance(value, Maybe) else value for key, value in keys.items()}
        self._values = {**defaults, **values}
        self._family = family.name
        known = {*keys, *COMMON, *family.ignored}
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ConfigError(
                    f"config.json: {family.name} has no key {key!r} (value {values[key]!r}), and it might change "
                    f"numbers.{hint} Remove it if you know that it does not matter."
                )
        for key, default in keys.items():
            _check(key, default, self._values[key])
        if self._values["pruned_heads"]:
            raise ConfigError("config.json: `pruned_heads` is not empty: networks with removed heads cannot be read")

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def labels(self) -> int:
        """How many labels a classifier has."""
        if self["id2label"] is not None:
            if not self["id2label"]:
                raise ConfigError("config.json: id2label is {}: expected one name for each label")
            return len(self["id2label"])
        return 2 if self["num_labels"] is None else int(self["num_labels"])

    def activation(self, key: str) -> Activation:
        """The activation that a key names."""
        name = self[key]
        if name not in ACTIVATIONS:
            raise ConfigError(f"config.json: {key} is {name!r}; known are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def require(self, key: str, *values: Any) -> None:
        """Stop unless a key has one of these values: what others mean is not built here."""
        if self[key] not in values:
            wanted = " or ".join(repr(value) for value in values)
            raise ConfigError(f"config.json: {key} is {self[key]!r}; {self._family} is known here only with {wanted}")

    def divide(self, size: str, heads: str) -> int:
        """The size of a head."""
        if not self[heads] or self[size] % self[heads]:
            raise ConfigError(f"config.json: {size} {self[size]} is not a multiple of {heads} {self[heads]}")
        return int(self[size] // self[heads])


def _check(key: str, default: Any, value: Any) -> None:
    """Stop if a value is not of the kind of its default, or if no network has it."""
    kind: type = default.kind if isinstance(default, Maybe) else type(default)
    if value is None and (isinstance(default, Maybe) or key == "pad_token_id"):
        return
    if kind is tuple:
        return  # a number or several: the family looks at it itself
    allowed: Any = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"config.json: {key} must be {kind.__name__}, found {value!r}")
    if kind is int and not _smallest(key, default) <= value < _too_many(key):
        raise ConfigError(f"config.json: {key} is {value}, which no network has")
    if kind is float and not 0 <= value < math.inf:
        raise ConfigError(f"config.json: {key} is {value}, but must be a number from 0 upwards")
    if "drop" in key and not value <= 1:
        raise ConfigError(f"config.json: {key} is {value}, but a rate is from 0 to 1")


def _smallest(key: str, default: Any) -> int:
    """Sizes are at least 1, unless the default itself is smaller; a token may be number 0."""
    if key.endswith("_token_id"):
        return 0
    return min(1, default) if isinstance(default, int) else int(default.least)


def _too_many(key: str) -> int:
    """Sizes that only a broken file has. What passes is compared with the tensors before anything is allocated."""
    return 10**4 if "layer" in key else 10**7 if key == "num_labels" else 2**31


@dataclass(frozen=True, kw_only=True)
class Story:
    """Where a family comes from."""

    title: str
    """What people call it."""
    year: int
    paper: str
    objective: str
    """What its networks were first trained to do."""
    parent: str | None
    """The title of the family that it was made from."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One published class: the family's network with a head on it."""

    head: Callable[[Theirs], Head | None]
    """The head."""
    weights: tuple[Entry, ...] = ()
    """Where the head's weights stand in a checkpoint."""
    base: str = ""
    """What stands before the names of the network's own weights (`@` in the table)."""
    network: Callable[[Theirs, Head | None], config.Network] | None = None
    """The network, where it is another one than the family's usual (an encoder-decoder's decoder alone)."""
    computed: Callable[[Any], dict[str, Tensor]] | None = None
    """Tensors that are no parameters, but that readers of the published layout expect in the file."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Networks that are made alike and published under one name."""

    name: str
    """Its name, which is the `model_type` of its configs."""
    story: Story
    """Where it comes from."""
    keys: Mapping[str, Any]
    """The config keys that matter, and what they are where they are left out."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Further keys that may stand in a config, and why they do not matter."""
    ignored_weights: Mapping[str, str] = field(default_factory=dict)
    """Patterns of tensors that may stand in a checkpoint, and why they do not matter."""
    kinds: tuple[type, ...]
    """What its networks may be: EncoderOnly, DecoderOnly, EncoderDecoder, DualEncoder."""
    network: Callable[[Theirs, Head | None], config.Network]
    """The network of a config, with this head."""
    describe: Callable[[Any], dict[str, Any]]
    """The inverse: the config keys of a network. It may assume that the network is one of this family."""
    weights: Callable[[Any], tuple[Entry, ...]]
    """Where the network's weights, but for its head, stand in a checkpoint."""
    architectures: Mapping[str, Architecture]
    """The published classes, the most usual first among those that share a network."""
    presets: Mapping[str, Mapping[str, Any]]
    """Published sizes: what differs from `keys`."""

    def read(self, values: Mapping[str, Any], architecture: str | None = None) -> tuple[config.Network, str]:
        """The network that a published config describes, and the class it is of."""
        name = architecture or self.architecture_of(values)
        if name not in self.architectures:
            raise ConfigError(
                f"config.json: {self.name} has no architecture {name!r}; known are {', '.join(self.architectures)}"
            )
        theirs, kind = Theirs(values, self), self.architectures[name]
        try:
            return (kind.network or self.network)(theirs, kind.head(theirs)), name
        except (ZeroDivisionError, KeyError, TypeError) as error:
            raise ConfigError(f"config.json: the sizes do not make a network ({error})") from None

    def architecture_of(self, values: Mapping[str, Any]) -> str:
        """The class that a config names; the bare network where it names none."""
        named = values.get("architectures") or [next(iter(self.architectures))]
        if not isinstance(named, list) or not isinstance(named[0], str):
            raise ConfigError(f"config.json: architectures must be a list of names, found {named!r}")
        return named[0]

    def write(self, design: config.Network) -> dict[str, Any] | None:
        """The published config of a network, or None where it is no network of this family."""
        if not isinstance(design, self.kinds):
            return None
        try:
            described = self.describe(design)
        except AttributeError:
            return None  # it lacks a part that every network of this family has
        for name in self.architectures:
            values = {"architectures": [name], "model_type": self.name, **described}
            try:
                if alike(self.read(values)[0], design):
                    return values
            except ConfigError:
                return None
        return None

    def preset(self, name: str, architecture: str | None = None) -> config.Network:
        """The network of a published size."""
        return self.read(self.presets[name], architecture or self.presets[name]["architectures"][0])[0]


def alike(one: config.Network, other: config.Network) -> bool:
    """Whether two configs describe the same network, however it starts.

    A last layer of its own counts as tied here: where both matrices stand in a checkpoint and differ, readers take
    them as they are.
    """
    return _essence(one) == _essence(other)


def _essence(design: config.Network) -> Any:
    if isinstance(design, config.DualEncoder):
        return (_essence(design.text), _essence(design.vision))
    head = design.head
    if isinstance(head, LanguageModel):
        head = replace(head, weights=Weights.TIED)
    if isinstance(head, TwoHeads):
        head = replace(head, words=replace(head.words, weights=Weights.TIED))
    return replace(design, initialization=config.Glorot(), head=head)


def activation_name(activation: Activation) -> str:
    """The published name of an activation."""
    return next(name for name, value in ACTIVATIONS.items() if value is activation)


def labels(design: config.SingleNetwork) -> dict[str, Any]:
    """The config key for the number of labels, where the head has labels."""
    head = design.head.sentence if isinstance(design.head, TwoHeads) else design.head
    count = getattr(head, "labels", None)
    if count is None:
        return {}
    return {
        "id2label": {str(i): f"LABEL_{i}" for i in range(count)},
        "label2id": {f"LABEL_{i}": i for i in range(count)},
    }


def tied(theirs: Theirs) -> Weights:
    """Whether the last layer is the token table."""
    return Weights.TIED if theirs["tie_word_embeddings"] else Weights.OWN


def is_tied(design: config.SingleNetwork) -> bool:
    """The same, asked of a network."""
    head = design.head.words if isinstance(design.head, TwoHeads) else design.head
    return not isinstance(head, LanguageModel) or head.weights is Weights.TIED
