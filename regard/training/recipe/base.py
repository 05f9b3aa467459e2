"""The base class of all sections of a recipe, and types of their fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A section of a recipe: immutable, without unknown keys, and without NaN or infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _check_integer(value: Any) -> Any:
    if isinstance(value, bool | str):  # pydantic would convert true to 1 and "5" to 5
        raise ValueError(f"expected an integer, found {value!r}")
    return value


def _expand_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Integer = Annotated[int, BeforeValidator(_check_integer)]
PositiveInt = Annotated[Integer, Field(ge=1)]
StrictBool = Annotated[bool, Field(strict=True)]
KindShorthand = BeforeValidator(_expand_kind)
"""`optimizer = "adamw"` is short for `optimizer = { kind = "adamw" }`."""
