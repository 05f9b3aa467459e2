"""The schema of a recipe: everything that a run depends on, in one TOML file, validated before anything runs.

task = "translate"

[data]
train = ["train.en", "train.de"]        # paths are relative to the recipe

[tokenizer]
kind = "bpe"

[network]
family = "transformer"

[training]
steps = 8000
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    ValidationError,
    model_validator,
)

from regard.data.record_batch import MAKERS
from regard.files import read_bytes
from regard.progress import write_note
from regard.training.recipe import toml
from regard.training.recipe.base import Integer, PositiveInt, Section, StrictBool
from regard.training.recipe.errors import RecipeSource, format_errors
from regard.training.recipe.legacy_keys import describe_renamed, upgrade, upgrade_overrides
from regard.training.recipe.objective_section import AnyObjectiveConfig, ObjectiveConfig
from regard.training.recipe.training_section import BestCheckpoints, TrainingSection
from regard.training.task import AnyTask
from regard.transformer.suggestion import did_you_mean

Files = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


MAX_VOCABULARY, MAX_LAYERS, MAX_SIZE = 10**7, 10**4, 10**7
"""Far above all networks that exist, and low enough that products of sizes are computed exactly."""
LayerCount = Annotated[PositiveInt, Field(le=MAX_LAYERS)]
NetworkSize = Annotated[PositiveInt, Field(le=MAX_SIZE)]


class RecipeError(ValueError):
    """An invalid recipe. The message names the file, line and key, what was found and what was expected."""

    exit_code = 2
    """Exit code of the command line for invalid input."""


class DataSection(Section):
    """The data files, and how to read them."""

    train: Annotated[Files, Field(min_length=1)]
    """Training files."""
    valid: Files = ()
    """Validation files, evaluated during training."""
    test: Files = ()
    """Test files. Training does not read them."""
    columns: dict[str, str | int] = Field(default_factory=dict)
    """Tables and JSON Lines: the column or key of each field, `{ text = "sentence", label = 3 }`."""
    separator: str | None = None
    """Tables: the cell separator. Default: a tab for .tsv, a comma for .csv."""
    quoting: Literal["csv", "none"] | None = None
    """Tables: whether cells are quoted. Default: csv with a comma as separator, none otherwise."""
    header: Literal["guess", "first line", "none"] = "guess"
    """Tables: whether the first line names the columns."""
    cells: Literal["same", "at least", "rest"] | None = None
    """Tables: how many cells a row has: as many as the others, or at least as many as the columns need. With `rest`,
    the last column reaches to the end of the line. Default: rest for a space and columns by number, else same."""
    scheme: Literal["BIO", "IOB1", "BIOES", "BILOU", "lenient", "plain"] | None = None
    """CoNLL columns: how tags mark entities. With `lenient`, I- may start one; with `plain`, tags mark none.
    Default: detected from all tags."""
    join: str | None = None
    """JSON Lines: separator that joins a list of strings into one text."""
    unit: Literal["line", "paragraph", "file"] = "line"
    """Plain text: the unit that is one document."""
    max_length: Annotated[Integer, Field(ge=2)] | None = None
    """Maximum sequence length in tokens. Default: the limit of the network or a batch; 512 for windows and chunks."""
    too_long: Literal["truncate", "error", "window"] | None = None
    """Longer sequences are truncated (counted and reported), rejected with an error, or split into windows.

    Default: windows for fill, tag and answer, truncation otherwise."""
    stride: PositiveInt | None = None
    """Distance between the starts of two windows (BERT's doc_stride). Default: half of max_length;
    for fill max_length, so windows do not overlap."""


class NewTokenizerSection(Section):
    """A new tokenizer, trained on the training data."""

    kind: Literal["bpe", "wordpiece", "unigram", "words", "characters"]
    """`bpe` is byte-level, so it has no unknown tokens. `wordpiece` is BERT's algorithm, `unigram` T5's."""
    size: Annotated[PositiveInt, Field(le=MAX_VOCABULARY)] = 8000
    """Maximum vocabulary size."""
    lower: StrictBool = False
    """Only `wordpiece`: lowercase the text first."""
    shared: StrictBool = True
    """Only pairs of texts: one vocabulary for source and target."""


class PretrainedTokenizerSection(Section):
    """An existing tokenizer."""

    load: str
    """Its directory or file."""


class NoTokenizerSection(Section):
    """No tokenizer: for networks that read images only."""

    kind: Literal["none"] = "none"


def _variant_tag(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else vars(value)
    if keys.get("kind") == "none":
        return "<none>"
    return next((f"<{key}>" for key in ("load", "preset", "family", "kind") if key in keys), None)


TokenizerSection = Annotated[
    Annotated[NewTokenizerSection, Tag("<kind>")]
    | Annotated[PretrainedTokenizerSection, Tag("<load>")]
    | Annotated[NoTokenizerSection, Tag("<none>")],
    Discriminator(_variant_tag),
]


class FamilySection(Section):
    """A new network of a family, of any size. Defaults are those of the published config."""

    family: str
    """transformer (2017), bert, gpt2, llama, bart, t5, …"""
    layers: LayerCount | tuple[LayerCount, LayerCount] | None = None
    """Number of layers; a pair for encoder and decoder."""
    model_dim: NetworkSize | None = None
    """Dimension of embeddings and hidden states."""
    heads: NetworkSize | None = None
    """Number of attention heads."""
    inner_dim: NetworkSize | None = None
    """Inner dimension of the feed-forward layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout probability, of all kinds of dropout that the family has."""
    max_length: NetworkSize | None = None
    """Maximum sequence length: the size of the position table."""
    embeddings: str | None = None
    """File of word vectors that the embeddings of whole-word tokens start with (see docs/vectors.md)."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Other keys of the family's published config: `{ num_key_value_heads = 2 }`."""


class PresetSection(Section):
    """A new network of a published size."""

    preset: str
    """bert-base, gpt2, t5-small, … (`regard show` lists them)"""
    embeddings: str | None = None
    """File of word vectors that the embeddings of whole-word tokens start with (see docs/vectors.md)."""


class PretrainedNetworkSection(Section):
    """A trained network, to continue training or to fine-tune."""

    load: str
    """Its directory."""


NetworkSection = Annotated[
    Annotated[FamilySection, Tag("<family>")]
    | Annotated[PresetSection, Tag("<preset>")]
    | Annotated[PretrainedNetworkSection, Tag("<load>")],
    Discriminator(_variant_tag),
]


def _find_task(value: Any, info: Any) -> AnyTask:
    """Return the declaration of a task. The tasks that a recipe may name are passed to `load_recipe`."""
    tasks: Mapping[str, AnyTask] = info.context or {}
    return _find_in({name: task for name, task in tasks.items() if task.objectives}, value)


def _find_data_task(value: Any, info: Any) -> AnyTask:
    """Return the declaration of a task whose data can be read."""
    tasks: Mapping[str, AnyTask] = info.context or {}
    return _find_in({name: task for name, task in tasks.items() if task.example in MAKERS}, value)


def _find_in(tasks: Mapping[str, AnyTask], value: Any) -> AnyTask:
    if not isinstance(value, str) or value not in tasks:
        names = ", ".join(map(repr, tasks))
        raise ValueError(f"expected {names}, found {value!r}{did_you_mean(str(value), tasks)}")
    return tasks[value]


if TYPE_CHECKING:
    RecipeTask = AnyTask
    DataTask = AnyTask
else:  # pydantic would look into the declaration
    RecipeTask = Annotated[Any, PlainValidator(_find_task), PlainSerializer(lambda task: task.name)]
    DataTask = Annotated[Any, PlainValidator(_find_data_task), PlainSerializer(lambda task: task.name)]


class DataRecipe(Section):
    """A recipe for the doctor: all that it holds is validated, but only the task and the data are required."""

    task: DataTask
    """What the trained model does."""
    seed: Integer = 1
    """Seed of all random numbers. Two runs with the same recipe and seed are bit-identical."""
    output: str | None = None
    """Run directory. Default: `runs/` and the name of the recipe."""
    data: DataSection
    tokenizer: TokenizerSection | None = None
    network: NetworkSection | None = None
    objective: ObjectiveConfig | None = None
    training: TrainingSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any, info: Any) -> Any:
        """Fill in the objective of the task, and the tokenizer of a loaded network."""
        if not isinstance(values, dict):
            return values
        result = dict(values)
        task = (info.context or {}).get(result.get("task"))
        if task is not None and task.objectives:
            objective = result.get("objective", {})
            if isinstance(objective, dict):
                result["objective"] = {"kind": task.objectives[0], **objective}
        network, objective = result.get("network"), result.get("objective")
        if "tokenizer" not in result and isinstance(objective, dict) and objective.get("kind") == "classify_images":
            result["tokenizer"] = {"kind": "none"}
        if "tokenizer" not in result and isinstance(network, dict) and "load" in network:
            result["tokenizer"] = {"load": network["load"]}
        return result


