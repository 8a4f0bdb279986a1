"""What each phase has made of a learner, in the plane."""

from __future__ import annotations

from lcwof.data import Dataset
from lcwof.engine import read_recipe
from lcwof.engine.overview import overview
from lcwof.models import BaseModel


def test_each_phase_is_shown_as_it_left_the_learner(strokes: Dataset, strokes_model: BaseModel) -> None:
    asked = {
        "data.name": "strokes",
        "evaluate.way": 3,
        "device": "cpu",
        "method.phase2.epochs": 20,
        "method.phase3.epochs": 20,
        "method.weight_constraint": 1.0,
        "method.phase3.lr_head": 0.1,
    }
    told: list[tuple[int, int]] = []
    one, two, three = overview(
        read_recipe([], asked, []), strokes_model, strokes, progress=lambda done, total: told.append((done, total))
    )
    assert told == sorted(told) and told[-1] == (40, 40), "progress over the epochs of both phases"
    for before, after in ((one, two), (two, three)):
        assert before.confidence != after.confidence and before.x != after.x, "another head, and another tail"
    right = [sum(r for r, novel in zip(p.right, p.novel, strict=True) if not novel) for p in (two, three)]
    assert right[1] > right[0], "phase 3 gives base classes their place back"
