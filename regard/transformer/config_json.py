"""Lossless conversion of configs to and from JSON."""

import enum
import math
import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from regard.transformer import config


def to_json(value: Any) -> Any:
    """Convert a config to JSON values; each dataclass stores its class name as `kind`, for `from_json`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__} | {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any, kind: Any = config.Network, path: str = "network") -> Any:
    """Convert the output of `to_json` back to a config.

    An unknown kind, a missing field or a wrong type raises ValueError with the path of the value.
    """
    if get_origin(kind) in (Union, types.UnionType):
        return _from_union(value, get_args(kind), path)
    if is_dataclass(kind):
        return _from_fields(value, typing.cast(type, kind), path)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{path}: expected a list, found {value!r}")
        return tuple(from_json(item, get_args(kind)[0], f"{path}[{i}]") for i, item in enumerate(value))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{path}: expected one of {[e.value for e in kind]}, found {value!r}") from None
    if kind is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise ValueError(f"{path}: expected a number, found {value!r}")
        return float(value)
    if type(value) is not (type(None) if kind is None else kind):
        raise ValueError(f"{path}: expected {getattr(kind, '__name__', kind)}, found {value!r}")
    return value


def _from_union(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    if isinstance(value, dict):
        classes = {k.__name__: k for k in kinds if isinstance(k, type) and is_dataclass(k)}
        if not isinstance(value.get("kind"), str) or value["kind"] not in classes:
            raise ValueError(f"{path}: expected one of {sorted(classes)} as `kind`, found {value.get('kind')!r}")
        return from_json(value, classes[value["kind"]], path)
    if value is None and type(None) in kinds:
        return None
    scalars = [k for k in kinds if k is not type(None) and not is_dataclass(k)]
    if not scalars:
        raise ValueError(f"{path}: expected one of {[k.__name__ for k in kinds]}, found {value!r}")
    return from_json(value, scalars[0], path)


def _from_fields(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, dict) or value.get("kind") != kind.__name__:
        raise ValueError(f"{path}: expected an object of kind {kind.__name__}, found {value!r}")
    hints = get_type_hints(kind)
    names = set(value) - {"kind"}
    if names != set(hints):
        missing, unknown = sorted(set(hints) - names), sorted(names - set(hints))
        raise ValueError(f"{path} ({kind.__name__}): missing fields {missing}, unknown fields {unknown}")
    return kind(**{name: from_json(value[name], hint, f"{path}.{name}") for name, hint in hints.items()})