class Recipe(DataRecipe):
    """A complete recipe."""

    task: RecipeTask
    """What the trained model does."""
    tokenizer: TokenizerSection
    network: NetworkSection
    objective: ObjectiveConfig
    training: TrainingSection

    @model_validator(mode="after")
    def _check_consistency(self) -> Recipe:
        if self.objective.kind not in self.task.objectives:
            allowed = " or ".join(map(repr, self.task.objectives))
            raise ValueError(
                f"objective.kind = {self.objective.kind!r} does not fit task {self.task.name!r}; use {allowed}"
            )
        kind = getattr(self.tokenizer, "kind", "bpe")  # a loaded tokenizer is checked after loading
        if getattr(self.objective, "bpe_dropout", 0) and kind != "bpe":
            raise ValueError(
                f"objective.bpe_dropout undoes BPE merges, and tokenizer.kind = {kind!r} has none: use kind = 'bpe', "
                "or remove bpe_dropout"
            )
        averages_best = isinstance(self.training.average_checkpoints, BestCheckpoints)
        if not self.data.valid and (self.training.patience or averages_best):
            raise ValueError("training.patience and average_checkpoints = 'best' need validation data: set data.valid")
        return self


def load_recipe(
    path: str | Path, overrides: Mapping[str, Any] | Sequence[str] = (), *, tasks: Mapping[str, AnyTask]
) -> Recipe:
    """Read a recipe file and apply overrides: `["training.steps=2000"]`, or `{"training.steps": 2000}`.

    `tasks` are the tasks that a recipe may name: `regard.tasks.registry.TASKS`.
    """
    return _load(Recipe, Path(path), overrides, tasks)


