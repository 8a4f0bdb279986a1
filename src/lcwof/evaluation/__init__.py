"""Measures as pure functions, the protocols that produce them, and the choice of settings on validation classes."""

from lcwof.evaluation.answers import Answers
from lcwof.evaluation.candidates import Candidate, Tried, Tuning
from lcwof.evaluation.gfsl import Measured, prepare, run_episodes
from lcwof.evaluation.metrics import MEASURES, accuracy, harmonic_mean, mean_and_interval, measures
from lcwof.evaluation.tune import combinations, tune, tune_streams

__all__ = [
    "MEASURES",
    "Answers",
    "Candidate",
    "Measured",
    "Tried",
    "Tuning",
    "accuracy",
    "combinations",
    "harmonic_mean",
    "mean_and_interval",
    "measures",
    "prepare",
    "run_episodes",
    "tune",
    "tune_streams",
]
