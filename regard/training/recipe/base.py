"""What all parts of a recipe have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Part(BaseModel):
    """A part of a recipe: it never changes, it has no keys but its own, and its numbers are numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _whole(value: Any) -> Any:
    if isinstance(value, bool | str):  # which pydantic would take for 1, and for what is written in them
        raise ValueError(f"expected a whole number, found {value!r}")
    return value


def _by_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1)]
Flag = Annotated[bool, Field(strict=True)]
ByKind = BeforeValidator(_by_kind)
"""`optimizer = "adamw"` is short for `optimizer = { kind = "adamw" }`."""
