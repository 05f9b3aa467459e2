"""From a recipe to a run folder: everything that the loop works with is made here, and handed to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint.files import CONFIG, read_json, replacing, write_json
from regard.checkpoint.load import NATIVE
from regard.checkpoint.report import Report
from regard.checkpoint.save import save
from regard.data.batches import Batches
from regard.native.memory import keep_few_kernels, keep_freed
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.factory import objective_of, start_of
from regard.training.recipe import schema, toml
from regard.training.recipe.data_pipeline import labels_in, prepare, tokenizer_of
from regard.training.recipe.network_factory import Known, longest, network_of, width
from regard.training.recipe.preflight import check, check_device
from regard.training.recipe.schema import Recipe, RecipeError
from regard.training.recipe.training_section import Training
from regard.training.run import checkpoint_averaging, retention, state, tensorboard
from regard.training.run.loop import Loop, exchanged
from regard.training.run.progress import Reporter, reporter
from regard.training.run.run_dir import Folder
from regard.training.run.validation import validate

WRITING = "generation_config.json"
Measure = Callable[["Trained"], Mapping[str, float]]
"""Measures a network on the validation data in the task's own way: BLEU, F1."""
Sample = Callable[["Trained"], Sequence[str]]
"""A few outputs of a network, for a person to look at."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A network with all that belongs to it, as it is written to a model folder."""

    recipe: Recipe
    network: Any
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    start: int
    report: Report | None
    valid: Batches | None
    """The validation data as the network reads it."""

    def write(self, folder: Path) -> None:
        """Write a model folder, which `regard.load` opens."""
        save(self.network, folder, origin=self.report.origin if self.report else None)
        self.tokenizer.save(folder)
        special = self.tokenizer.target.special
        ids = {"bos_token_id": special.begin, "eos_token_id": special.end, "pad_token_id": special.padding}
        if self.recipe.objective.kind == "translate":
            ids["decoder_start_token_id"] = self.start
        write_json(folder / WRITING, {key: value for key, value in ids.items() if value is not None})
        self._name_labels(folder)
        about: dict[str, Any] = {"task": self.recipe.task, "recipe": self.recipe.model_dump(exclude_none=True)}
        write_json(folder / "regard.json", about | ({"labels": list(self.labels)} if self.labels else {}))

    def _name_labels(self, folder: Path) -> None:
        """Published configs hold the labels' names; our own keep them in regard.json."""
        values = read_json(folder / CONFIG)
        if self.labels and values["model_type"] != NATIVE:
            values["id2label"] = {str(number): name for number, name in enumerate(self.labels)}
            values["label2id"] = {name: number for number, name in enumerate(self.labels)}
            write_json(folder / CONFIG, values)


def train(
    what: str | Path | Recipe,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    measure: Measure | None = None,
    sample: Sample | None = None,
    report: Reporter | None = None,
) -> Path:
    """Train what a recipe describes, and return the folder of the best network.

        regard.train("recipe.toml", {"training.steps": 2000})

    The run's folder is `folder`, or the recipe's, or `runs/` and the recipe's name. With `resume`, a run that was
    stopped goes on from its last state, and gives bit for bit what it would have given without the stop.
    """
    chosen = what if isinstance(what, Recipe) else schema.read(what, overrides)
    place = Folder(folder or chosen.folder or default_folder(what))
    _check_empty(place, resume)
    check(chosen)
    keep_freed()
    keep_few_kernels()
    with _threads(chosen.training.threads), place.claimed():
        place.open()
        talk = report or reporter(place)
        for line in _changes(place, chosen):
            talk.say(line)
        loop = assemble(chosen, place, talk, measure, sample)
        if resume:
            _go_on(loop, place, talk.say)
        else:
            place.rewind(0)
        with replacing(place.recipe) as temporary:  # by now nothing can refuse it
            temporary.write_text(schema.written(chosen), encoding="utf-8")
        with tensorboard.following(place) if chosen.training.tensorboard else nullcontext():
            if not loop.progress.finished:
                loop.run()
            best = _finish(loop)
    talk.say(f"done: the best network ({best}) is in {place.best}")
    return place.best


def default_folder(what: str | Path | Recipe) -> Path:
    """Where a run goes that was given no folder."""
    return Path("runs") / ("run" if isinstance(what, Recipe) else Path(what).stem)


