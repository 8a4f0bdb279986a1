"""Incremental runs side by side: which may stand so, what they come to, and how they differ over the same streams."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from lcwof.engine.stream import StreamRun
from lcwof.report.compare import Paired, folder_name, method_name, pair_up, reference
from lcwof.report.streams import class_outcomes, kind_of, order_of, what_of
from lcwof.report.table import cell, difference_words, paired_json, plain_cell

BY_SESSION = ("hm", "J/J")  # the measures that tables follow from session to session


def alike(runs: Sequence[StreamRun]) -> dict[str, list[StreamRun]]:
    """Runs by their setting, in words and in order; within one the highest hm in the last session first."""
    groups: dict[str, list[StreamRun]] = {}
    for run in sorted(runs, key=lambda run: (_setting(run), -run.summary()[-1]["hm"][0])):
        groups.setdefault(_setting(run), []).append(run)
    return groups


def _setting(run: StreamRun) -> str:
    return what_of(run) + order_of(run)


def stream_label(run: StreamRun, group: Sequence[StreamRun]) -> str:
    """The method, with the run folder's name where another run of the same kind stands beside it."""
    twins = [other.path for other in group if kind_of(other) == kind_of(run)]
    return kind_of(run) if len(twins) < 2 else f"{kind_of(run)} ({folder_name(run.path, twins)})"


def outcome(run: StreamRun) -> dict[str, tuple[float, float]]:
    """What a run comes to, mean and interval: the measures of the last session, then those of whole streams."""
    last = run.summary()[-1]
    return {**{name: last[name] for name in ("hm", "J/J", "B/J", "N/J")}, **run.totals()}


def outcome_heads(group: Sequence[StreamRun]) -> list[str]:
    """What tables name the columns: hm and its difference first, as the others may lie beyond the edge of a screen."""
    first, *others = outcome(group[0])
    return [first, f"hm to {stream_label(reference(group), group)}", *others, "images kept"]


def images_kept(run: StreamRun) -> int:
    """How many images the exemplar memory holds in the end."""
    return int(run.streams[0][-1]["kept"])


def sessions_of(group: Sequence[StreamRun], measure: str) -> list[int]:
    """The sessions that have a measure, from 1: there is no hm before there are novel classes."""
    return [number for number, found in enumerate(group[0].summary(), start=1) if measure in found]


def same_streams(a: StreamRun, b: StreamRun) -> bool:
    """Whether stream i is the same in both runs: data, sessions, queries, order and seed decide a stream."""

    def decided_by(run: StreamRun) -> tuple[object, ...]:
        recipe, about = run.about["recipe"], run.about
        deciding = ("shuffle", "seed") if about["listed"] else ("queries", "shuffle", "seed")  # lists have their own
        how = [recipe["stream"].get(name) for name in deciding]
        options = recipe.get("data", {}).get("options")
        return options, how, *(about[name] for name in ("data", "classes", "ways", "shot", "listed"))

    return decided_by(a) == decided_by(b)


def stream_to_reference(run: StreamRun, group: Sequence[StreamRun]) -> Paired | None:
    """hm of the last session minus the reference's over the same streams; None for the reference itself, and where the
    streams are others."""
    return stream_difference(run, reference(group))


def stream_difference(run: StreamRun, other: StreamRun) -> Paired | None:
    """hm of the last session, a stream's minus the same one's of another run; None where the streams are others."""
    if run is other or not same_streams(run, other):
        return None
    counted = max(len(run.distinct), len(other.distinct))  # a stream that all others repeat is paired with each
    both = (each.streams[:counted] for each in (run, other))
    mine, theirs = ({stream[0]["stream"]: stream[-1]["hm"] for stream in streams} for streams in both)
    return pair_up(mine, theirs)


def reference_words(run: StreamRun, group: Sequence[StreamRun]) -> str:
    """That difference in words, or a dash."""
    paired = stream_to_reference(run, group)
    return "–" if paired is None else difference_words(paired)


def compared_markdown(runs: Sequence[StreamRun]) -> str:
    """For each setting with several runs what they come to, then hm and J/J by session, as Markdown tables, the highest
    hm bold; empty where no runs can be compared."""
    tables = []
    for setting, group in alike(runs).items():
        if len(group) > 1:
            tables += [f"**{plain_cell(setting)}**, mean and 95% interval over streams, %\n", _outcomes(group)]
            tables += [_by_session(group, measure) for measure in BY_SESSION]
    return "\n".join(tables)


def _outcomes(group: Sequence[StreamRun]) -> str:
    best = max(outcome(run)["hm"][0] for run in group)
    rows = []
    for run in group:
        found = {name: cell(*value) for name, value in outcome(run).items()}
        if outcome(run)["hm"][0] == best:
            found["hm"] = f"**{found['hm']}**"
        who = [plain_cell(stream_label(run, group)), str(len(run.distinct))]
        hm, *others = found.values()
        rows.append([*who, hm, reference_words(run, group), *others, str(images_kept(run))])
    return _table(["method", "streams", *map(plain_cell, outcome_heads(group))], rows)


def _by_session(group: Sequence[StreamRun], measure: str) -> str:
    sessions = sessions_of(group, measure)
    rows = [
        [plain_cell(stream_label(run, group)), *(cell(*run.summary()[at - 1][measure]) for at in sessions)]
        for run in group
    ]
    return _table([f"{measure}, session", *map(str, sessions)], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|---|" + "---:|" * (len(heads) - 1)
    lines = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def streams_json(runs: Sequence[StreamRun]) -> list[dict[str, Any]]:
    """The same for programs; an interval is None where a single stream gives none."""

    def pair(value: tuple[float, float]) -> dict[str, float | None]:
        return {"mean": round(value[0], 4), "interval": None if isnan(value[1]) else round(value[1], 4)}

    found = []
    for group in alike(runs).values():
        for run in group:
            paired = stream_to_reference(run, group)
            compared = {
                "compared with": method_name(reference(group)) if len(group) > 1 else None,
                "difference": None if paired is None else paired_json(paired),
            }
            found.append(
                {
                    "protocol": "ifsl",
                    "method": method_name(run),
                    "data": run.about["data"],
                    "streams": len(run.distinct),
                    "sessions": [{name: pair(value) for name, value in summary.items()} for summary in run.summary()],
                    "matrix": [[round(value, 4) for value in row] for row in run.matrix()],
                    **{name: pair(value) for name, value in run.totals().items()},
                    "classes": [outcome._asdict() for outcome in class_outcomes(run)],
                    **compared,
                    "folder": str(run.path),
                }
            )
    return found
