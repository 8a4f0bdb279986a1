"""Settings that were tried, how each did, and which is best; a bias of few-shot classes is found, not tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import floor, isnan, log10, nan
from typing import Any, Literal

import torch
from torch import Tensor

from lcwof.config import replace_field
from lcwof.evaluation.metrics import MEASURES, Margins, mean_and_interval
from lcwof.methods import BEST

Settings = dict[str, Any]
Tests = list[tuple[Tensor, Margins]]  # of the same learners, one after the other: measures (E, MEASURES), and margins


@dataclass(frozen=True)
class Candidate:
    """One combination of settings and how it did on validation."""

    settings: dict[str, Any]
    hm: float
    interval: float
    novel: float  # N/J
    base: float  # B/J
    joint: float  # J/J

    @classmethod
    def of(cls, settings: dict[str, Any], values: Tensor) -> Candidate:
        """values: (episodes or streams, measures)."""
        hm, interval = mean_and_interval(values[:, MEASURES.index("hm")].tolist())
        return cls(settings, hm, interval, *(float(values[:, MEASURES.index(m)].mean()) for m in ("N/J", "B/J", "J/J")))

    def as_json(self) -> dict[str, Any]:
        """For files: an interval is None where a single episode gives none."""
        return {**asdict(self), "interval": None if isnan(self.interval) else self.interval}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Candidate:
        return cls(**{**found, "interval": nan if found["interval"] is None else found["interval"]})


@dataclass(frozen=True)
class Tuning:
    """What was tried and what was chosen."""

    method: str
    setting: str  # "5-way 1-shot"
    over: str  # "50 validation episodes"
    candidates: tuple[Candidate, ...]  # best first
    by: Literal["hm", "J/J"] = "hm"  # whose highest mean was chosen
    found: tuple[str, ...] = ()  # settings whose values were found from what was learned, not tried one by one
    diverged: tuple[Settings, ...] = ()  # combinations with which nothing can be learned: they have no candidates

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def why(self) -> str:
        text = f"{self.by} {worth(self.best, self.by):.2f}"
        if self.by == "hm" and not isnan(self.best.interval):
            text += f" ± {self.best.interval:.2f}"
        text += f" over {self.over}"
        if self.found:
            text += ", with the bias that is best there"
        if len(self.candidates) > 1:
            second = self.candidates[1]
            text += f", the best of {len(self.candidates)} settings (next {worth(second, self.by):.2f})"
        if self.diverged:
            text += f", {len(self.diverged)} more diverged"
        if edge := self.at_edge():
            text += f", at the edge of what was tried: {', '.join(edge)}"
        return text

    def at_edge(self) -> list[str]:
        """Numeric settings whose largest or smallest value was chosen, of three or more: beyond may be better still."""
        found = []
        for key, value in self.best.settings.items():
            tried = {candidate.settings[key] for candidate in self.candidates}
            numbers = key not in self.found and all(isinstance(x, (int, float)) for x in tried)
            if numbers and len(tried) > 2 and value and value in (min(tried), max(tried)):
                found.append(key)
        return found

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "candidates": [each.as_json() for each in self.candidates]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Tuning:
        tried = tuple(Candidate.from_json(each) for each in found["candidates"])
        told = {key: tuple(found.get(key, ())) for key in ("found", "diverged")}
        return cls(**{**found, "candidates": tried, **told})

    def chosen_by(self, by: Literal["hm", "J/J"]) -> Tuning:
        """The same candidates, the best by another measure first."""
        return replace(self, by=by, candidates=tuple(sorted(self.candidates, key=lambda c: -worth(c, by))))

    def apply(self, config: Any) -> Any:
        for key, value in self.best.settings.items():
            config = replace_field(config, key, value)
        return config


def worth(candidate: Candidate, by: str) -> float:
    return candidate.hm if by == "hm" else candidate.joint


class Tried:
    """What was tried already, so that an interrupted choice goes on. This one knows nothing and keeps nothing."""

    def get(self, settings: Settings) -> list[Candidate] | None:
        return None

    def add(self, settings: Settings, candidates: list[Candidate]) -> None:
        """Keep what a combination of a grid's values came to."""


def candidates_of(
    settings: dict[str, Any], field: str, found: dict[int, list[Tests]], measures: Sequence[str]
) -> Iterator[Candidate]:
    """The candidates that one learning gives: one for every epoch it was tested at or, if the best bias is asked for,
    one for each bias that is best by one of the measures."""
    for epoch, parts in found.items():
        own, groups = {**settings, **({field: epoch} if field else {})}, _joined(parts)
        if settings.get("novel_bias") != BEST:
            yield Candidate.of(own, _values(groups))
            continue
        for bias in sorted({_best_bias(groups, by) for by in measures}):
            yield Candidate.of({**own, "novel_bias": bias}, _values(groups, bias))


def _joined(groups: Sequence[Tests]) -> list[Tests]:
    """Learners that were tested on equally many queries together: biases are tried on few large tensors."""
    alike: dict[tuple[torch.Size, ...], list[Tests]] = {}
    for tests in groups:
        shapes = tuple(x.shape[1:] for _, margins in tests for x in (margins.novel, margins.base))
        alike.setdefault(shapes, []).append(tests)
    return [
        [
            (torch.cat([values for values, _ in same]), Margins.joined([margins for _, margins in same]))
            for same in zip(*each, strict=True)
        ]
        for each in alike.values()
    ]


def _values(groups: Sequence[Tests], bias: float | None = None) -> Tensor:
    """(E, measures): the mean over the tests of a learner, with a bias of few-shot classes if there is one."""
    if bias is not None:
        return _with_biases(groups, torch.tensor([bias], dtype=torch.double))[0]
    return torch.cat([torch.stack([values for values, _ in tests]).mean(0) for tests in groups])


def _with_biases(groups: Sequence[Tests], biases: Tensor) -> Tensor:
    """(B, E, measures): the same with each of the biases."""
    return torch.cat(
        [torch.stack([margins.measures(values, biases) for values, margins in tests]).mean(0) for tests in groups], 1
    )


def _best_bias(groups: Sequence[Tests], by: str) -> float:
    """The bias with the highest mean, to a thousandth of what the margins span; of equals the one nearest to 0."""
    every = [margins for tests in groups for _, margins in tests]
    spread = Margins(*(torch.cat([getattr(m, kind).flatten() for m in every]) for kind in ("novel", "base")))
    tried = spread.worth_trying().tolist()
    digits = 3 - floor(log10(max(tried) - min(tried) or 1.0))
    biases = sorted({0.0, *(round(bias, digits) for bias in tried)}, key=abs)
    means = _with_biases(groups, torch.tensor(biases, dtype=torch.double))[..., MEASURES.index(by)].mean(1)
    return biases[int(means.argmax())]
