"""The paper's measures as pure functions, in percent.

X/Y reads "samples of X, classified in the space of Y": B base, N novel, J joint.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

MEASURES = ("N/N", "B/B", "N/J", "B/J", "J/J", "hm", "am")


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Percent of samples whose largest logit is their label's. logits: (..., Q, C); labels: (..., Q). Returns (...).

    >>> accuracy(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor(50.)
    """
    return (logits.argmax(-1) == labels).float().mean(-1) * 100


def harmonic_mean(a: Tensor, b: Tensor) -> Tensor:
    """2ab / (a + b), and 0 where both are 0.

    >>> harmonic_mean(torch.tensor([60.0, 0.0]), torch.tensor([30.0, 0.0]))
    tensor([40.,  0.])
    """
    return 2 * a * b / (a + b).clamp_min(1e-12)


def measures(novel_logits: Tensor, novel_labels: Tensor, base_logits: Tensor, base_labels: Tensor, base: int) -> Tensor:
    """All measures of E learners, (E, len(MEASURES)).

    novel_logits: (E, Q_N, C), joint logits of novel samples; novel_labels: (E, Q_N), positions among the novel classes;
    base_logits: (E, Q_B, C); base_labels: (E, Q_B); base: the number of base classes, whose logits come first.
    """
    nn = accuracy(novel_logits[..., base:], novel_labels)
    bb = accuracy(base_logits[..., :base], base_labels)
    nj = accuracy(novel_logits, novel_labels + base)
    bj = accuracy(base_logits, base_labels)
    n, b = novel_labels.shape[-1], base_labels.shape[-1]
    return torch.stack([nn, bb, nj, bj, (nj * n + bj * b) / (n + b), harmonic_mean(nj, bj), (nj + bj) / 2], dim=-1)


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95% interval, 1.96 s / sqrt(n) with s the sample standard deviation.

    >>> mean_and_interval([1.0, 3.0])
    (2.0, 1.96)
    """
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, float("nan")
    deviation = sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, round(1.96 * deviation / sqrt(n), 12)
