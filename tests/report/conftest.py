"""Runs here have two or three episodes, so that their numbers can be worked out on paper."""

import pytest

from lcwof.evaluation import metrics


@pytest.fixture(autouse=True)
def intervals_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.96 standard errors, as of many episodes; Student's quantile of few has a test of its own."""
    monkeypatch.setattr(metrics, "_quantile", lambda n: 1.96)
