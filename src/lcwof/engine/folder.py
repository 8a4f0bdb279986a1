"""A run folder being written: results stream to disk as they finish, an interrupted run resumes, a finished one is
never half-written. A run in progress is NAME.partial; it becomes NAME when complete.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import IO, Any

from lcwof.config import flat
from lcwof.engine.hold import hold
from lcwof.errors import LcwofError
from lcwof.models.checkpoint import unfinished, write_aside

Row = dict[str, Any]
Decides = Callable[[dict[str, Any]], dict[str, Any]]  # of what run.json says, what the numbers depend on
Size = Callable[[dict[str, Any]], int]  # how many episodes or streams it says are asked for


@dataclass
class RunFolder:
    """run.json says what the run is; .jsonl files are lines of JSON, .safetensors files tensors."""

    final: Path
    about: dict[str, Any]
    started: float = field(default_factory=time.time)
    _held: IO[str] | None = None  # while it is open, no other process works here

    @property
    def partial(self) -> Path:
        return unfinished(self.final)

    @classmethod
    def open(
        cls,
        out: Path,
        about: dict[str, Any],
        overwrite: bool,
        decides: Decides,
        size: Size,
    ) -> RunFolder:
        """A fresh folder, or one that an earlier attempt left, or a copy of a finished run that more is to be added to.

        `decides` picks what must be the same as then, `size` how many episodes or streams are asked for.
        """
        folder = cls(out, about)
        described = folder.partial / "run.json"
        asked = json.loads(json.dumps(about))
        if folder.partial.exists():
            folder._hold()
        if out.exists():
            if not (out / "run.json").exists():
                raise LcwofError(f"{out} is there, but is not a run folder: choose another --out.")
            there = read_about(out)
            if not overwrite:
                if why := _in_the_way(there, asked, decides, size):
                    raise LcwofError(f"{out} exists: choose another --out, or --overwrite to replace it. {why}")
                if not described.exists():
                    folder.write(lambda: _copy(out, folder.partial))
        before = json.loads(described.read_text(encoding="utf-8")) if described.exists() and not overwrite else None
        other = before is not None and decides(before) != decides(asked)
        if other and folder._has_results():
            raise LcwofError(f"{folder.partial} was begun with other settings: use --overwrite, or another --out.")
        if described.exists() and (overwrite or other):
            shutil.rmtree(folder.partial)
            folder._held = before = None
        if before is not None:
            folder.started -= before["seconds"]
            _remember(before, folder.about)
        else:
            try:
                folder.partial.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LcwofError(f"could not make the run folder {folder.partial}: {error.strerror}.") from error
            folder._hold()
            folder.describe()
        folder._hold()
        return folder

    def _has_results(self) -> bool:
        """Whether the earlier attempt left anything to lose, or ended, like a method with a mistake, before it did."""
        files = (file for kind in ("jsonl", "safetensors") for file in self.partial.glob(f"*.{kind}"))
        return any(file.stat().st_size for file in files)

    def _hold(self) -> None:
        """Keep other processes out: each would take what this one does for what was left by one that was killed."""
        self._held = self._held or hold(self.partial / "held", self.partial)

    @contextmanager
    def working(self, *numbers: int) -> Iterator[Callable[..., None]]:
        """While something is learned a file says what (how many at once, ...): it outlives only a killed process."""
        file = self.partial / "working"

        def mark(*numbers: int) -> None:
            self.write(lambda: file.write_text(" ".join(map(str, numbers))))

        mark(*numbers)
        try:
            yield mark
        finally:
            file.unlink(missing_ok=True)

    def killed_with(self) -> list[int]:
        """What the last attempt was at when it was killed; nothing: it was not."""
        file = self.partial / "working"
        found = file.read_text().split() if file.exists() else []
        return [int(number) for number in found if number.isdigit()]

    def describe(self) -> None:
        """run.json, with the seconds worked so far (over all attempts)."""
        text = json.dumps({**self.about, "seconds": round(time.time() - self.started, 1)}, indent=1)
        self.write(lambda: write_aside(self.partial / "run.json", text.encode()))

    def rows(self, name: str) -> list[Row]:
        return list(read_lines(self.partial / f"{name}.jsonl"))

    def append(self, name: str, rows: Iterable[Row]) -> None:
        def write() -> None:
            with (self.partial / f"{name}.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

        self.write(write)

    def rewrite(self, name: str, rows: Iterable[Row]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.write(lambda: write_aside(self.partial / f"{name}.jsonl", text.encode()))

    def finish(self) -> Path:
        self.describe()
        if self._held:
            self._held.close()
            (self.partial / "held").unlink(missing_ok=True)
        before = self.final.with_name(self.final.name + ".before.partial")  # no run to whoever looks for runs
        shutil.rmtree(before, ignore_errors=True)
        if self.final.exists():
            self.final.rename(before)
        self.partial.rename(self.final)
        shutil.rmtree(before, ignore_errors=True)
        return self.final

    def write(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, LcwofError) as error:
            why = getattr(error.__cause__ or error, "strerror", None) or error
            raise LcwofError(
                f"could not write the run folder {self.partial}: {why}. Finished episodes are kept; "
                "the same command goes on from there."
            ) from error


def is_done(out: Path, about: dict[str, Any], decides: Decides, size: Size) -> bool:
    """Whether a finished run is the very one that is asked for."""
    if not (out / "run.json").exists() or unfinished(out).exists():
        return False
    there, asked = read_about(out), json.loads(json.dumps(about))
    return decides(there) == decides(asked) and size(there) == size(asked)


def _in_the_way(there: dict[str, Any], asked: dict[str, Any], decides: Decides, size: Size) -> str:
    """Why a finished run is neither what is asked for nor the beginning of it, in a sentence."""
    mine, theirs = flat(decides(asked)), flat(decides(there))
    if other := sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)):
        named = ["the method's file, which has been edited since" if key == "code" else key for key in other]
        return f"It is a run of other settings: {', '.join(named[:5])}{', ...' * (len(named) > 5)}."
    if size(there) >= size(asked):
        return f"It has {size(there)} episodes or streams, {size(asked)} are asked for."
    return ""


def _copy(finished: Path, partial: Path) -> None:
    """The finished run stays what it is until more is done."""
    aside = finished.with_name(finished.name + ".copy.partial")  # no run to whoever looks for runs
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(finished, aside)
    aside.rename(partial)


def _remember(before: dict[str, Any], about: dict[str, Any]) -> None:
    """Where the beginning was computed, if it was elsewhere or by other versions."""
    where = {key: before.get(key) for key in ("date", "hardware", "versions", "compute", "seconds")}
    same = all(where[key] == about.get(key) for key in ("hardware", "versions", "compute"))
    if earlier := [*before.get("before", []), *([] if same else [where])]:
        about["before"] = earlier


def read_lines(path: Path) -> Iterator[Row]:
    """The whole JSON lines of a file; a last line cut off by a kill is left out."""
    if path.exists():
        lines = path.read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line.decode())
                if not isinstance(row, dict):
                    raise ValueError
                yield row
            except ValueError as error:
                if number < len(lines) or isinstance(error, UnicodeDecodeError):  # which no cut makes of ASCII
                    raise LcwofError(f"{path}, line {number}: damaged; remove the folder and run it again.") from None


def read_about(path: Path) -> dict[str, Any]:
    """run.json of a finished run."""
    if not path.exists():
        raise LcwofError(f"no run folder {path}.")
    if not (path / "run.json").exists():
        raise LcwofError(f"{path} is not a run folder: it has no run.json.")
    if path.name.endswith(".partial"):
        raise LcwofError(f"{path} is unfinished: run its command again to complete it.")
    try:
        about: dict[str, Any] = json.loads((path / "run.json").read_text(encoding="utf-8"))
        if not {"recipe", "model"} <= about.keys():
            raise ValueError
    except (ValueError, AttributeError):
        raise LcwofError(f"{path / 'run.json'} is damaged; remove the folder and run it again.") from None
    return about


def require_whole(
    path: Path, rows: Sequence[Row], expected: int, numbered: Sequence[str], names: Sequence[str]
) -> None:
    """Refuse a finished run that lacks rows or parts of them, or has some twice or no numbers in them: its means and
    intervals would be of something else. numbered: what tells rows apart. None: a measure that is not known yet."""

    def known(value: object) -> bool:
        return value is None or (isinstance(value, int | float) and isfinite(value))

    sound = all(known(row.get(name, nan)) for row in rows for name in (*numbered, *names))
    if not sound or len({tuple(row[n] for n in numbered) for row in rows}) != len(rows) or len(rows) != expected:
        raise LcwofError(
            f"{path / 'rows.jsonl'} is damaged ({len(rows)} rows for {expected}, or not whole ones): remove the "
            "folder and run it again."
        )
