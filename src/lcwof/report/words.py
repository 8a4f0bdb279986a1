"""What the numbers say, in sentences: who came first, whether that is more than chance, what each phase did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from lcwof.engine.run import Run
from lcwof.report.compare import Paired, Setting, by_setting, label, method_name, paired_difference, reference
from lcwof.report.curves import learning_curves
from lcwof.report.table import cell

_KEPT = 1.0  # percentage points within which an accuracy counts as kept
_BALANCED = 5.0  # percentage points between N/J and B/J within which a classifier counts as balanced


@dataclass(frozen=True)
class Account:
    """What happened in one setting: the ranking in a sentence or two, then further sentences."""

    setting: Setting
    lead: str
    further: tuple[str, ...]


def what_happened(runs: Sequence[Run]) -> list[Account]:
    """An account of each setting, written from the numbers alone."""
    accounts = []
    for setting, group in by_setting(runs).items():
        further = [sentence for run in group for sentence in [_along(run, label(run, group))] if sentence]
        accounts.append(Account(setting, _ranking(group), tuple(further + _cautions(group))))
    return accounts


def _ranking(group: Sequence[Run]) -> str:
    first = group[0]
    name, hm = label(first, group), cell(*first.summary()["hm"])
    if len(group) == 1:
        return f"{name} reached hm {hm} over {_episodes(len(first.rows))}; no other method was run."
    other = group[1] if reference(group) is first else reference(group)
    which = "the next" if other is group[1] else f"in place {group.index(other) + 1} of {len(group)}"
    lead = f"{name} came first with hm {hm}. {label(other, group)}, {which}, has hm {cell(*other.summary()['hm'])}"
    return f"{lead}: {_difference(paired_difference(first, other))}"


def _difference(paired: Paired | None) -> str:
    if paired is None:
        return "the two did not run the same episodes, so only their separate intervals can be compared."
    if isnan(paired.interval):
        return f"a difference of {paired.mean:+.2f} on the one episode both ran, too few to say more."
    difference = (
        f"a difference of {paired.mean:+.2f} ± {paired.interval:.2f} over the same {_episodes(paired.episodes)}"
    )
    if not paired.clear:
        return f"{difference}, within its 95% interval: the order may be chance."
    return f"{difference}, more than its 95% interval."


def _along(run: Run, name: str) -> str | None:
    """What learning did, from the run's curves."""
    curves = learning_curves(run)
    if curves is None:
        return None
    first, last = curves.phases[0], curves.phases[-1]
    start, then = curves.at(first.name, last=False), curves.at(first.name)
    text = f"{name}, after {first.name}: {_lean(then)}; B/B {_moved(start['B/B'], then['B/B'])}; hm {then['hm']:.1f}."
    if last is not first:
        end = curves.at(last.name)
        text += f" After {last.name}: {_lean(end)}; B/B {_moved(then['B/B'], end['B/B'])}; "
        text += f"hm {_moved(then['hm'], end['hm'])}."
    return text


def _lean(at: dict[str, float]) -> str:
    """Which classes the joint classifier favours. The own-space accuracies are the ceiling of each side."""
    gap = at["N/J"] - at["B/J"]
    numbers = f"N/J {at['N/J']:.1f}, B/J {at['B/J']:.1f}"
    if abs(gap) <= _BALANCED:
        return f"balanced, {numbers}"
    return f"leaning to the {'novel' if gap > 0 else 'base'} classes, {numbers}"


def _moved(before: float, after: float) -> str:
    """How an accuracy changed.

    >>> _moved(76.4, 76.2), _moved(76.4, 31.0)
    ('kept at 76.2', 'fell from 76.4 to 31.0')
    """
    if abs(after - before) <= _KEPT:
        return f"kept at {after:.1f}"
    return f"{'rose' if after > before else 'fell'} from {before:.1f} to {after:.1f}"


def _cautions(group: Sequence[Run]) -> list[str]:
    """What a reader should know before trusting the ranking."""
    found = []
    counts = {len(run.rows) for run in group}
    if any(learning_curves(run) for run in group):
        found.append(
            "Along learning a part of the base queries is asked, at the end all: what is said of phases may differ "
            "from the table by some tenths."
        )
    if len(counts) > 1:
        found.append(
            f"The runs have different numbers of episodes ({min(counts)} to {max(counts)}); differences are over those "
            "that both have."
        )
    if any(run.about.get("model") != group[0].about.get("model") for run in group):
        found.append("The runs do not all start from the same base model, so not every difference is the method's.")
    if len(group) > 1 and min(counts) < 30:
        found.append(f"With {_episodes(min(counts))}, the intervals themselves are rough.")
    tuned = {method_name(run) for run in group if run.about["recipe"].get("tuning")}
    untuned = {method_name(run) for run in group} - tuned
    if tuned and untuned:
        found.append(
            f"Only some methods had settings chosen on validation classes; not so: {', '.join(sorted(untuned))}."
        )
    elif len(group) > 1 and untuned:
        found.append("No settings were chosen on validation classes: the ranking is that of the settings as they are.")
    return found


def _episodes(n: int) -> str:
    return "1 episode" if n == 1 else f"{n} episodes"
