"""Runs written by hand, so that every expected number can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lcwof.engine.recorded import RecordedAnswers
from lcwof.engine.run import Run
from lcwof.evaluation import MEASURES, Answers


def measures(nj: float, bj: float, nn: float = 80.0, bb: float = 90.0) -> dict[str, float]:
    values = (nn, bb, nj, bj, (nj + bj) / 2, 2 * nj * bj / (nj + bj) if nj + bj else 0.0, (nj + bj) / 2)
    return dict(zip(MEASURES, values, strict=True))


def make_run(method: str, nj: list[float], shot: int = 1, data: str = "digits", **more: Any) -> Run:
    """A run with B/J = N/J, so that hm = N/J, episode by episode."""
    seed, curves, settings = more.pop("seed", 0), more.pop("curves", []), more.pop("settings", {})
    evaluate = {"way": 5, "shot": shot, "episodes": len(nj), "queries": 15, "seed": seed, "curves": 0}
    about = {
        "recipe": {
            "data": {"name": data, "options": {}},
            "method": {"name": method, **settings},
            "evaluate": evaluate,
            "tuning": more.pop("tuning", {}),
        },
        "data": data,
        "classes": {"base": 5, "val": 0, "novel": 5},
        "queries": {"novel": 15, "base": 15},
        "model": {"data": data},
        "versions": {"lcwof": "0.1.0"},
        "hardware": "cpu",
        "seconds": 12.0,
    }
    rows = [{"episode": i, **measures(value, value)} for i, value in enumerate(nj)]
    return Run(Path(f"runs/{method}-{data}-{shot}"), {**about, **more}, rows, curves)


def make_curves(moments: list[tuple[str, int, float, float, float]], episodes: int = 2) -> list[dict[str, Any]]:
    """Curves from (phase, epoch, N/J, B/J, B/B); episode i lies i percentage points higher in N/J."""
    curves = []
    for i in range(episodes):
        points = [measures(nj + i, bj, bb=bb) for _, _, nj, bj, bb in moments]
        curve: dict[str, Any] = {"episode": i, "phase": [m[0] for m in moments], "epoch": [m[1] for m in moments]}
        curves.append({**curve, **{name: [p[name] for p in points] for name in MEASURES}})
    return curves


THREE_PHASES = [
    ("phase 2", 0, 0.0, 90.0, 90.0),
    ("phase 2", 5, 50.0, 50.0, 90.0),
    ("phase 2", 10, 79.0, 20.0, 89.5),
    ("phase 3", 0, 79.0, 20.0, 89.5),
    ("phase 3", 4, 70.0, 68.0, 89.5),
]


def lcwof_with_curves(**more: Any) -> Run:
    settings = {"phase2": {"epochs": 10}, "phase3": {"epochs": 4}}
    return make_run("lcwof", [69.0, 70.0], curves=make_curves(THREE_PHASES), settings=settings, **more)


def four_answers_twice() -> RecordedAnswers:
    """Base classes a and b; episode 0 has the novel classes d and c, episode 1 has c and e. One query a class.

    Episode 0: d as d (90%), c as b (60%), a as a (80%), b as c (40%).
    Episode 1: c as e (50%), e as e (70%), a as a (100%), b as b (20%).
    """
    answered = torch.tensor([[2, 1, 0, 3], [3, 3, 0, 1]], dtype=torch.int16)
    confidence = torch.tensor([[0.9, 0.6, 0.8, 0.4], [0.5, 0.7, 1.0, 0.2]], dtype=torch.float16)
    true, classes = torch.tensor([2, 3, 0, 1], dtype=torch.int16), torch.tensor([[1, 0], [0, 2]], dtype=torch.int16)
    return RecordedAnswers(("a", "b"), ("c", "d", "e"), (0, 1), Answers(classes, true, answered, confidence))


def without_the_last() -> RecordedAnswers:
    """The same, but in episode 1 nothing of b is asked."""
    recorded = four_answers_twice()
    true, answered = recorded.given.true.repeat(2, 1), recorded.given.answered
    true[1, 3] = answered[1, 3] = -1
    return replace(recorded, given=replace(recorded.given, true=true))
