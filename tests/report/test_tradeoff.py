"""The trade-off along phase 3 and its area, by hand."""

from __future__ import annotations

import pytest
from runs_by_hand import lcwof_with_curves, make_curves, make_run

from lcwof.report import area_under_tradeoff, tradeoff


def test_the_area_is_the_trapezoids_under_the_sorted_points() -> None:
    assert area_under_tradeoff([0.0, 100.0], [100.0, 100.0]) == pytest.approx(1.0)
    assert area_under_tradeoff([100.0, 0.0], [0.0, 100.0]) == pytest.approx(0.5)
    assert area_under_tradeoff([50.0], [80.0]) == 0.0
    # b 0, 50, 50, 100 and n 90, 80, 60, 40: 0.5 * 0.85 + 0 + 0.5 * 0.5
    assert area_under_tradeoff([50.0, 0.0, 100.0, 50.0], [60.0, 90.0, 40.0, 80.0]) == pytest.approx(0.675)


def test_phase_3_of_a_run_is_followed_from_epoch_to_epoch() -> None:
    path = tradeoff(lcwof_with_curves())
    assert path is not None
    assert (path.phase, path.epochs) == ("phase 3", (0, 4))
    assert path.base == pytest.approx((20.0, 68.0)) and path.novel == pytest.approx((79.5, 70.5))
    assert path.ends == pytest.approx((89.5, 80.0))
    # from (0, 80) by (20, 79.5) and (68, 70.5) to (89.5, 0)
    assert path.area == pytest.approx(0.2 * 0.7975 + 0.48 * 0.75 + 0.215 * 0.3525)
    assert path.passed == pytest.approx(0.48 * 0.75), "of which that much is not joined by straight lines"


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
