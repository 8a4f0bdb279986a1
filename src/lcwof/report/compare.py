"""Which runs may be compared, in which order, and by how much they differ over the same episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.errors import LcwofError
from lcwof.evaluation import mean_and_interval

AnyRun = TypeVar("AnyRun", Run, StreamRun)


class Setting(NamedTuple):
    """What runs must share to stand in one ranking."""

    data: str
    way: int
    shot: int

    @classmethod
    def of(cls, run: Run) -> Setting:
        e = run.about["recipe"]["evaluate"]
        return cls(str(run.about["data"]), e["way"], e["shot"])

    @property
    def short(self) -> str:
        """As tables name it: `5w1s`."""
        return f"{self.way}w{self.shot}s"

    def __str__(self) -> str:
        return f"{self.data}, {self.way}-way {self.shot}-shot"


class Paired(NamedTuple):
    """The mean over episodes, or streams, of a's measure minus b's, and its 95% interval."""

    mean: float
    interval: float  # not a number where a single episode is shared
    episodes: int  # or streams

    @property
    def clear(self) -> bool:
        """Whether the difference exceeds its interval."""
        return abs(self.mean) > self.interval


def method_name(run: Run | StreamRun) -> str:
    """That it is registered by; of a method of one's own run before that was recorded, its class."""
    return str(run.about.get("known as") or short_name(run.about["recipe"]["method"]["name"]))


def short_name(method: str) -> str:
    """A method's name; of one in a file, its class.

    >>> short_name("work/mine.py:Mine")
    'Mine'
    """
    return method.rpartition(".py:")[2]


def label(run: Run, among: Sequence[Run]) -> str:
    """The method's name, with the run folder's where another run of the same method stands beside it."""
    twins = [r.path for r in among if Setting.of(r) == Setting.of(run) and method_name(r) == method_name(run)]
    return method_name(run) if len(twins) < 2 else f"{method_name(run)} ({folder_name(run.path, twins)})"


def counted_label(run: Run, group: Sequence[Run], among: Sequence[Run]) -> str:
    """The same, with the number of episodes where those of its setting have not as many each."""
    alike = len({len(other.rows) for other in group}) < 2
    return label(run, among) + ("" if alike else f", {len(run.rows)} episode{'s' * (len(run.rows) > 1)}")


def folder_name(path: Path, among: Sequence[Path]) -> str:
    """A run's folder, with as many of those above it as tell it from the others.

    >>> folder_name(Path("paper/conv4/pn-5w1s"), [Path("paper/conv4/pn-5w1s"), Path("paper/resnet12/pn-5w1s")])
    'conv4/pn-5w1s'
    """
    others = [other for other in among if other != path]
    depth = 1
    while depth < len(path.parts) and any(other.parts[-depth:] == path.parts[-depth:] for other in others):
        depth += 1
    return "/".join(path.parts[-depth:])


def by_setting(runs: Sequence[Run]) -> dict[Setting, list[Run]]:
    """Runs grouped by setting, settings in order, each group with the highest hm first."""
    for run in runs:
        if not run.rows:
            raise LcwofError(f"{run.path} holds no episodes: evaluate it again, or leave it out.")
    groups: dict[Setting, list[Run]] = {}
    for run in sorted(runs, key=lambda r: (Setting.of(r), -r.summary()["hm"][0])):
        groups.setdefault(Setting.of(run), []).append(run)
    return groups


def same_episodes(a: Run, b: Run) -> bool:
    """Whether episode i is the same in both runs: data, setting, queries and seed decide an episode."""

    def decided_by(run: Run) -> tuple[object, ...]:
        recipe = run.about["recipe"]
        options = recipe.get("data", {}).get("options")
        return (
            Setting.of(run),
            options,
            run.about.get("classes"),
            run.about.get("queries"),
            recipe["evaluate"].get("seed"),
        )

    return decided_by(a) == decided_by(b)


def paired_difference(a: Run, b: Run, measure: str = "hm") -> Paired | None:
    """a minus b, episode by episode over those both ran; None where their episodes are not the same ones.

    Episodes differ much more than methods do on one episode, so this interval is far narrower than those of the means.
    """
    if not same_episodes(a, b):
        return None
    mine, theirs = ({row["episode"]: row[measure] for row in run.rows} for run in (a, b))
    return pair_up(mine, theirs)


def pair_up(mine: Mapping[float, float], theirs: Mapping[float, float]) -> Paired | None:
    """Mine minus theirs over the numbers, of episodes or streams, that both have; None where they share none."""
    differences = [value - theirs[number] for number, value in mine.items() if number in theirs]
    return Paired(*mean_and_interval(differences), len(differences)) if differences else None


def reference(group: Sequence[AnyRun]) -> AnyRun:
    """The run that the others of a group are compared with: lcwof's with the highest hm or, without one, the first."""
    return next((run for run in group if method_name(run) == "lcwof"), group[0])


def against(groups: Iterable[Sequence[Run]]) -> str:
    """What the runs of groups are compared with, in a word or two; nothing where no group has two runs."""
    names = {method_name(reference(group)) for group in groups if len(group) > 1}
    if not names:
        return ""
    return "lcwof" if names == {"lcwof"} else "lcwof or the best" if "lcwof" in names else "the best"


def to_reference(run: Run, group: Sequence[Run]) -> Paired | None:
    """hm minus the reference's over the same episodes; None for the reference itself, and where episodes differ."""
    best = reference(group)
    return None if best is run else paired_difference(run, best)
