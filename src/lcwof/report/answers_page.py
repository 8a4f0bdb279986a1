"""The parts of a page that recorded answers make: who is taken for whom, class by class, and how sure answers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from lcwof.engine.recorded import RecordedAnswers
from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.report.calibration import BINS, Calibration, Reliability, calibration
from lcwof.report.compare import Setting, label
from lcwof.report.confusion import ClassAccuracy, class_accuracies, confusion, mistakes
from lcwof.report.markup import figure, figures, heads, row, table
from lcwof.report.plotly_figures import classes_figure, reliability_figure
from lcwof.report.stream_compare import stream_label

_SURE = 2.0  # percentage points between confidence and accuracy within which confidence counts as fitting
_Group = Sequence[tuple[str, RecordedAnswers]]  # runs of one setting by name


class _Run(NamedTuple):
    name: str
    asked: int
    unit: str  # what it was asked for: episodes or streams
    answers: RecordedAnswers | None


def answers_sections(groups: Mapping[Setting, Sequence[Run]]) -> str:
    """Everything about the answers of all runs; a sentence about those without."""
    runs = {
        str(setting): [_Run(label(run, group), len(run.rows), "episodes", run.answers) for run in group]
        for setting, group in groups.items()
    }
    return _sections(runs) or f"<h2>Who is taken for whom</h2>{_missing(runs)}"


def stream_answers_sections(groups: Mapping[str, Sequence[StreamRun]]) -> str:
    """The same of streams, after their last session; nothing where no run has answers, as older ones."""
    return _sections(
        {
            f"{setting}, after the last session": [
                _Run(stream_label(run, group), len(run.streams), "streams", run.answers) for run in group
            ]
            for setting, group in groups.items()
        }
    )


def _sections(groups: Mapping[str, Sequence[_Run]]) -> str:
    recorded = {setting: _recorded(group) for setting, group in groups.items()}
    present = {setting: group for setting, group in recorded.items() if group}
    if not present:
        return ""
    return _confusions(present) + _missing(groups) + _classes(present) + _calibrations(present)


def _missing(groups: Mapping[str, Sequence[_Run]]) -> str:
    """A sentence about the runs without answers; nothing where there are none."""
    found = []
    for setting, group in groups.items():
        if names := [run.name for run in group if run.answers is None]:
            found.append(f"{', '.join(names)} ({setting})")
    if not found:
        return ""
    why = "Not here, because no answers were recorded (by an earlier version, or evaluate.answers = false):"
    return f'<p class="soft">{escape(why)} {escape("; ".join(found))}.</p>'


def _recorded(group: Sequence[_Run]) -> list[tuple[str, RecordedAnswers]]:
    return [(_named(run, run.answers), run.answers) for run in group if run.answers is not None]


def _named(run: _Run, answers: RecordedAnswers) -> str:
    few = len(answers.episodes) < run.asked
    return run.name + (f", {len(answers.episodes)} of {run.asked} {run.unit}" if few else "")


def _confusions(groups: Mapping[str, _Group]) -> str:
    note = (
        "Where samples go when all classes are in the running, in percent. What base samples lose to novel classes, "
        "and novel samples to base classes, is what calibration over both is about; the rest is lost among their own "
        "kind."
    )
    head = (
        '<tr><th></th><th colspan="3" scope="colgroup">base samples taken for</th>'
        '<th colspan="3" scope="colgroup">novel samples taken for</th></tr>'
        + heads(["", "their class", "another base", "a novel class", "their class", "another novel", "a base class"])
    )
    parts = []
    for setting, group in groups.items():
        rows = []
        for name, answers in group:
            found = confusion(answers)
            rows.append(row(name, [f"<td>{share:.1f}</td>" for share in (*found.base, *found.novel)]))
        parts.append(table(f"<b>{escape(setting)}</b> over all queries, %", head, rows))
    return f'<h2>Who is taken for whom</h2><p class="soft">{note}</p>{"".join(parts)}'


def _classes(groups: Mapping[str, _Group]) -> str:
    note = (
        "Percent right among all classes, by class, and the pairs of classes mistaken most: of the samples asked while "
        "both were in the running, how many of the one were taken for the other."
    )
    parts = []
    for setting, group in groups.items():
        for name, answers in group:
            base, novel = class_accuracies(answers)
            parts.append(figure(name, f"{setting}. {_range(base, novel)}", classes_figure(base, novel)))
            parts.append(_mistakes(name, answers))
    return f'<h2>Class by class</h2><p class="soft">{note}</p>{figures(parts)}'


def _range(base: Sequence[ClassAccuracy], novel: Sequence[ClassAccuracy]) -> str:
    """The best and the worst class of each kind, in words."""
    said = []
    for kind, part in (("Base", base), ("Novel", novel)):
        best, worst = part[0], part[-1]
        said.append(f"{kind}: best {best.name} ({best.accuracy:.1f}), worst {worst.name} ({worst.accuracy:.1f}).")
    return " ".join(said)


def _mistakes(name: str, answers: RecordedAnswers) -> str:
    found, old = mistakes(answers), set(answers.base)

    def named(name: str) -> str:
        return f"{name} ({'base' if name in old else 'novel'})"

    rows = [
        row(named(m.true), [f"<td>{escape(named(m.answered))}</td><td>{m.share:.1f}</td><td>{m.times}</td>"])
        for m in (*found.novel, *found.base)
    ]
    few = f"; {found.left_out} pairs that met fewer than {found.together} times are left out"
    title = f"<b>{escape(name)}</b> mistaken most{few if found.left_out else ''}"
    return table(title, heads(["sample of", "taken for", "%", "times"]), rows, "wrap")


def _calibrations(groups: Mapping[str, _Group]) -> str:
    note = (
        "Answers sorted by their confidence, the softmax probability among all classes, into "
        f"{BINS} bins of equal width. On the dotted line, 80% of the answers given with 80% confidence are right; "
        "below it a method is too sure. The larger a mark, the more answers. ECE, the expected calibration error, is "
        "the mean distance from that line over all answers, in percentage points. Where a method's scores are no "
        "probabilities (distances, cosines), it says that they should not be read as such, not that the answers are "
        "worse."
    )
    head = (
        '<tr><th></th><th colspan="3" scope="colgroup">base samples</th>'
        '<th colspan="3" scope="colgroup">novel samples</th></tr>' + heads(["", *("confidence", "right", "ECE") * 2])
    )
    tables, drawn = [], []
    for setting, group in groups.items():
        found = [(name, calibration(answers)) for name, answers in group]
        rows = [row(name, _cells(each)) for name, each in found]
        tables.append(table(f"<b>{escape(setting)}</b> means over all queries, %", head, rows))
        for name, each in found:
            said = f"{setting}. Base samples: {_sureness(each.base)}; novel: {_sureness(each.novel)}."
            drawn.append(figure(name, said, reliability_figure(each)))
    heading = f'<h2>How far confidence can be trusted</h2><p class="soft">{note}</p>'
    return heading + "".join(tables) + figures(drawn)


def _cells(found: Calibration) -> list[str]:
    values = [v for part in (found.base, found.novel) for v in (part.mean_confidence, part.accuracy, part.error)]
    return [f"<td>{value:.1f}</td>" for value in values]


def _sureness(part: Reliability) -> str:
    """Whether confidence fits, in words."""
    gap = part.mean_confidence - part.accuracy
    if abs(gap) <= _SURE:
        return f"as sure as right (ECE {part.error:.1f})"
    return f"too {'sure' if gap > 0 else 'modest'} by {abs(gap):.1f} points (ECE {part.error:.1f})"
