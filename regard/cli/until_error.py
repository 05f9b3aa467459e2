"""Inputs that are read ahead of the work: an error among them must not cost the results of those before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class UntilError(Generic[T]):
    """An iterator that ends where reading fails. `raise_error` raises the error once the work before it is done."""

    def __init__(self, values: Iterable[T]) -> None:
        self.values = iter(values)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self.values)
        except (ValueError, OSError) as error:
            self.error = error
            raise StopIteration from None

    def raise_error(self) -> None:
        """Raise the error at which the values ended, if there was one."""
        if self.error is not None:
            raise self.error
