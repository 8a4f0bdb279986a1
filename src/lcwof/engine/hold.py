"""Files that a process holds while it works on what they stand for, so that several can work in one folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None  # type: ignore[assignment]

from lcwof.errors import LcwofError


class Held(LcwofError):
    """Another process is at work there."""


def hold(file: Path, what: Path, wait: bool = False) -> IO[str] | None:
    """Keep other processes away from `what` while the file is open: until it is closed, or this process ends. None
    where nothing can be held, so that two processes are not told apart: no Unix, or the file system does not know it.
    """
    while fcntl is not None:
        try:
            held = file.open("w")
        except OSError:
            return None
        try:
            fcntl.lockf(held, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held.fileno()), file.stat()):
                return held
        except (BlockingIOError, PermissionError):  # either, says POSIX
            held.close()
            raise Held(f"another process is at work in {what}: wait for it, or choose another --out.") from None
        except FileNotFoundError:
            pass
        except OSError:
            held.close()
            return None
        held.close()  # who held it before has removed it: whoever comes next would not see this one
    return None


@contextmanager
def holding(what: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Work on a file or folder that other processes may want to work on, too: alone. waiting: what to say before
    waiting for another one to end; None: do not wait, that is `Held`."""
    file = what.with_name(f".{what.name}.held")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = hold(file, what)
    except Held:
        if waiting is None:
            raise
        waiting()
        held = hold(file, what, wait=True)
    try:
        yield
    finally:
        if held:
            file.unlink(missing_ok=True)  # first: see `hold`
            held.close()
