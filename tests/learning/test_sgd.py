import torch

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


def test_clipping_one_learner_leaves_the_others() -> None:
    gradients = {"a": torch.tensor([[3.0, 0.0], [300.0, 0.0]]), "b": torch.tensor([[4.0], [400.0]])}
    factors = clip_factors(list(gradients.values()), 100.0)
    torch.testing.assert_close(factors, torch.tensor([1.0, 0.2]))
