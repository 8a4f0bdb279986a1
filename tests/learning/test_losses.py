from math import log

import pytest
import torch

from lcwof.learning import base_normalized_cross_entropy, cross_entropy, weight_constraint
from lcwof.learning.losses import distillation


def test_ce_bn_value_and_gradient_worked_by_hand() -> None:
    # exp of the logits: base 1 and 2, novel 3 and 1, so the sum is 7 and the first novel class has 3/7.
    base = torch.tensor([[[0.0, log(2.0)]]], requires_grad=True)
    novel = torch.tensor([[[log(3.0), 0.0]]], requires_grad=True)
    loss = base_normalized_cross_entropy(base, novel, torch.tensor([[0]]))
    torch.testing.assert_close(loss, torch.tensor([-log(3 / 7)]))
    loss.sum().backward()
    torch.testing.assert_close(novel.grad, torch.tensor([[[3 / 7 - 1, 1 / 7]]]))
    torch.testing.assert_close(base.grad, torch.tensor([[[1 / 7, 2 / 7]]]))


def test_ce_without_base_is_smaller_by_the_base_mass() -> None:
    base, novel = torch.tensor([[[0.0, log(2.0)]]]), torch.tensor([[[log(3.0), 0.0]]])
    label = torch.tensor([[0]])
    difference = base_normalized_cross_entropy(base, novel, label) - cross_entropy(novel, label)
    torch.testing.assert_close(difference, torch.tensor([log(7 / 4)]))


def test_losses_are_means_over_each_learners_own_batch() -> None:
    logits = torch.tensor([[[0.0, 0.0], [log(3.0), 0.0]], [[5.0, 5.0], [1.0, 1.0]]])
    loss = cross_entropy(logits, torch.tensor([[0, 0], [0, 1]]))
    torch.testing.assert_close(loss, torch.tensor([(log(2) + log(4 / 3)) / 2, log(2)]))


def test_weight_constraint_value_and_gradient() -> None:
    theta = {"w": torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True), "b": torch.tensor([[3.0], [1.0]])}
    anchor = {"w": torch.tensor([1.0, 0.0]), "b": torch.tensor([1.0])}
    value = weight_constraint(theta, anchor)
    torch.testing.assert_close(value, torch.tensor([8.0, 1.0]))
    value.sum().backward()
    torch.testing.assert_close(theta["w"].grad, torch.tensor([[0.0, 4.0], [-2.0, 0.0]]))


def test_distillation_looks_at_known_classes_alone_and_is_nothing_where_answers_agree() -> None:
    logits = torch.tensor([[[1.0, 2.0, 9.0]]])
    assert float(distillation(logits, torch.tensor([[[3.0, 4.0]]]), 2.0)) == pytest.approx(0.0, abs=1e-6)
    for heat in (1.0, 2.0):
        # Teacher 1/2, 1/2; student sigmoid(1 / T) and its rest: T^2 KL = T^2 (log 1/2 - (log s + log(1 - s)) / 2).
        s = torch.tensor(1 / heat).sigmoid()
        expected = heat**2 * float(torch.tensor(0.5).log() - (s.log() + (1 - s).log()) / 2)
        assert float(distillation(logits, torch.tensor([[[0.0, 0.0]]]), heat)) == pytest.approx(expected, rel=1e-5)
