"""The paper's measures as pure functions, in percent.

X/Y reads "samples of X, classified in the space of Y": B base, N novel, J joint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, sqrt
from statistics import fmean

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
    return _all(nn, bb, nj, bj, novel_labels.shape[-1], base_labels.shape[-1])


def _all(nn: Tensor, bb: Tensor, nj: Tensor, bj: Tensor, novel: int, base: int) -> Tensor:
    """With those that follow, given the numbers of samples."""
    joint = (nj * novel + bj * base) / (novel + base)
    return torch.stack([nn, bb, nj, bj, joint, harmonic_mean(nj, bj), (nj + bj) / 2], dim=-1)


@dataclass(frozen=True)
class Margins:
    """What a bias of few-shot classes must exceed for a novel sample to be right among all classes, and may not exceed
    for a base sample to be. Infinite where no bias helps: wrong among its own kind."""

    novel: Tensor  # (E, Q_N)
    base: Tensor  # (E, Q_B)

    @classmethod
    def of(
        cls, novel_logits: Tensor, novel_labels: Tensor, base_logits: Tensor, base_labels: Tensor, base: int
    ) -> Margins:
        """From what `measures` takes."""

        def lead(logits: Tensor) -> Tensor:
            return logits[..., :base].amax(-1) - logits[..., base:].amax(-1)

        right = novel_logits[..., base:].argmax(-1) == novel_labels, base_logits[..., :base].argmax(-1) == base_labels
        novel = torch.where(right[0], lead(novel_logits), torch.inf)
        return cls(novel.cpu(), torch.where(right[1], lead(base_logits), -torch.inf).cpu())

    @classmethod
    def joined(cls, parts: Sequence[Margins]) -> Margins:
        """Of the learners of one, then of those of the next; asked equally many samples."""
        return cls(torch.cat([part.novel for part in parts]), torch.cat([part.base for part in parts]))

    def split(self, each: int) -> list[Margins]:
        """Of the first learners, `each` of them, then of the next."""
        return [Margins(*parts) for parts in zip(self.novel.split(each), self.base.split(each), strict=True)]

    def measures(self, values: Tensor, biases: Tensor) -> Tensor:
        """The measures (B, E, len(MEASURES)) that each of the biases (B,) makes of those without one."""

        def below(margins: Tensor) -> Tensor:  # (B, E): how many of a learner's margins
            ranked, asked = margins.sort(-1).values, biases.to(margins).expand(len(margins), -1)
            return torch.searchsorted(ranked, asked.contiguous()).to(values).mT

        nn, bb = (values[:, kind].expand(len(biases), -1) for kind in (0, 1))
        novel, base = self.novel.shape[-1], self.base.shape[-1]
        nj, bj = below(self.novel) / novel * 100, (base - below(self.base)) / base * 100
        return _all(nn, bb, nj, bj, novel, base)

    def worth_trying(self, points: int = 200) -> Tensor:
        """Biases spread like the margins of both kinds."""
        parts = torch.linspace(0, 1, points, dtype=torch.double)  # positions among millions are asked
        finite = [kind[kind.isfinite()].float() for kind in (self.novel, self.base)]
        return torch.cat([_quantiles(kind, parts) for kind in finite if len(kind)] or [torch.zeros(1)])


def _quantiles(values: Tensor, parts: Tensor) -> Tensor:
    ranked = values.sort().values  # torch.quantile takes 16 million at most
    return ranked[(parts * (len(ranked) - 1)).round().long()]


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95% interval, t s / sqrt(n) with s the sample standard deviation. t is 1.96 and, of
    fewer than 30 values, Student's quantile: of so few, s says little about the deviation.

    >>> mean_and_interval([1.0, 3.0] * 50)
    (2.0, 0.196987411791)
    """
    n = len(values)
    mean = fmean(values)  # `sum` of the same floats comes to another one before Python 3.12
    if n < 2:
        return mean, float("nan")
    deviation = sqrt(fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, round(_quantile(n) * deviation / sqrt(n), 12)


@cache
def _quantile(n: int) -> float:
    """Of the mean of n values, in standard errors, what 2.5% lie above.

    >>> round(_quantile(10), 3)
    2.262
    """
    if n >= 30:
        return 1.96
    from scipy.special import stdtrit  # takes half a second to import

    return float(stdtrit(n - 1, 0.975))
