import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.metrics import accuracy_score

from lcwof.evaluation import MEASURES, harmonic_mean, mean_and_interval, measures
from lcwof.evaluation.metrics import Margins


def test_every_measure_agrees_with_scikit_learn() -> None:
    random = torch.Generator().manual_seed(0)
    base, way = 7, 3
    novel_logits = torch.randn(4, 30, base + way, generator=random)
    base_logits = torch.randn(4, 70, base + way, generator=random)
    novel_labels = torch.randint(0, way, (4, 30), generator=random)
    base_labels = torch.randint(0, base, (4, 70), generator=random)
    found = measures(novel_logits, novel_labels, base_logits, base_labels, base)
    for e in range(4):
        n, b = novel_logits[e].numpy(), base_logits[e].numpy()
        nn = 100 * accuracy_score(novel_labels[e], n[:, base:].argmax(1))
        bb = 100 * accuracy_score(base_labels[e], b[:, :base].argmax(1))
        nj = 100 * accuracy_score(novel_labels[e] + base, n.argmax(1))
        bj = 100 * accuracy_score(base_labels[e], b.argmax(1))
        truth = np.concatenate([novel_labels[e] + base, base_labels[e]])
        jj = 100 * accuracy_score(truth, np.concatenate([n, b]).argmax(1))
        expected = [nn, bb, nj, bj, jj, 2 * nj * bj / (nj + bj), (nj + bj) / 2]
        assert found[e].tolist() == pytest.approx(expected, abs=1e-4), MEASURES


def test_margins_tell_the_measures_under_any_bias() -> None:
    random = torch.Generator().manual_seed(1)
    base, way = 6, 4
    novel, old = torch.randn(3, 40, base + way, generator=random), torch.randn(3, 90, base + way, generator=random)
    labels = torch.randint(0, way, (3, 40), generator=random), torch.randint(0, base, (3, 90), generator=random)
    plain = measures(novel, labels[0], old, labels[1], base)
    margins = Margins.of(novel, labels[0], old, labels[1], base)
    biases = [0.0, -3.0, 5.0, -0.2, 0.4]
    found = margins.measures(plain, torch.tensor(biases))
    torch.testing.assert_close(found[0], plain)
    for bias, its in zip(biases, found, strict=True):
        lifted = bias * (torch.arange(base + way) >= base)
        expected = measures(novel + lifted, labels[0], old + lifted, labels[1], base)
        torch.testing.assert_close(its, expected)
    tried = margins.worth_trying()
    assert tried.isfinite().all() and len(tried) == 400
    nothing = torch.full((1, 2), torch.inf)
    assert Margins(nothing, -nothing).worth_trying().tolist() == [0.0], "where no bias helps"


def test_a_tie_of_base_and_novel_is_the_base_classs() -> None:
    logits = torch.tensor([[[1.0, 3.0], [1.0, 2.0]]])  # one base class, one novel
    zeros = torch.zeros(1, 2, dtype=torch.long)
    plain, margins = measures(logits, zeros, logits, zeros, 1), Margins.of(logits, zeros, logits, zeros, 1)
    for bias, novel in ((-2.0, 0.0), (-1.5, 50.0), (-1.0, 50.0), (0.0, 100.0)):
        found = margins.measures(plain, torch.tensor([bias]))[0, 0].tolist()
        assert found[MEASURES.index("N/J")] == novel and found[MEASURES.index("B/J")] == 100 - novel
        lifted = logits + bias * torch.tensor([0.0, 1.0])
        assert found == measures(lifted, zeros, lifted, zeros, 1)[0].tolist()


def test_harmonic_mean_is_nothing_if_either_side_is() -> None:
    assert harmonic_mean(torch.tensor(0.0), torch.tensor(80.0)) == 0
    assert harmonic_mean(torch.tensor(0.0), torch.tensor(0.0)) == 0
    assert float(harmonic_mean(torch.tensor(53.78), torch.tensor(62.89))) == pytest.approx(57.979, abs=1e-3)


def test_the_interval_is_the_real_95_percent_interval() -> None:
    values = np.random.default_rng(0).normal(50, 5, 600)
    mean, half = mean_and_interval(values.tolist())
    assert mean == pytest.approx(values.mean())
    assert half == pytest.approx(1.96 * values.std(ddof=1) / np.sqrt(600))


def test_a_mean_is_the_same_under_every_python() -> None:
    """`sum` rounds at every step before Python 3.12, and not since."""
    assert mean_and_interval([0.1] * 10)[0] == 0.1


def test_of_few_values_the_interval_is_student_s() -> None:
    values = np.array([60.0, 61.5, 59.0, 62.0, 60.5])
    _, half = mean_and_interval(values.tolist())
    low, high = scipy.stats.t.interval(0.95, 4, values.mean(), scipy.stats.sem(values))
    assert half == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(("n", "quantile"), [(29, 2.048407), (30, 1.96), (31, 1.96)])
def test_of_30_values_the_interval_is_that_of_many(n: int, quantile: float) -> None:
    values = [50.0 + i for i in range(n)]
    deviation = (sum((v - sum(values) / n) ** 2 for v in values) / (n - 1)) ** 0.5
    assert mean_and_interval(values)[1] == pytest.approx(quantile * deviation / n**0.5, rel=1e-6)
