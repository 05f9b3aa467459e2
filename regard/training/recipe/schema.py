"""A recipe: everything that a run depends on, in one TOML file, checked before anything runs.

task = "translate"

[data]
train = ["train.en", "train.de"]        # files are looked for beside the recipe

[tokenizer]
kind = "bpe"

[network]
family = "transformer"

[training]
steps = 8000
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from regard.training.recipe import toml
from regard.training.recipe.base import Count, Flag, Part, Whole
from regard.training.recipe.errors import Found, explain
from regard.training.recipe.objective_section import KINDS, AnyOptions, Options
from regard.training.recipe.training_section import Best, Training

Files = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class RecipeError(ValueError):
    """A recipe that cannot be followed: which file, which line, which key, what was found and what was expected."""

    exit_code = 2
    """The call was wrong."""


class Data(Part):
    """The files, and how they are read."""

    train: Annotated[Files, Field(min_length=1)]
    """What is learnt from."""
    valid: Files = ()
    """What the network is measured on while it learns."""
    test: Files = ()
    """Not looked at by training."""
    columns: dict[str, str | int] = Field(default_factory=dict)
    """Of tables and JSON Lines: the column or key of each field, `{ text = "sentence", label = 3 }`."""
    separator: str | None = None
    """Of tables: what stands between cells. Left out: a tab for .tsv, a comma for .csv."""
    quoting: Literal["csv", "none"] | None = None
    """Of tables: whether cells are quoted. Left out: where commas separate."""
    header: Literal["guess", "first line", "none"] = "guess"
    """Of tables: whether the first line names the columns."""
    join: str | None = None
    """Of JSON Lines: what is put between the texts where a list of texts stands for one."""
    unit: Literal["line", "paragraph", "file"] = "line"
    """Of plain text: what one document is."""
    length: Annotated[Whole, Field(ge=2)] | None = None
    """The longest row in tokens. Left out: what the network or the batch has room for."""
    long: Literal["cut", "refuse", "window"] | None = None
    """What becomes of longer ones; it is always said. Left out: windows for questions and tags, a cut for others."""
    stride: Count | None = None
    """How far one window begins after the other. Left out: half the length."""


class NewTokenizer(Part):
    """A vocabulary learnt from the training data."""

    kind: Literal["bpe", "wordpiece", "unigram", "words", "characters"]
    """`bpe` is byte-level: nothing is unknown to it. `wordpiece` is BERT's, `unigram` T5's."""
    size: Count = 8000
    """How many tokens, at most."""
    lower: Flag = False
    """Of `wordpiece`: lower-case the text first."""
    shared: Flag = True
    """Of translation: one vocabulary for source and target."""


class OldTokenizer(Part):
    """A tokenizer that is there already."""

    load: str
    """Its folder or file."""


def _which(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else vars(value)
    return next((f"<{key}>" for key in ("load", "preset", "family", "kind") if key in keys), None)


Tokenizer = Annotated[
    Annotated[NewTokenizer, Tag("<kind>")] | Annotated[OldTokenizer, Tag("<load>")], Discriminator(_which)
]


class Family(Part):
    """A new network of a family, of any size; what is left out is as the family was published."""

    family: str
    """transformer (2017), bert, gpt2, llama, bart, t5, …"""
    layers: Count | tuple[Count, Count] | None = None
    """How many; for an encoder and a decoder, both numbers."""
    model_dim: Count | None = None
    heads: Count | None = None
    inner_dim: Count | None = None
    """The size inside the feed-forward layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    length: Count | None = None
    """The longest row that the network is made for."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Anything else, in the family's own words: `{ num_key_value_heads = 2 }`."""


class Preset(Part):
    """A new network of a published size."""

    preset: str
    """bert-base, gpt2, t5-small, … (`regard show` lists them)"""


class Load(Part):
    """A network that is trained already, to be trained further."""

    load: str
    """Its folder."""


Network = Annotated[
    Annotated[Family, Tag("<family>")] | Annotated[Preset, Tag("<preset>")] | Annotated[Load, Tag("<load>")],
    Discriminator(_which),
]


