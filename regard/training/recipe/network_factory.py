"""The network of a recipe: a family of any size, a preset, or a folder to start from, with the head of the task."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint.files import CONFIG, read_json
from regard.checkpoint.load import NATIVE, AnyNetwork
from regard.checkpoint.load import load as load_folder
from regard.checkpoint.report import Report
from regard.data.example import TASKS, Pair
from regard.families import gpt3, transformer
from regard.families.family import Family as Published
from regard.families.registry import FAMILIES, preset
from regard.families.transformer import transformer_2017
from regard.tokenization.tokenizer import Tokenizer
from regard.tokenization.tokenizer_loader import load as open_tokenizer
from regard.training.recipe.schema import Family, Load, NewTokenizer, OldTokenizer, Preset, Recipe
from regard.transformer import config
from regard.transformer.network import build

SIZES = {
    "model_dim": ("d_model", "hidden_size", "n_embd", "dim", "d_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "inner_dim": ("intermediate_size", "n_inner", "d_ff", "dff", "d_inner", "hidden_dim", "encoder_ffn_dim"),
    "dropout": ("dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate", "resid_pdrop"),
    "length": ("max_position_embeddings", "n_positions"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
}
"""What published configs call the sizes; a family has one of the names."""
TOGETHER = {
    "encoder_attention_heads": ("decoder_attention_heads",),
    "encoder_ffn_dim": ("decoder_ffn_dim",),
    "resid_pdrop": ("embd_pdrop", "attn_pdrop"),
}
"""Names that get the same value."""
DECODER = {"encoder_layers": "decoder_layers", "num_layers": "num_decoder_layers"}

ENDINGS = {
    "translate": ("ForConditionalGeneration", "MTModel"),
    "summarize": ("ForConditionalGeneration", "MTModel"),
    "generate": ("LMHeadModel", "ForCausalLM"),
    "fill": ("ForMaskedLM",),
    "classify": ("ForSequenceClassification",),
    "tag": ("ForTokenClassification",),
    "answer": ("ForQuestionAnswering",),
}
"""How published classes for a task are called."""
SHAPES: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "translate": ((config.EncoderDecoder,), (config.LanguageModel,)),
    "summarize": ((config.EncoderDecoder,), (config.LanguageModel,)),
    "generate": ((config.DecoderOnly,), (config.LanguageModel, config.AdaptiveLanguageModel)),
    "fill": ((config.EncoderOnly,), (config.LanguageModel,)),
    "classify": ((config.EncoderOnly, config.DecoderOnly), (config.Classification,)),
    "tag": ((config.EncoderOnly, config.DecoderOnly), (config.Tagging,)),
    "answer": ((config.EncoderOnly, config.DecoderOnly), (config.Span,)),
}
"""What a task can be trained on: kinds of network, and kinds of head."""


@dataclass(frozen=True)
class Known:
    """What a network must fit: the vocabularies, the padding token, the labels."""

    vocabulary: int
    target_vocabulary: int
    shared: bool
    """Whether the two are one. Two may well be of the same size."""
    padding: int | None
    labels: int

    @property
    def of_target(self) -> int | None:
        """The size of the target's own vocabulary, where it has one."""
        return None if self.shared else self.target_vocabulary

    @classmethod
    def of(cls, tokenizer: Tokenizer, labels: int) -> Known:
        """What is known from a tokenizer."""
        target = tokenizer.target
        shared = target is tokenizer or target.vocabulary() == tokenizer.vocabulary()  # Marian: two ways to one
        return cls(len(tokenizer), len(tokenizer.target), shared, tokenizer.special.padding, labels)


def design_of(recipe: Recipe, known: Known) -> config.Network:
    """The design of a new network."""
    part = recipe.network
    match part:
        case Family(family="transformer"):
            design: config.Network = _transformer(part, known)
        case Family(family=name):
            if name not in FAMILIES:
                names = ["transformer", *FAMILIES]
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]!r}? Known" if near else "known"
                raise ValueError(f"network.family is {name!r}; {hint} are {', '.join(names)}")
            design = _published(FAMILIES[name], part, recipe.task, known)
        case Preset(preset=name):
            design = _preset(name, recipe.task, known)
        case Load(load=folder):
            raise ValueError(f"network.load: {folder} has a design of its own")
    check(design, recipe)
    return design


