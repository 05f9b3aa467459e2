"""Options that every command has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from regard.threads import request_threads

THREADS_HELP = "Number of CPU threads. [as many as this process has CPUs]"
Threads = Annotated[int | None, typer.Option("--threads", min=1, metavar="NUMBER", help=THREADS_HELP)]


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with the common options after its own.

    They take effect before the command runs, because torch reads the number of threads when it is imported.
    """

    @functools.wraps(command)
    def run(*, threads: int | None, **values: Any) -> None:
        if threads is not None:
            request_threads(threads)
        command(**values)

    hints = {**_type_hints(command), "threads": Threads}
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    shared = inspect.Parameter("threads", inspect.Parameter.KEYWORD_ONLY, annotation=Threads, default=None)
    run.__signature__ = inspect.Signature([*own, shared])  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def _type_hints(command: Callable[..., None]) -> dict[str, Any]:
    hints = get_type_hints(command, include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return"}
