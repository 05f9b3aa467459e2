"""What all parts of a recipe have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a recipe: it never changes, and it has no keys but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