def load_data_recipe(
    path: str | Path, overrides: Mapping[str, Any] | Sequence[str] = (), *, tasks: Mapping[str, AnyTask]
) -> DataRecipe:
    """Read a recipe file of which only the task and the data need to be there."""
    return _load(DataRecipe, Path(path), overrides, tasks)


AnyRecipe = TypeVar("AnyRecipe", bound=DataRecipe)


def _load(
    schema: type[AnyRecipe], path: Path, overrides: Mapping[str, Any] | Sequence[str], tasks: Mapping[str, AnyTask]
) -> AnyRecipe:
    try:
        text = read_bytes(path).decode("utf-8")
        values = toml.parse(text)
    except FileNotFoundError:
        raise RecipeError(f"recipe not found: {path}. `regard recipes` lists the presets") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from None
    changes, renamed_overrides = upgrade_overrides(parse_overrides(overrides))
    values, renamed = upgrade(values)
    for origin, names in ((path, renamed), ("command line", renamed_overrides)):
        if names:
            write_note(f"{origin}: renamed: {describe_renamed(names)}")
    return _parse(schema, _apply_overrides(values, changes), RecipeSource(values, path, text, changes, renamed), tasks)


def parse_recipe(values: Mapping[str, Any], path: Path, text: str = "", *, tasks: Mapping[str, AnyTask]) -> Recipe:
    """Validate the values of a recipe file, and resolve its paths relative to the directory of the file."""
    return _parse(Recipe, values, RecipeSource(values, path, text, ()), tasks)