def assemble(
    chosen: Recipe, place: Folder, talk: Reporter, measure: Measure | None = None, sample: Sample | None = None
) -> Loop:
    """Everything that a run needs, made from its recipe."""
    plan = possible(chosen.training, talk.say)
    labels = labels_in(chosen)
    tokenizer = tokenizer_of(chosen, place.cache / "tokenizer", begun=bool(state.saved(place.states)))
    network, report = network_of(chosen, Known.of(tokenizer, len(labels)))
    start = start_of(tokenizer, _said(chosen, report))
    room = longest(network.config)
    objective = objective_of(chosen.objective, tokenizer, start, labels, plan.device, room)
    data = prepare(chosen, tokenizer, labels, room, place.cache)
    for line in data.told:
        talk.say(line)
    network.to(plan.device)
    trained = Trained(
        recipe=chosen,
        network=network,
        tokenizer=tokenizer,
        labels=labels,
        start=start,
        report=report,
        valid=data.valid,
    )

    def evaluate() -> Mapping[str, float]:
        assert data.valid is not None
        found = validate(network, objective, data.valid, plan.device, data.words)
        found |= measure(trained) if measure else {}
        for line in sample(trained) if sample else ():
            talk.say(line)
        return found

    return Loop(
        network=network,
        objective=objective,
        batches=data.train,
        plan=plan,
        folder=place,
        seed=chosen.seed,
        model_dim=width(network.config),
        write=trained.write,
        evaluate=evaluate if data.valid else None,
        reporter=talk,
        belongs={
            "data": data.train.fingerprint,
            "objective": chosen.objective.model_dump_json(),
            "tokenizer": tokenizer.fingerprint(),
            "best": f"{plan.best} on {data.valid.fingerprint if data.valid else 'nothing'}",
        },
    )


def _said(chosen: Recipe, report: Report | None) -> Mapping[str, Any]:
    """What the folder of a published network says about writing, in its generation config or, if older, its config."""
    if not isinstance(chosen.network, schema.Load) or report is None or report.origin is None:
        return {}
    writing = Path(chosen.network.load) / WRITING
    later = read_json(writing) if writing.is_file() else {}
    return {**report.origin.theirs, **{key: value for key, value in later.items() if value is not None}}


def possible(plan: Training, talk: Callable[[str], None]) -> Training:
    """The plan, with bfloat16 only where the machine computes in it."""
    if plan.precision == "float32" or has_bfloat16(check_device(plan.device)):
        return plan
    talk("this machine does not compute in bfloat16, so float32 is used: the other would only be slower")
    return plan.model_copy(update={"precision": "float32"})


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type == "cpu":
        there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False


def _check_empty(place: Folder, resume: bool) -> None:
    steps = list(state.saved(place.states))
    if steps and not resume:
        raise RecipeError(
            f"{place.place} already holds a run (a state of step {steps[-1]} is there): say --resume to go on, or "
            "choose another --folder"
        )


def _changes(place: Folder, chosen: Recipe) -> Iterator[str]:
    """What to say of a run that goes on with a recipe that is not as it was."""
    if not place.recipe.exists():
        return
    try:
        old = toml.flat(place.recipe.read_text(encoding="utf-8"))
    except ValueError as error:
        yield f"{place.recipe} can no longer be read, so nobody knows whether this recipe is another one ({error})"
        return
    new = toml.flat(schema.written(chosen))
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if changed:
        yield "the recipe is not the one that this run began with, so it will not end as it would have:"
    for key in changed:
        yield f"  {key}: was {old.get(key, 'not given')}, is {new.get(key, 'not given')}"


def _go_on(loop: Loop, place: Folder, talk: Callable[[str], None]) -> None:
    """Go on from the last state that is whole."""
    there = state.last(place.states)
    if there is None:
        place.rewind(0)
        talk("there is no state to go on from: the run begins")
        return
    found, wrong = there
    for error in wrong:
        talk(f"{error}; it is passed over")
    loop.restore(found)
    for what, value in state.machine(loop.plan.device).items():
        was = found.machine.get(what)
        if was != value:
            talk(f"{what} was {was} and is {value}: the last digits may differ from those of an unbroken run")
    talk(f"going on from step {found.progress.step}")


def _finish(loop: Loop) -> str:
    """Try the mean of several states, where the recipe asks for it; it is the best network if it does best.

    Says which network is the best. Nothing of this is in a state: a run that ends in the middle of it does it again.
    """
    if not loop.folder.best.exists():  # somebody removed it, and the run has nothing left to do
        _put_back(loop)
    places = state.saved(loop.folder.states)
    steps = retention.to_average(list(places), loop.plan, loop.progress)
    if len(steps) > 1:
        loop.folder.rewind(loop.progress.metrics)
        parameters = dict(loop.network.named_parameters())
        with exchanged(parameters, checkpoint_averaging.mean([places[step] for step in steps])):
            which = {"step": loop.progress.step, "mean_of": steps}
            value = loop.measure(which) if loop.evaluate else None
            if value is None or loop.plan.better(value, loop.progress.best):
                loop.folder.replace_best(loop.write, which, value)
    best = loop.folder.which()
    if "mean_of" in best:
        return f"the mean of steps {', '.join(map(str, best['mean_of']))}"
    return f"step {best.get('step', loop.progress.best_step)}"


def _put_back(loop: Loop) -> None:
    """Make the last network the best one. It has been measured, unless the measure is another by now."""
    now, place = loop.progress, loop.folder
    now.best = None
    value = now.scores.get(str(now.step))
    if loop.evaluate is not None and value is None:
        loop.judge()
    elif value is None or not math.isnan(value):
        with loop.averaged():
            place.replace_best(loop.write, {"step": now.step}, value)
        now.best, now.best_step = value, now.step
    if not place.best.exists():
        raise ValueError(
            f"no evaluation gave a number for {loop.plan.best!r}, so no network is the best one. The last state is in "
            f"{place.states}"
        )


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Torch with so many threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
