"""The trade-off along phase 3, and for every bias, and their areas, by hand."""

from __future__ import annotations

import pytest
import torch
from runs_by_hand import four_answers_twice, lcwof_with_curves, make_curves, make_run

from lcwof.engine.recorded import RecordedAnswers
from lcwof.engine.run import Run
from lcwof.evaluation import Answers
from lcwof.evaluation.answers import answers
from lcwof.report import area_under_tradeoff, as_json, swept, tradeoff
from lcwof.report.tradeoff import swept_difference


def test_the_area_is_the_trapezoids_under_the_sorted_points() -> None:
    assert area_under_tradeoff([0.0, 100.0], [100.0, 90.0]) == pytest.approx(95.0)
    assert area_under_tradeoff([100.0, 0.0], [0.0, 100.0]) == pytest.approx(50.0)
    assert area_under_tradeoff([50.0], [80.0]) == 0.0
    # b 0, 50, 100 and n 90, 80, 40: 50 * 0.85 + 50 * 0.6; (50, 60) and (20, 70) are passed in both
    assert area_under_tradeoff([50.0, 0.0, 100.0, 50.0, 20.0], [60.0, 90.0, 40.0, 80.0, 70.0]) == pytest.approx(72.5)


def test_phase_3_of_a_run_is_followed_from_epoch_to_epoch() -> None:
    path = tradeoff(lcwof_with_curves())
    assert path is not None
    assert (path.phase, path.epochs) == ("phase 3", (0, 4))
    assert path.base == pytest.approx((20.0, 68.0)) and path.novel == pytest.approx((79.5, 70.5))
    assert path.ends == pytest.approx((89.5, 80.0))
    # from (0, 80) by (20, 79.5) and (68, 70.5) to (89.5, 0)
    assert path.area == pytest.approx(20 * 0.7975 + 48 * 0.75 + 21.5 * 0.3525)


def test_a_closed_form_or_a_phase_measured_once_has_no_trade_off() -> None:
    assert tradeoff(make_run("pn", [40.0])) is None
    moments = [("phase 2", 0, 0.0, 90.0, 90.0), ("phase 2", 5, 50.0, 50.0, 90.0), ("phase 3", 4, 70.0, 68.0, 89.5)]
    assert tradeoff(make_run("lcwof", [70.0, 71.0], curves=make_curves(moments))) is None


def test_the_ends_are_the_highest_on_the_way() -> None:
    moments = [("phase 2", 0, 0.0, 90.0, 90.0), ("phase 3", 0, 70.0, 20.0, 89.0), ("phase 3", 4, 60.0, 68.0, 85.0)]
    curves = make_curves(moments)
    for curve in curves:
        curve["N/N"] = [50.0, 82.0, 78.0]
    path = tradeoff(make_run("lcwof", [64.0, 65.0], curves=curves))
    assert path is not None and path.ends == pytest.approx((89.0, 82.0))


def with_bounds(run: Run, bounds: list[list[float]]) -> Run:
    """Two base and two novel queries an episode."""
    true, answered = torch.tensor([2, 3, 0, 1]), torch.zeros(len(bounds), 4, dtype=torch.int16)
    given = Answers(torch.tensor([[0, 1]] * len(bounds)), true, answered, answered.half(), torch.tensor(bounds).half())
    run.answers = RecordedAnswers(("a", "b"), ("c", "d"), tuple(range(len(bounds))), given)
    return run


def test_every_bias_of_novel_classes_is_tried() -> None:
    inf = float("inf")
    # Episode 0: a bias above -1 makes one novel sample right, above 3 the other; up to 2 and up to 5 base ones are. Of
    # the four pairs -1 < 2, -1 < 5 and 3 < 5. Episode 1: one of each is wrong whatever the bias; 0 < 1.
    run = with_bounds(make_run("lcwof", [50.0, 50.0]), [[-1.0, 3.0, 2.0, 5.0], [0.0, inf, -inf, 1.0]])
    found = swept(run)
    assert found is not None and found.areas == {0: 75.0, 1: 25.0}
    assert found.area[0] == 50.0
    # With no base sample right, one and both: N/J is 100, 100, 50 in episode 0 and 50, 50, 0 in episode 1.
    assert found.base == (0.0, 50.0, 100.0) and found.novel == (75.0, 75.0, 25.0)
    other = with_bounds(make_run("pn", [40.0, 40.0]), [[0.0, 0.0, 5.0, 5.0], [0.0, 0.0, 5.0, 5.0]])
    paired = swept_difference(other, run)
    assert paired is not None and paired.mean == 50.0 and swept_difference(run, run) is None


def test_a_base_sample_is_right_up_to_its_bound_and_a_novel_one_above() -> None:
    found = swept(with_bounds(make_run("lcwof", [50.0]), [[2.0, 2.0, 2.0, 2.0]]))
    assert found is not None and found.areas == {0: 0.0}


def test_answers_without_bounds_have_no_swept_trade_off() -> None:
    run = make_run("pn", [40.0, 41.0])
    assert swept(run) is None
    run.answers = four_answers_twice()
    assert swept(run) is None and as_json([run])[0]["AUSUC"] is None


def test_bounds_are_where_the_measures_change_sides() -> None:
    draws = torch.Generator().manual_seed(0)
    logits, true = torch.randn(3, 40, 7, generator=draws), torch.arange(40) % 7
    given = answers(logits, true, torch.zeros(3, 2, dtype=torch.int16))
    for bias in (-1.0, 0.0, 0.5, 2.0):
        biased = logits + torch.tensor([0.0] * 5 + [bias] * 2)
        right = biased.argmax(-1) == true
        assert given.bound is not None
        assert torch.equal(right, torch.where(true >= 5, given.bound < bias, given.bound >= bias))
