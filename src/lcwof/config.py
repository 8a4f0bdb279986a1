"""Settings are frozen dataclasses; files and command lines fill them strictly: an unknown key is an error."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lcwof.errors import LcwofError

T = TypeVar("T")

# The smallest sensible value of whole-number settings, wherever they occur. No epochs at all skips a phase.
LEAST = {
    "adapt": 0,
    "alternate": 0,
    "at_once": 1,
    "batch": 1,
    "curves": 0,
    "drop_ramp": 1,
    "episodes": 1,
    "epochs": 0,
    "judge_every": 1,
    "per_batch": 1,
    "queries": 1,
    "pseudo": 0,
    "replay_per_class": 1,
    "sessions": 1,
    "streams": 1,
    "unlabelled": 0,
    "views": 0,
}


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """A dataclass from nested mappings, with every key and type checked.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Oven:
    ...     heat: float = 180.0
    >>> build(Oven, {"heat": 200}, "oven")
    Oven(heat=200.0)
    """
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}."
            raise LcwofError(f"unknown key {where}.{key}: {hint}")
    if lacking := [key for key in without_default(cls) if key not in values]:
        raise LcwofError(f"{where} lacks {', '.join(lacking)}.")
    converted = {key: _convert(value, known[key], f"{where}.{key}") for key, value in values.items()}
    for key, value in converted.items():
        least = LEAST.get(key)
        if least is not None and isinstance(value, int) and value < least:
            raise LcwofError(f"{where}.{key} = {value}: at least {least} is needed.")
    return cls(**converted)


def without_default(cls: type) -> list[str]:
    """The fields of a dataclass that must be given."""
    return [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING]


def _convert(value: Any, kind: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return build(kind, value, where)  # type: ignore[arg-type]
    if origin is Literal:
        if value in arguments:
            return value
        raise LcwofError(f"{where} = {value!r}: choose one of {', '.join(map(repr, arguments))}.")
    if origin in (Union, types.UnionType):
        options = [a for a in arguments if a is not type(None)]
        if value is None or (value == "none" and len(options) < len(arguments)):
            return None
        return _convert(value, options[0], where)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_convert(v, arguments[0], where) for v in value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is Any or (origin in (dict, Mapping) and isinstance(value, Mapping)):
        return value
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    name = (
        "a list"
        if origin is tuple
        else "a table"
        if origin in (dict, Mapping)
        else getattr(kind, "__name__", str(kind))
    )
    raise LcwofError(f"{where} = {value!r} is a {type(value).__name__}, expected {name}.")


def replace_field(config: T, dotted: str, value: Any) -> T:
    """A copy of a nested config with one field changed: replace_field(c, "phase3.epochs", 80)."""
    first, _, rest = dotted.partition(".")
    inner = replace_field(getattr(config, first), rest, value) if rest else value
    return dataclasses.replace(config, **{first: inner})  # type: ignore[type-var]


def parse_override(text: str) -> tuple[list[str], Any]:
    """`a.b=VALUE` as on the command line; VALUE is TOML, or a bare word.

    >>> parse_override("method.phase3.epochs=80")
    (['method', 'phase3', 'epochs'], 80)
    """
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise LcwofError(f"--set {text!r}: write section.key=value, for example method.phase3.epochs=80.")
    try:
        value = tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    return key.strip().split("."), value


def merge(tree: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a dotted path in nested dictionaries."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise LcwofError(f"--set {'.'.join(path)}: {key!r} is a value, not a section.")
    tree[path[-1]] = value


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LcwofError(f"no recipe {path}.") from None
    except OSError as error:
        raise LcwofError(f"cannot read the recipe {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LcwofError(f"{path} is not valid TOML: {error}.") from None


def to_toml(tree: Mapping[str, Any], prefix: str = "") -> str:
    """Nested mappings as TOML; None is left out, which reads back as the default.

    >>> print(to_toml({"method": {"name": "lcwof", "phase3": {"epochs": 80}}}))
    [method]
    name = "lcwof"
    <BLANKLINE>
    [method.phase3]
    epochs = 80
    <BLANKLINE>
    """
    plain = {k: v for k, v in tree.items() if not isinstance(v, Mapping) and v is not None}
    lines = [f"[{prefix}]"] if prefix and plain else []
    lines += [f"{_key(key)} = {json.dumps(value)}" for key, value in plain.items()]
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, value in tree.items():
        if isinstance(value, Mapping):
            text += ("\n" if text else "") + to_toml(value, f"{prefix}.{_key(key)}" if prefix else _key(key))
    return text


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def shown(value: Any) -> str:
    """A setting's value for people.

    >>> shown(5000.0), shown("cosine")
    ('5000', 'cosine')
    """
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def all_shown(settings: Mapping[str, Any]) -> str:
    """Settings in a line.

    >>> all_shown({"phase3.epochs": 40, "weight_constraint": 500.0})
    'phase3.epochs 40, weight_constraint 500'
    """
    return ", ".join(f"{key} {shown(value)}" for key, value in settings.items())


def explained(cls: type) -> dict[str, str]:
    """What each setting is, by its dotted name: the comments beside the fields, which are where it is written down."""
    found: dict[str, str] = {}
    hints = get_type_hints(cls)
    for kind in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(kind):
            continue
        for line in inspect.getsource(kind).splitlines():
            if said := re.match(r"    (\w+): .*?  # (.*)", line):
                found[said[1]] = said[2]
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            inner = explained(hints[field.name])
            found |= {f"{field.name}.{name}": text for name, text in inner.items()}
    return found


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys.

    >>> flat({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
