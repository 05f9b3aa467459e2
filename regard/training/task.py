"""The declaration of a task: one value that says all about it. Its instances are in `regard.tasks`.

The method of `Model`, the command with its `--help`, the recipe and the evaluation are derived from it. A declaration
imports neither torch nor numpy nor pydantic, so that `--help` is fast: what needs them is imported in its functions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from regard.data.example import Example
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.checkpoint.model_folder import ModelInfo
    from regard.data.encoders.encoder_base import Encoder
    from regard.data.image_processor import ImageProcessor
    from regard.data.length_policy import LengthPolicy
    from regard.tokenization.tokenizer import Tokenizer

InputT = TypeVar("InputT")
InputT_contra = TypeVar("InputT_contra", contravariant=True)
OptionsT = TypeVar("OptionsT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)

BUFFER_SIZE = 512
"""Number of inputs that are read ahead and sorted by length."""


class Rows(enum.Enum):
    """How the examples of a task become rows of a batch."""

    TRUNCATED = "truncated"
    """One row for each example. A long one is truncated: its label or translation describes all of it."""
    WINDOWS = "windows"
    """A long example is split into windows, one after the other."""
    OVERLAPPING_WINDOWS = "overlapping windows"
    """A long example is split into windows that overlap by half, so that each word has context on both sides."""
    PACKED = "packed"
    """Documents are split into chunks that fill the rows."""


@dataclass(frozen=True, kw_only=True)
class InputKind(Generic[InputT]):
    """What one input of a task is: as a Python value, and as a line of a file."""

    name: str
    """The word for it in `--help`: `text`."""
    help: str
    """What the command accepts, in one sentence."""
    is_single: Callable[[Any], bool]
    """Whether a Python value is one input. Any other value is a list or an iterator of inputs."""
    parse: Callable[[str], InputT]
    """Convert one line of a file."""


@runtime_checkable
class Result(Protocol):
    """What a task gives for one input."""

    @property
    def truncated(self) -> int:
        """Number of input tokens that were removed because the input was too long for the network."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""

    def as_lines(self) -> Sequence[str]:
        """Return the lines that the command prints."""


@runtime_checkable
class Runner(Protocol[InputT_contra, ResultT_co]):
    """A model with the options of a task, ready to process inputs."""

    def run(self, inputs: Iterable[InputT_contra], *, buffer_size: int = BUFFER_SIZE) -> Iterator[ResultT_co]:
        """Yield one result for each input, in their order. `buffer_size` inputs are read ahead and sorted by length."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The metrics of a task on validation data."""

    names: tuple[str, ...]
    """All metrics, in the order in which they are shown. Any of them may select the best checkpoint."""
    compute: Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]] | None = None
    """Compute those that the loss does not give, from references and predictions."""
    reference_of: Callable[[Any], Any] = str
    """Return the reference of an example."""
    prediction_of: Callable[[Any], Any] = str
    """Return what `compute` and `calibrate` compare with the reference, from a result."""
    calibrate: Callable[[Sequence[Any], Sequence[Any]], ModelInfo] | None = None
    """Fit what regard.json holds, such as a temperature, to references and predictions of validation data."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Generic[InputT, OptionsT, ResultT]):
    """The declaration of a task.

    Declarations of one name are equal: the objective that refines one is in the recipe.
    """

    name: str
    """The method of `Model`, the command, and the value of `task` in a recipe."""
    summary: str
    """What the command does, in one sentence."""
    details: str = ""
    """Further sentences for `--help`."""
    input: InputKind[InputT]
    """What it reads."""
    options: type[OptionsT]
    """Its options: a frozen dataclass with a sentence under each field."""
    result: type[ResultT]
    """What it gives for each input."""
    prepare: Callable[[Any, OptionsT], Runner[InputT, ResultT]] | None = None
    """Join a model and options. Raises a ValueError if they do not fit. None: the task can be trained, not yet used."""

    example: type[Example]
    """The examples that it is trained and evaluated on."""
    reads: frozenset[Reads]
    """What its networks read: one of these."""
    predicts: frozenset[Predicts]
    """What its networks predict: one of these."""
    excludes: frozenset[tuple[Reads, Predicts]] = frozenset()
    """Combinations of both that do not fit."""
    architectures: tuple[str, ...]
    """Endings of the published class names of its networks, the usual one first."""
    objectives: tuple[str, ...] = ()
    """The kinds of `[objective]` that train it, the default first. None: it cannot be trained yet."""
    for_objective: Callable[[AnyTask, Any], AnyTask] = lambda task, _: task
    """Return the declaration for the `[objective]` section of a recipe, if networks or encoder depend on it."""
    input_of: Callable[[Any], InputT] | None = None
    """Return the input of an example."""
    has_labels: bool = False
    """Whether it chooses among the labels of its data."""
    rows: Rows = Rows.TRUNCATED
    """How examples become rows of a batch."""
    encoder: Callable[[Tokenizer, tuple[str, ...], LengthPolicy | None], Encoder] | None = None
    """Return the encoder of the examples, for a tokenizer, the labels and the policy for long texts."""
    image_encoder: (
        Callable[[ImageProcessor, Tokenizer | None, tuple[str, ...], LengthPolicy | None], Encoder] | None
    ) = None
    """The same for examples with images."""
    metrics: Metrics = Metrics(names=("loss",))
    """The metrics on validation data."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def fits(self, network: Any) -> bool:
        """Whether a network reads and predicts what the task needs."""
        fitting = {each for each in self.predicts if (network.reads, each) not in self.excludes}
        return network.reads in self.reads and not fitting.isdisjoint(network.predicts)

    def can_train(self, network: Any) -> bool:
        """Whether a network fits and predicts nothing else: others, such as XLNet, have an objective of their own."""
        return network.reads in self.reads and network.predicts <= self.predicts

    def describe_networks(self) -> str:
        """Describe the networks that fit."""
        return f"a network that reads {_join(self.reads, 'or')} and predicts {_join(self.predicts, 'or')}"

    def run(self, model: Any, inputs: Iterable[InputT], options: OptionsT) -> Iterator[ResultT]:
        """Yield one result for each input, in their order."""
        return self.runner(model, options).run(inputs)

    def runner(self, model: Any, options: OptionsT) -> Runner[InputT, ResultT]:
        """Join a model and options. Raises a ValueError if they do not fit."""
        if self.prepare is None:
            raise ValueError(f"models can be trained for {self.name!r}, but not used for it yet")
        return self.prepare(model, options)


AnyTask = Task[Any, Any, Any]


def describe_network(network: Any) -> str:
    """Describe what a network reads and predicts."""
    return f"reads {network.reads.value} and predicts {_join(network.predicts, 'and')}"


def _join(values: Iterable[enum.Enum], conjunction: str) -> str:
    return f" {conjunction} ".join(sorted(value.value for value in values))
