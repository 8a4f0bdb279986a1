import pytest
import torch
from torch._dynamo.testing import CompileCounter

from lcwof.compute import Compute
from lcwof.learning.sgd import SGD, clip_factors


def test_every_learner_descends_as_torch_alone_would() -> None:
    torch.manual_seed(0)
    start = {"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)}
    slopes = [{name: torch.randn_like(w) * scale for name, w in start.items()} for scale in (1.0, 50.0, 3.0)]
    rates = {"a": 0.1, "b": 0.01}
    together = {name: w.clone() for name, w in start.items()}
    optimiser = SGD(together, rates, momentum=0.9, decay=0.01, clip=5.0)
    for slope in slopes:
        optimiser.step([g.clone() for g in slope.values()])
    for learner in range(3):
        alone = {name: w[learner].clone().requires_grad_() for name, w in start.items()}
        groups = [{"params": [alone[name]], "lr": rates[name]} for name in alone]
        reference = torch.optim.SGD(groups, momentum=0.9, weight_decay=0.01)
        for slope in slopes:
            for name, weight in alone.items():
                weight.grad = slope[name][learner].clone()
            torch.nn.utils.clip_grad_norm_(list(alone.values()), 5.0)
            reference.step()
        for name, weight in alone.items():
            torch.testing.assert_close(together[name][learner], weight.detach())


@pytest.mark.parametrize("parts", [False, True])
def test_learners_may_have_rates_and_pulls_of_their_own(parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    compute = Compute(torch.device("cpu"), parts=parts)
    torch.manual_seed(0)
    start, anchor = {"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)}, {"a": torch.randn(4, 2)}
    rates, pulls = [0.1, 0.02, 0.3], [0.0, 2.0, 5.0]
    slopes = [{name: torch.randn_like(w) for name, w in start.items()} for _ in range(3)]
    together = {name: w.clone() for name, w in start.items()}
    each = {"a": torch.tensor(rates), "b": 0.01}
    optimiser = SGD(together, each, 0.9, 0.01, 5.0, anchor, torch.tensor(pulls), compute)
    for slope in slopes:
        optimiser.step([g.clone() for g in slope.values()])
    for learner, (rate, pull) in enumerate(zip(rates, pulls, strict=True)):
        alone = {name: w[learner : learner + 1].clone() for name, w in start.items()}
        reference = SGD(alone, {"a": rate, "b": 0.01}, 0.9, 0.01, 5.0, anchor, pull)
        for slope in slopes:
            reference.step([g[learner : learner + 1].clone() for g in slope.values()])
        for name, weight in alone.items():
            torch.testing.assert_close(together[name][learner], weight[0])


def test_clipping_one_learner_leaves_the_others() -> None:
    gradients = {"a": torch.tensor([[3.0, 0.0], [300.0, 0.0]]), "b": torch.tensor([[4.0], [400.0]])}
    factors = clip_factors(list(gradients.values()), 100.0)
    torch.testing.assert_close(factors, torch.tensor([1.0, 0.2]))


def test_heads_that_grow_are_stepped_by_what_was_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    counter, compiler = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: compiler(f, backend=counter, **options))
    cpu = torch.device("cpu")
    for classes in (3, 4, 6):
        start = {"tail": torch.randn(2, 4, 3), "head": torch.randn(2, classes, 5)}
        anchors = {"tail": torch.randn(4, 3)}
        found = []
        for compute in (Compute(cpu, parts=True), Compute(cpu)):
            weights = {name: w.clone() for name, w in start.items()}
            optimiser = SGD(weights, {"tail": 0.1, "head": 0.01}, 0.9, 0.01, 5.0, anchors, pull=0.5, compute=compute)
            for scale in (1.0, 30.0, 2.0):
                optimiser.step([scale * torch.ones_like(w) for w in start.values()])
            found.append(weights)
        for name in start:
            torch.testing.assert_close(found[0][name], found[1][name])
    assert counter.frame_count == 1


def test_one_gradient_tensor_may_be_that_of_two_weights() -> None:
    """As autograd has it of two biases that are added, where there is one position."""
    weights = {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}
    shared = torch.ones(2, 3)
    SGD(weights, {"a": 0.1, "b": 0.1}, 0.0, 0.5, 1e9).step([shared, shared])
    for weight in weights.values():
        torch.testing.assert_close(weight, torch.full((2, 3), 1 - 0.1 * (1 + 0.5)))
