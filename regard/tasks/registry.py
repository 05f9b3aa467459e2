"""All tasks, by name. A new task is a file with its declaration, and one line here."""

from __future__ import annotations

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


def check_network(task: AnyTask, network: Any) -> None:
    """Raise a ValueError if a network does not fit a task. The message names the tasks that it fits."""
    if not task.fits(network):
        others = [name for name, other in TASKS.items() if other.prepare and other.fits(network)]
        hint = f": use `{'` or `'.join(others)}`" if others else ""
        raise ValueError(f"{task.name} needs {task.describe_networks()}; this one {describe_network(network)}{hint}")