def supposed(recipe: Recipe) -> config.Network:
    """The design before the data is read: vocabularies as large as they may become, and a few labels."""
    if isinstance(recipe.network, Load):
        return load_folder(recipe.network.load)[0].config
    labels = 2 if recipe.task in ("classify", "tag") else 0
    match recipe.tokenizer:
        case NewTokenizer(size=size, shared=shared):
            known = Known(size, size, shared or TASKS[recipe.task] is not Pair, 0, labels)
        case OldTokenizer(load=place):
            known = Known.of(open_tokenizer(place), labels)
    return design_of(recipe, known)


def network_of(recipe: Recipe, known: Known) -> tuple[AnyNetwork, Report | None]:
    """The network, new or loaded; of a loaded one also what became of its tensors."""
    if not isinstance(recipe.network, Load):
        return build(design_of(recipe, known), seed=recipe.seed), None
    folder = Path(recipe.network.load)
    kind = read_json(folder / CONFIG).get("model_type") if folder.is_dir() else None
    if kind in FAMILIES and kind != NATIVE:
        name = _architecture(FAMILIES[str(kind)], recipe.task)
        change: dict[str, Any] = {"num_labels": known.labels} if known.labels else {}
        network, report = load_folder(folder, architecture=name, change=change, dtype=torch.float32, seed=recipe.seed)
    else:
        network, report = load_folder(folder, dtype=torch.float32)
    check(network.config, recipe)
    _check_sizes(network.config, folder, known)
    return network, report


def _check_sizes(design: config.Network, folder: Path, known: Known) -> None:
    """Stop if a loaded network knows fewer tokens than the tokenizer has, or has not the data's labels."""
    head = None if isinstance(design, config.DualEncoder) else design.head
    read = getattr(design, "source", None) or getattr(design, "embedding", None)
    for size, part in ((known.vocabulary, getattr(read, "tokens", None)), (known.target_vocabulary, head)):
        there = getattr(part, "vocabulary", size)
        if size > there:
            raise ValueError(f"the tokenizer has {size:,} tokens, and {folder} knows {there:,}: load its own tokenizer")
    labels = getattr(head, "labels", 0)
    if known.labels and labels != known.labels:
        raise ValueError(f"the data has {known.labels} labels, and {folder} has {labels}: they must be as many")


def check(design: config.Network, recipe: Recipe) -> None:
    """Stop if a network is not of the kind that a task needs."""
    networks, heads = SHAPES[recipe.task]
    head = None if isinstance(design, config.DualEncoder) else design.head
    if not isinstance(design, networks) or not isinstance(head, heads):
        wanted = " or ".join(kind.__name__ for kind in networks)
        ends = " or ".join(kind.__name__ for kind in heads)
        raise ValueError(
            f"task {recipe.task!r} needs a network of the kind {wanted} with the head {ends}; "
            f"found {type(design).__name__} with {type(head).__name__}: choose another [network]"
        )


def width(design: config.Network) -> int:
    """The size of the vectors, which the paper's schedule looks at."""
    return design.text.model_dim if isinstance(design, config.DualEncoder) else design.model_dim


def longest(design: config.Network) -> int | None:
    """How long a row may be, where positions are learnt, or an encoder has a table of angles; None where none ends."""
    parts = [getattr(design, side, None) for side in ("embedding", "source", "target")]
    lengths = [part.position.length for part in parts if part and isinstance(part.position, config.Learned)]
    turned = getattr(getattr(design, "encoder", None), "position", None)
    lengths += [turned.length] if isinstance(turned, config.Rotary) else []
    return min(lengths, default=None)


