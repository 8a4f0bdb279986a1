"""Whether confidence can be trusted: of the answers given with 80% confidence, are 80% right?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcwof.engine.recorded import RecordedAnswers

BINS = 15  # of equal width, as is usual since Guo et al., 2017


@dataclass(frozen=True)
class Reliability:
    """Answers sorted into bins by their confidence; all shares in percent, not a number where a bin is empty."""

    count: np.ndarray  # (bins,)
    confidence: np.ndarray  # (bins,) mean of the answers in a bin
    right: np.ndarray  # (bins,) accuracy of the answers in a bin

    @property
    def error(self) -> float:
        """The expected calibration error in percentage points: sum_b n_b / n |right_b - confidence_b|."""
        filled = self.count > 0
        gaps = np.abs(self.right[filled] - self.confidence[filled])
        return float((self.count[filled] * gaps).sum() / self.count.sum())

    @property
    def mean_confidence(self) -> float:
        return self._mean(self.confidence)

    @property
    def accuracy(self) -> float:
        return self._mean(self.right)

    def _mean(self, values: np.ndarray) -> float:
        return float((self.count * np.nan_to_num(values)).sum() / self.count.sum())


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> Reliability:
    """Bin b of B holds the confidences in (b/B, (b + 1)/B]. confidence: in 0 to 1; right: booleans of the same shape.

    >>> found = reliability(np.array([0.25, 0.75, 1.0]), np.array([True, False, True]), bins=2)
    >>> found.count.tolist(), found.confidence.tolist(), found.right.tolist()
    ([1, 2], [25.0, 87.5], [100.0, 50.0])
    """
    confidence, right = confidence.ravel().astype(np.float64), right.ravel()
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = 100 * np.bincount(which, confidence, bins) / count
        share = 100 * np.bincount(which, right, bins) / count
    return Reliability(count, mean, share)


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """ECE = sum_b n_b / n |accuracy_b - confidence_b| over bins of equal width, in percentage points.

    One answer is right at 25% confidence, a gap of 75; the two of the other bin are 87.5% sure and half of them right,
    a gap of 37.5. So (75 + 2 * 37.5) / 3:

    >>> expected_calibration_error(np.array([0.25, 0.75, 1.0]), np.array([True, False, True]), bins=2)
    50.0
    """
    return reliability(confidence, right, bins).error


@dataclass(frozen=True)
class Calibration:
    """Base and novel queries apart: a method may be too sure of the ones and too modest on the others."""

    base: Reliability
    novel: Reliability


def calibration(answers: RecordedAnswers) -> Calibration:
    true, answered, confidence = answers.queries()
    base = true < len(answers.base)
    right = true == answered
    return Calibration(reliability(confidence[base], right[base]), reliability(confidence[~base], right[~base]))
