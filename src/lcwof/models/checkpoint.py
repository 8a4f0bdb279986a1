"""Files of tensors: safetensors with a metadata header. Nothing is ever unpickled, nothing is ever half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lcwof import __version__
from lcwof.errors import LcwofError

FORMAT = "lcwof-1"
_MAKER = {"classifier": "lcwof fit", "base model": "lcwof pretrain"}


def write_aside(path: Path, content: bytes) -> None:
    """Write a file beside its place, then rename: a crash or a full disk leaves the old file or none."""
    path = _named(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise LcwofError(f"could not write {path} ({len(content)} bytes): {error.strerror or error}.") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def unfinished(out: Path) -> Path:
    """Where what is done so far of a file or folder is kept."""
    return _named(out).with_name(out.name + ".partial")


def _named(path: Path) -> Path:
    if not path.name:
        raise LcwofError(f"{str(path)!r} names nothing that can be written: give --out a name.")
    return path


def require_writable(path: Path, replace: bool = True) -> None:
    """Find out before the work, not after it, that a file cannot be written where it is wanted, or, unless it may be
    replaced, that one is there."""
    if path.is_file() and not replace:
        raise LcwofError(f"{path} is there already: choose another --out, or --overwrite to replace it.")
    if path.is_dir():
        raise LcwofError(f"{path} is a folder: name a file to write.")
    if path.parts[:1] == ("~",):  # as in --out=~/model, which shells leave as it is
        raise LcwofError(f"{path}: ~ means the home folder only where the shell puts it in; write it out.")
    probe = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise LcwofError(f"cannot write {path}: {error.strerror or error}.") from error


def save_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Save tensors and a JSON description; `kind` says what the file is and is checked on loading."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": FORMAT, "kind": kind, "version": __version__, "about": json.dumps(dict(about))}
    write_aside(path, save(ready, header))


def load_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read back what `save_tensors` wrote, or say in one sentence what the file is instead."""
    tensors, header = _read(path)
    if header["kind"] != kind:
        raise LcwofError(f"{path} holds a {header['kind']}, but a {kind} is needed here, made by `{_MAKER[kind]}`.")
    return tensors, json.loads(header["about"])


def kind_of(path: Path) -> str:
    """What a file holds."""
    return _read(path, header_alone=True)[1]["kind"]


def _read(path: Path, header_alone: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.exists():
        raise LcwofError(f"no file {path}.")
    if path.is_dir():
        raise LcwofError(f"{path} is a folder; a model is a .safetensors file.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            names = [] if header_alone else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise LcwofError(f"{path} is not a readable model file (truncated or another format): {error}.") from error
    if header.get("format") != FORMAT:
        found = header.get("format", "no format name")
        raise LcwofError(f"{path} was not written by lcwof: its header says {found!r}, expected {FORMAT!r}.")
    return tensors, header