def _transformer(part: Family, known: Known) -> config.EncoderDecoder:
    if part.config:
        raise ValueError("network.config: family 'transformer' has none; family 'marian' is the same with its config")
    width = part.model_dim or 512
    layers = part.layers or 6
    return transformer_2017(
        vocabulary=known.vocabulary,
        target_vocabulary=known.of_target,
        layers=(layers, layers) if isinstance(layers, int) else layers,
        model_dim=width,
        heads=part.heads or max(1, width // 64),
        inner_dim=part.inner_dim,
        dropout=0.1 if part.dropout is None else part.dropout,
        length=part.length or 1024,
        padding=known.padding or 0,
    )


def _published(family: Published, part: Family, task: str, known: Known) -> config.Network:
    values = {**_sizes(family, part), **_tokens(family, known), **part.config}
    design, _ = family.read(values, _architecture(family, task))
    if part.dropout and isinstance(design, config.DecoderOnly) and not _keys("dropout", family):
        return _with_dropout(design, part.dropout)
    return design


def _with_dropout(design: config.DecoderOnly, rate: float) -> config.DecoderOnly:
    """Dropout for a family that was published without (Llama): where the first Transformer has it.

    It is for training alone, and the family's config has no key for it, so a saved model has none.
    """
    blocks = tuple(
        replace(
            block,
            attention=replace(block.attention, output_dropout=rate),
            feedforward=replace(block.feedforward, output_dropout=rate),
        )
        for block in design.decoder.blocks
    )
    embedding = replace(design.embedding, dropout=rate)
    return replace(design, embedding=embedding, decoder=replace(design.decoder, blocks=blocks))


def _keys(name: str, family: Published) -> list[str]:
    """What a family's config calls a size."""
    return [key for key in SIZES[name] if key in family.keys]


def _tokens(family: Published, known: Known) -> dict[str, Any]:
    values: dict[str, Any] = {"vocab_size": known.vocabulary}
    if not known.shared:
        if "decoder_vocab_size" not in family.keys:
            raise ValueError(f"{family.name} has one vocabulary for both sides: set tokenizer.shared = true")
        values |= {"decoder_vocab_size": known.target_vocabulary, "share_encoder_decoder_embeddings": False}
    if known.padding is not None and "pad_token_id" in family.keys:
        values["pad_token_id"] = known.padding
    return values | ({"num_labels": known.labels} if known.labels else {})


def _sizes(family: Published, part: Family) -> dict[str, Any]:
    """The sizes in the family's own words. Where only the model's size is given, the others follow from it."""
    given: dict[str, Any] = {name: getattr(part, name) for name in SIZES if getattr(part, name) is not None}
    if part.model_dim is not None:
        given = {"heads": max(1, part.model_dim // 64), "inner_dim": 4 * part.model_dim, **given}
    values: dict[str, Any] = {}
    for name, value in given.items():
        keys = _keys(name, family)
        if not keys and getattr(part, name) is not None and name != "dropout":
            raise ValueError(f"network.{name}: {family.name} has no such size; its keys are {', '.join(family.keys)}")
        for key in keys:
            values |= _value(key, value, family)
    if "d_kv" in family.keys and "model_dim" in given:
        values["d_kv"] = part.model_dim // given["heads"]
    return values


def _value(key: str, value: Any, family: Published) -> dict[str, Any]:
    if isinstance(value, tuple):
        if key not in DECODER:
            raise ValueError(f"network.layers is {list(value)}: {family.name} has one stack, so give one number")
        return {key: value[0], DECODER[key]: value[1]}
    others = (*TOGETHER.get(key, ()), *([DECODER[key]] if key in DECODER else ()))
    return {key: value, **{other: value for other in others if other in family.keys}}


def _preset(name: str, task: str, known: Known) -> config.Network:
    if name in transformer.PRESETS:
        size = transformer.PRESETS[name]
        return transformer_2017(
            vocabulary=known.vocabulary,
            target_vocabulary=known.of_target,
            model_dim=int(size["d_model"]),
            heads=int(size["heads"]),
            inner_dim=int(size["inner"]),
            dropout=size["dropout"],
            padding=known.padding or 0,
        )
    for family in FAMILIES.values():
        if name in family.presets:
            values: Mapping[str, Any] = {**family.presets[name], **_tokens(family, known)}
            return family.read(values, _architecture(family, task))[0]
    if name in gpt3.SIZES:
        raise ValueError(f"network.preset {name!r} has a vocabulary of its own: use family = 'gpt2' with its sizes")
    return preset(name)  # which says what there is


def _architecture(family: Published, task: str) -> str:
    for ending in ENDINGS[task]:
        for name in family.architectures:
            if name.endswith(ending):
                return name
    raise ValueError(
        f"network: {family.name} has no network for task {task!r}; it has {', '.join(family.architectures)}"
    )