def _parse(
    schema: type[AnyRecipe], values: Mapping[str, Any], source: RecipeSource, tasks: Mapping[str, AnyTask]
) -> AnyRecipe:
    try:
        recipe = schema.model_validate(dict(values), context=tasks)
    except ValidationError as error:
        raise RecipeError(format_errors(error, schema, replace(source, values=values))) from None
    if recipe.objective is not None:
        task = recipe.task.for_objective(recipe.task, recipe.objective)
        recipe = recipe.model_copy(update={"task": task})
    return _resolve_paths(recipe, Path(os.path.realpath(source.path.parent)))


def recipe_to_toml(recipe: Recipe) -> str:
    """Write the recipe as TOML, with all defaults filled in."""
    return toml.dumps(recipe.model_dump(exclude_none=True))


def parse_overrides(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Return overrides by dotted key: of `["training.steps=2000"]`, or of a mapping."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    result = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise RecipeError(f"{override!r}: expected key=value, as in training.steps=2000")
        try:
            result[key.strip()] = toml.parse(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            result[key.strip()] = value.strip()  # a string without quotation marks
    return result


def merge_overrides(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Join the overrides of a run with those of a later call, which replace the same keys and whole tables of them."""

    def replaced(key: str) -> bool:
        others = [*then, *(f"training.{other}" for each in then for other in SAME_LIMIT.get(each, ()))]
        return any(key == other or key.startswith(f"{other}.") for other in others)

    return {**{key: value for key, value in first.items() if not replaced(key)}, **then}


def _apply_overrides(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the values with the overrides applied.

    Another kind of schedule keeps the warm-up, and `steps` replaces `epochs` and vice versa.
    """
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        table = result
        for name in path:
            inner = table.get(name, {})
            if not isinstance(inner, dict):
                raise RecipeError(f"{dotted}: {name} is {inner!r}, not a table")
            table[name] = dict(inner)
            table = table[name]
        for other in SAME_LIMIT.get(dotted, ()):
            table.pop(other, None)
        is_schedule = dotted == "training.schedule" and isinstance(value, str)
        table[last] = {"kind": value, **_schedule_warmup(table.get(last))} if is_schedule else value
    return result


SAME_LIMIT = {"training.steps": ("epochs",), "training.epochs": ("steps",)}
"""Keys of a recipe that an override replaces besides its own."""


def _schedule_warmup(schedule: Any) -> dict[str, Any]:
    """Return the warm-up of the schedule in a recipe, which may be absent or only a name."""
    if schedule is None:
        schedule = TrainingSection.model_fields["schedule"].default.model_dump()
    has_warmup = isinstance(schedule, dict) and "warmup_steps" in schedule
    return {"warmup_steps": schedule["warmup_steps"]} if has_warmup else {}


def _resolve_paths(recipe: AnyRecipe, base_dir: Path) -> AnyRecipe:
    """Make all paths absolute, so that a copy of the recipe in another directory describes the same run."""

    def resolve(path: str) -> str:
        return str(base_dir / Path(path).expanduser())

    def resolve_all(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(resolve, paths))

    data = recipe.data
    files = {"train": resolve_all(data.train), "valid": resolve_all(data.valid), "test": resolve_all(data.test)}
    update: dict[str, Any] = {"data": data.model_copy(update=files)}
    for name in ("tokenizer", "network"):
        section = getattr(recipe, name)
        if isinstance(section, PretrainedTokenizerSection | PretrainedNetworkSection):
            update[name] = section.model_copy(update={"load": resolve(section.load)})
        elif getattr(section, "embeddings", None) is not None:
            update[name] = section.model_copy(update={"embeddings": resolve(section.embeddings)})
    objective: AnyObjectiveConfig | None = recipe.objective
    distillation = getattr(objective, "distillation", None)
    if objective is not None and distillation is not None:
        resolved = distillation.model_copy(update={"teacher": resolve(distillation.teacher)})
        update["objective"] = objective.model_copy(update={"distillation": resolved})
    return recipe.model_copy(update=update)
