"""The baselines on cases worked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.evaluation import prepare
from lcwof.methods import Task
from lcwof.methods.embeddings import class_means
from lcwof.methods.iw import Imprinting, ImprintingConfig
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.methods.pn import Prototypes, PrototypesConfig
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def base_of(embeddings: torch.Tensor) -> Any:
    """A base whose images are their embeddings."""
    return SimpleNamespace(inputs=SimpleNamespace(plain=lambda index: embeddings[index], device="cpu"))


def test_imprinted_weight_of_three_vectors() -> None:
    # Normalised: (1,0), (0,1), (0.6,0.8); their mean is (0.533, 0.6), of length 0.8028.
    base = base_of(torch.tensor([[2.0, 0.0], [0.0, 5.0], [3.0, 4.0]]))
    task = Task(torch.tensor([[0, 1, 2]]), torch.zeros(1, 3, dtype=torch.long), 1, Randomness.of_episodes(0, [0]))
    (state,) = Imprinting(ImprintingConfig(novel_bias=0.5)).learn(
        base, (torch.tensor([[1.0, 0.0]]), torch.tensor(10.0)), task
    )
    expected = torch.tensor([1.6 / 3, 0.6])
    torch.testing.assert_close(state.weights[0, 1], expected / expected.norm())
    logits = Imprinting().logits(state, torch.tensor([[[0.0, 3.0]]]))
    torch.testing.assert_close(logits, torch.tensor([[[0.0, 10 * (0.6 / float(expected.norm()) + 0.5)]]]))


def test_prototypes_are_nearest_means() -> None:
    base = base_of(torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]]))
    task = Task(torch.tensor([[0, 1, 2]]), torch.tensor([[0, 0, 1]]), 2, Randomness.of_episodes(0, [0]))
    fitted = (torch.tensor([[1.0, 3.0]]), 4.0)
    (state,) = Prototypes(PrototypesConfig(novel_bias=0.5)).learn(base, fitted, task)
    logits = Prototypes().logits(state, torch.tensor([[[1.0, 1.0]]]))
    torch.testing.assert_close(logits, torch.tensor([[[-4.0, -1.0 + 2.0, -32.0 + 2.0]]]))


def test_class_means_with_unequal_shots() -> None:
    embedded = torch.tensor([[[1.0], [2.0], [6.0], [10.0]]])
    means = class_means(embedded, torch.tensor([[1, 0, 0, 0]]), 2)
    torch.testing.assert_close(means, torch.tensor([[[6.0], [1.0]]]))


def test_methods_that_adapt_nothing_keep_the_order_of_base_logits(digits: Dataset, digits_model: BaseModel) -> None:
    """pn and iw only add classes: among the base classes nothing changes, whatever is learned."""
    for method in (Prototypes(), Imprinting()):
        base, fitted = prepare(method, digits_model, digits)
        found = []
        for number in (0, 1):
            task = Task.of_shots(
                EpisodeSource.of(digits, "novel", 2, 1).draw([number]).support,
                Randomness.of_episodes(0, [number]),
                "cpu",
            )
            *_, state = method.learn(base, fitted, task)
            found.append(method.logits(state, base.inputs.plain(digits.split.test[None]))[..., :6])
        torch.testing.assert_close(found[0], found[1])


def test_lambda_follows_the_shots_unless_set() -> None:
    assert LCwoF().constraint(1) == 5e2
    assert LCwoF().constraint(5) == 5e3
    assert LCwoF(LCwoFConfig(weight_constraint=7.0)).constraint(5) == 7.0
