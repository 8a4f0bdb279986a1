"""Calibration by hand, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from runs_by_hand import four_answers_twice, without_the_last
from sklearn.calibration import calibration_curve

from lcwof.report import calibration, expected_calibration_error, reliability


def test_base_and_novel_samples_are_judged_apart() -> None:
    """Every answer has a bin of its own, so ECE is the mean gap."""
    found = calibration(four_answers_twice())
    assert found.base.error == pytest.approx((20 + 40 + 0 + 80) / 4, abs=0.1)
    assert found.novel.error == pytest.approx((10 + 60 + 50 + 30) / 4, abs=0.1)
    assert (found.base.accuracy, found.novel.accuracy) == (75.0, 50.0)
    assert found.base.mean_confidence == pytest.approx(60.0, abs=0.1)
    assert found.novel.mean_confidence == pytest.approx(67.5, abs=0.1)


def test_what_was_not_asked_has_no_confidence() -> None:
    found = calibration(without_the_last())
    assert (int(found.base.count.sum()), int(found.novel.count.sum())) == (3, 4)
    assert found.base.mean_confidence == pytest.approx((80 + 40 + 100) / 3, abs=0.1)


def test_the_bins_are_those_of_scikit_learn() -> None:
    draws = np.random.default_rng(0)
    confidence = draws.uniform(0.2, 1.0, 5000)
    right = draws.uniform(size=5000) < confidence**2
    found = reliability(confidence, right)
    share, mean = calibration_curve(right, confidence, n_bins=15)
    filled = found.count > 0
    assert found.count.sum() == 5000 and list(filled) == [False] * 3 + [True] * 12
    assert np.allclose(found.right[filled], 100 * share) and np.allclose(found.confidence[filled], 100 * mean)
    assert np.isnan(found.right[0])


def test_confidence_that_is_right_as_often_as_it_says_has_no_error() -> None:
    confidence, right = np.full(10, 0.7), np.arange(10) < 7
    assert expected_calibration_error(confidence, right) == pytest.approx(0.0, abs=1e-9)
    assert expected_calibration_error(np.ones(4), np.zeros(4, bool)) == 100.0


def test_the_ends_of_the_scale_are_in_the_outer_bins() -> None:
    assert reliability(np.array([0.0, 0.5, 1.0]), np.ones(3, bool), bins=2).count.tolist() == [2, 1]