class Recipe(Part):
    """Everything that a run depends on."""

    task: Literal["translate", "summarize", "generate", "fill", "classify", "tag", "answer"]
    """What the network is for."""
    seed: Whole = 1
    """Two runs of one recipe with one seed are the same run."""
    folder: str | None = None
    """The folder of the run. Left out: `runs/` and the name of the recipe."""
    data: Data
    tokenizer: Tokenizer
    network: Network
    objective: Options
    training: Training

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, values: Any) -> Any:
        """What the task decides: the objective, and that a network that is loaded brings its tokenizer."""
        if not isinstance(values, dict):
            return values
        given = dict(values)
        if given.get("task") in KINDS:
            objective = given.get("objective", {})
            if isinstance(objective, dict):
                given["objective"] = {"kind": KINDS[given["task"]][0], **objective}
        network = given.get("network")
        if "tokenizer" not in given and isinstance(network, dict) and "load" in network:
            given["tokenizer"] = {"load": network["load"]}
        return given

    @model_validator(mode="after")
    def _fitting(self) -> Recipe:
        if self.task not in self.objective.tasks:
            known = " or ".join(map(repr, KINDS[self.task]))
            raise ValueError(f"objective.kind is {self.objective.kind!r}: for task {self.task!r} it is {known}")
        kind = getattr(self.tokenizer, "kind", "bpe")  # what a loaded one has merged is seen when it is there
        if getattr(self.objective, "splitting", 0) and kind != "bpe":
            raise ValueError(
                f"objective.splitting takes apart what a vocabulary has merged, and tokenizer.kind is {kind!r}, which "
                "merges nothing: use kind = 'bpe', or leave splitting out"
            )
        plan = self.training
        if not self.data.valid and (plan.patience or isinstance(plan.average, Best)):
            raise ValueError("training.patience and the mean of the best states need data.valid to know the best by")
        return self


def read(path: str | Path, overrides: Mapping[str, Any] | Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with some values changed: `["training.steps=2000"]`, or `{"training.steps": 2000}`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise RecipeError(f"there is no recipe {path}. `regard recipes` lists ready ones") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is no text in UTF-8 ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: this is no TOML: {error}") from None
    said = _parsed(overrides)
    return check(_changed(values, said), path, text, said)


def check(values: Mapping[str, Any], path: Path, text: str = "", overridden: Collection[str] = ()) -> Recipe:
    """A recipe from what a file holds; its files become absolute, seen from where the recipe lies."""
    try:
        recipe = Recipe.model_validate(dict(values))
    except ValidationError as error:
        raise RecipeError(explain(error, Recipe, Found(values, path, text, overridden))) from None
    return _located(recipe, path.parent.resolve())


def written(recipe: Recipe) -> str:
    """The recipe as TOML, with everything that was left out filled in."""
    return toml.write(recipe.model_dump(exclude_none=True))


def _parsed(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    if isinstance(overrides, Mapping):
        return dict(overrides)
    found = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise RecipeError(f"{word!r}: expected key=value, as in training.steps=2000")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()  # a word without quotation marks
    return found


def _changed(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values with some of them replaced; those given are not touched."""
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        table = result
        for name in path:
            inner = table.get(name, {})
            if not isinstance(inner, dict):
                raise RecipeError(f"{dotted}: {name} is {inner!r} and has no keys of its own")
            table[name] = dict(inner)
            table = table[name]
        table[last] = value
    return result


def _located(recipe: Recipe, beside: Path) -> Recipe:
    """The same recipe with absolute paths: it means the same wherever it is copied to."""

    def at(name: str) -> str:
        return str(beside / Path(name).expanduser())

    def all_at(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(at, names))

    data = recipe.data
    files = {"train": all_at(data.train), "valid": all_at(data.valid), "test": all_at(data.test)}
    change: dict[str, Any] = {"data": data.model_copy(update=files)}
    for name in ("tokenizer", "network"):
        part = getattr(recipe, name)
        if isinstance(part, OldTokenizer | Load):
            change[name] = part.model_copy(update={"load": at(part.load)})
    objective: AnyOptions = recipe.objective
    teacher = getattr(objective, "teacher", None)
    if teacher is not None:
        there = teacher.model_copy(update={"load": at(teacher.load)})
        change["objective"] = objective.model_copy(update={"teacher": there})
    return recipe.model_copy(update=change)
