"""All tasks, by name. A new task is a file with its declaration, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regard.tasks.answer import ANSWER
from regard.tasks.caption import CAPTION
from regard.tasks.classify import CLASSIFY
from regard.tasks.embed import EMBED
from regard.tasks.fill import FILL
from regard.tasks.generate import GENERATE
from regard.tasks.summarize import SUMMARIZE
from regard.tasks.tag import TAG
from regard.tasks.translate import TRANSLATE
from regard.training.task import AnyTask, describe_network

TASKS: dict[str, AnyTask] = {
    task.name: task for task in (TRANSLATE, SUMMARIZE, GENERATE, CLASSIFY, TAG, ANSWER, FILL, EMBED, CAPTION)
}


def find_task(name: str) -> AnyTask:
    """Return the task of this name."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}")
    return TASKS[name]


def task_of(info: Mapping[str, Any], network: Callable[[], Any]) -> AnyTask:
    """Return the task that a model was made for: that of regard.json, else the first that its network fits."""
    made_for = TASKS.get(info.get("task", ""))
    if made_for is not None and made_for.prepare is not None:
        return made_for
    loaded = network()
    fitting = [task for task in TASKS.values() if task.prepare is not None and task.fits(loaded)]
    if not fitting:
        raise ValueError(f"no task fits this model, which {describe_network(loaded)}")
    return fitting[0]


def check_network(task: AnyTask, network: Any, info: Mapping[str, Any]) -> None:
    """Raise a ValueError if a network does not fit a task. The message says what it was made for, or what it fits."""
    if not task.fits(network):
        others = [name for name, other in TASKS.items() if other.prepare and other.fits(network)]
        made_for = [name for name in others if name == info.get("task")]
        hint = f": use `{'` or `'.join(made_for or others)}`" if others else ""
        origin = f". It was made for {made_for[0]}" if made_for else ""
        message = f"{task.name} needs {task.describe_networks()}; this one {describe_network(network)}"
        raise ValueError(f"{message}{origin}{hint}")
