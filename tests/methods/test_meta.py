"""The methods that are trained on made-up episodes, on cases worked by hand."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError
from lcwof.evaluation import prepare
from lcwof.methods import Task
from lcwof.methods.aan import Attractor, AttractorConfig, Attractors, FastProblem, recurrent_back_propagation
from lcwof.methods.dfsl import Generator
from lcwof.methods.embeddings import base_embeddings, cosine_head
from lcwof.methods.meta import FakeSource, meta_train
from lcwof.methods.pn import Prototypes, PrototypesConfig
from lcwof.methods.protogan import GAN, ProtoGAN, ProtoGANConfig, class_balanced, gaussian, gradient_penalty
from lcwof.methods.rgfsl import GraphConvolution, Relational, RelationalConfig, with_novel
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def test_what_made_up_episodes_show_they_do_not_ask_for(digits: Dataset, digits_model: BaseModel) -> None:
    base, _ = prepare(Prototypes(), digits_model, digits)
    groups = [torch.arange(10 * c, 10 * c + 6) for c in range(6)]  # six images a class: too few for 5 shots, 15 queries
    for shot, shown in ((1, 1), (5, 5), (9, 5)):
        fake = FakeSource(base, groups=groups).draw(0, episodes=3, way=2, shot=shot, queries=15)
        assert fake.support.shape == (3, 2 * shown) and fake.each == 6 - shown
        for one in range(3):
            assert not set(fake.support[one].tolist()) & set(fake.queries[one].tolist())
            assert (fake.support[one] // 10).tolist() == fake.fake[one][fake.labels[one]].tolist()
            classes = torch.cat([torch.arange(6), fake.fake[one]])
            assert (fake.queries[one] // 10).tolist() == classes[fake.answers[one]].tolist()


def test_training_that_comes_to_nothing_says_so(digits: Dataset, digits_model: BaseModel) -> None:
    base, _ = prepare(Prototypes(), digits_model, digits)
    module = nn.Linear(1, 1)
    with pytest.raises(LcwofError, match="pn: training on made-up episodes came to what is not a number"):
        meta_train(
            Prototypes(), replace(base, store=None), module, lambda step: module.weight.sum() * torch.nan, 1, 0.1
        )
    with pytest.raises(LcwofError, match="meta_adapt = 0 leaves nothing to train"):
        prepare(Prototypes(PrototypesConfig(meta_steps=1, meta_adapt=0)), digits_model, digits)


def test_parameters_may_be_trained_at_a_rate_of_their_own(digits: Dataset, digits_model: BaseModel) -> None:
    base, _ = prepare(Prototypes(), digits_model, digits)
    module = nn.Linear(1, 1)
    start = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    rates = {"bias": 0.5}
    plain = replace(base, store=None)
    meta_train(Prototypes(), plain, module, lambda step: module.weight.sum() + module.bias.sum(), 1, 0.1, rates=rates)
    moved = {name: float((start[name] - weight).detach()) for name, weight in module.named_parameters()}
    assert moved == {"weight": pytest.approx(0.1, rel=1e-4), "bias": pytest.approx(0.5, rel=1e-4)}  # Adam's first step


def test_a_weight_is_generated_from_shots_that_attend_each_by_itself() -> None:
    """Two shots of one class, along x and along y; the query matrix swaps the two, so each recalls the other's key."""
    weights = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    generator = Generator(weights, torch.tensor(10.0)).requires_grad_(False)
    generator.keys.copy_(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    generator.query.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    generator.gamma.fill_(1.0)
    generator.average.copy_(torch.tensor([1.0, 2.0]))
    generator.attend.copy_(torch.tensor([0.5, 4.0]))
    shots = torch.tensor([[[5.0, 0.0], [0.0, 0.1]]])
    found = generator(shots, torch.zeros(1, 2, dtype=torch.long), 1)[0, 0]
    e = torch.tensor(1.0).exp()
    near, far = e / (e + 1), 1 / (e + 1)
    first, second = far * weights[0] + near * weights[1], near * weights[0] + far * weights[1]
    expected = torch.tensor([1.0, 2.0]) * torch.tensor([0.5, 0.5]) + torch.tensor([0.5, 4.0]) * (first + second) / 2
    torch.testing.assert_close(found, expected)
    one = generator(shots[:, :1], torch.zeros(1, 1, dtype=torch.long), 1)[0, 0]
    torch.testing.assert_close(one, torch.tensor([1.0, 0.0]) + torch.tensor([0.5, 4.0]) * first, msg="along y it looks")
    alone = generator(shots[:, :1], torch.zeros(1, 1, dtype=torch.long), 1, torch.tensor([[1]]))[0, 0]
    torch.testing.assert_close(alone, torch.tensor([1.0, 0.0]) + torch.tensor([0.5, 4.0]) * weights[0])


def test_attractors_are_made_of_the_base_weights_that_class_means_resemble() -> None:
    head = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    config = AttractorConfig(hidden=1, tau=2.0, gamma=0.5)
    made = Attractors(head, torch.tensor(4.0), config).requires_grad_(False)
    made.inward.weight.copy_(torch.tensor([[0.5, 0.25]]))
    made.inward.bias.zero_()
    made.outward.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    made.outward.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    inputs = made.inputs(torch.tensor([[[8.0, 0.0], [4.0, 0.0]]]))
    torch.testing.assert_close(inputs, torch.tensor([[[2.0, 0.0, 1.0], [1.0, 0.0, 1.0]]]))
    found = made.problem(inputs, torch.zeros(1, 2, dtype=torch.long), 1)
    # Cosines 1 and 0 times tau; both scaled weights, (4, 0) and (0, 8), come to 2 inside, so tanh 2.
    hidden = torch.tensor(2.0).tanh()
    torch.testing.assert_close(found.attractors[0, 0], torch.tensor([1.0, 2.0, 3.0]) * hidden + made.outward.bias)
    made.inward.weight.copy_(torch.tensor([[0.5, 0.0]]))
    near = torch.tensor(2.0).sigmoid() * hidden  # only the first weight is seen inside, with softmax(2, 0)
    found = made.problem(inputs, torch.zeros(1, 2, dtype=torch.long), 1)
    torch.testing.assert_close(found.attractors[0, 0], torch.tensor([1.0, 2.0, 3.0]) * near + made.outward.bias)
    torch.testing.assert_close(found.base_logits, torch.tensor([[[8.0, 0.0], [4.0, 0.0]]]))
    torch.testing.assert_close(found.gamma, torch.full((3,), 0.5))


def test_novel_weights_of_aan_answer_for_embeddings_as_they_are(strokes: Dataset, strokes_model: BaseModel) -> None:
    """The problem is solved for scaled inputs and a constant; logits come to the same over embeddings."""
    method = Attractor(AttractorConfig(meta_steps=0))
    base, fitted = prepare(method, strokes_model, strokes)
    shots = EpisodeSource.of(strokes, "novel", 2, 3).draw([0]).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, [0]), "cpu")
    (state,) = method.grow(base, fitted, method.start(base, fitted, 1), task)
    maps = base.inputs.plain(task.support)
    solved = fitted.problem(fitted.inputs(maps), task.labels, 2).solve()
    torch.testing.assert_close(method.logits(state, maps)[..., -2:], fitted.inputs(maps) @ solved.mT)
    torch.testing.assert_close(method.logits(state, maps)[..., :-2], maps @ strokes_model.head.T)


def test_a_cosine_head_is_fitted_to_the_base_classes(strokes: Dataset, strokes_model: BaseModel) -> None:
    base, _ = prepare(Prototypes(), strokes_model, strokes)
    groups = base_embeddings(base)
    unit = F.normalize(torch.cat(groups), dim=-1)
    labels = torch.arange(len(groups)).repeat_interleave(torch.tensor([len(x) for x in groups]))

    def loss(steps: int) -> float:
        weights, scale = cosine_head(base, steps, 1e-2)
        torch.testing.assert_close(weights.norm(dim=-1), torch.ones(len(groups)))
        return float(F.cross_entropy(scale * unit @ weights.T, labels))

    assert loss(300) < 0.5 * loss(0)
    weights, scale = cosine_head(base, 0, 1e-2)
    torch.testing.assert_close(
        weights, torch.stack([F.normalize(F.normalize(x, dim=-1).mean(0), dim=0) for x in groups])
    )
    cosines = unit @ weights.T
    assert all(loss(0) <= F.cross_entropy(float(scale) * apart * cosines, labels) for apart in (0.9, 0.99, 1.01, 1.1))


def test_the_joint_classifier_learns_from_what_is_generated(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = ProtoGAN(ProtoGANConfig(meta_steps=0, steps=20))
    base, fitted = prepare(method, strokes_model, strokes)
    shots = EpisodeSource.of(strokes, "novel", 2, 1).draw([0]).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, [0]), "cpu")
    start = method.start(base, fitted, 1)
    (plain,) = method.grow(base, fitted, start, task)
    generate = GAN.generate
    monkeypatch.setattr(GAN, "generate", lambda gan, *given: -generate(gan, *given))
    (turned,) = method.grow(base, fitted, start, task)
    assert not torch.allclose(plain.weights, turned.weights, atol=1e-3)


def problem(attractor: Tensor, gamma: Tensor, base_logits: Tensor) -> FastProblem:
    """One learner, one novel class, one shot (1, 2)."""
    inputs, labels = torch.tensor([[[1.0, 2.0]]]), torch.zeros(1, 1, dtype=torch.long)
    return FastProblem(inputs, labels, base_logits, attractor, gamma)


def test_fast_weights_without_rivals_are_their_attractors() -> None:
    """Without base classes one class always wins: what is left is the quadratic, whose minimum is the attractor."""
    attractor = torch.tensor([[[3.0, -1.0]]])
    alone = problem(attractor, torch.tensor([0.5, 2.0]), torch.zeros(1, 1, 0))
    # 2 gamma (w - a) at w = 0.
    torch.testing.assert_close(alone.gradient(torch.zeros(1, 1, 2)), torch.tensor([[[-3.0, 4.0]]]))
    torch.testing.assert_close(alone.solve(10), attractor)


def test_fast_weights_balance_the_shots_and_the_attractor() -> None:
    # One base class of logit 0: w = a + (1 - s(w . x)) x / 2 gamma. With x = (1, 2), gamma = (1/2, 2), a = (1, -1):
    # w = (1 + r, -1 + r / 2), w . x = -1 + 2 r, so r = s(1 - 2 r), which is 1/2.
    found = problem(torch.tensor([[[1.0, -1.0]]]), torch.tensor([0.5, 2.0]), torch.zeros(1, 1, 1)).solve(60)
    torch.testing.assert_close(found, torch.tensor([[[1.5, -0.75]]]))


def test_fast_weights_of_many_classes_take_the_steps_they_need() -> None:
    def many(way: int) -> FastProblem:
        draw = torch.Generator().manual_seed(way)
        inputs = torch.randn(1, 5 * way, 16, generator=draw)
        labels = torch.arange(way).repeat_interleave(5)[None]
        zeros = torch.zeros(1, way, 16)
        return FastProblem(inputs, labels, torch.randn(1, 5 * way, 20, generator=draw), zeros, torch.full((16,), 0.01))

    problem = many(40)
    exact, few, found = problem.solve(20_000), problem.solve(60), problem.solve()
    assert float((few - exact).norm() / exact.norm()) > 0.01, "sixty steps are too few"
    assert float((found - exact).norm() / exact.norm()) < 1e-3
    two = [many(40), dataclasses.replace(many(40), gamma=torch.full((16,), 0.01), inputs=many(40).inputs / 4)]
    parts = (
        torch.cat([getattr(one, name) for one in two]) for name in ("inputs", "labels", "base_logits", "attractors")
    )
    together = FastProblem(*parts, problem.gamma).solve()
    torch.testing.assert_close(together[1:], two[1].solve(), msg="company does not matter")


def test_gradients_through_an_equilibrium_of_a_linear_step() -> None:
    # w = w / 2 + 3 a, so w = 6 a. J = 1/2, so a gradient of 1 becomes 1 + 1/2 + 1/4 + ... = 2, and through one step 6.
    a = torch.tensor(2.0, requires_grad=True)
    exact = recurrent_back_propagation(lambda w: w / 2 + 3 * a, torch.tensor(12.0), steps=40, damping=0.0)
    (gradient,) = torch.autograd.grad(exact, a)
    assert float(exact.detach()) == 12.0 and float(gradient) == pytest.approx(6.0)
    # Damped by 0.1: 1 + 0.4 + 0.16 after two steps, three times that through the step.
    damped = recurrent_back_propagation(lambda w: w / 2 + 3 * a, torch.tensor(12.0), steps=2, damping=0.1)
    (gradient,) = torch.autograd.grad(damped, a)
    assert float(gradient) == pytest.approx(3 * 1.56)


def test_gradients_through_the_fast_weights_are_the_implicit_ones() -> None:
    """dw/da = H^-1 2 Gamma with H = s (1 - s) x x^T + 2 Gamma, where s = 1/2 in the case worked above."""
    attractor = torch.tensor([[[1.0, -1.0]]], requires_grad=True)
    gamma = torch.tensor([0.5, 2.0], requires_grad=True)
    fast = problem(attractor, gamma, torch.zeros(1, 1, 1))
    novel = recurrent_back_propagation(fast.step, fast.solve(100), steps=200, damping=0.0)
    towards = torch.tensor([1.0, 3.0])
    found = torch.autograd.grad(novel, (attractor, gamma), towards.view(1, 1, 2))
    x, pull = torch.tensor([1.0, 2.0]), torch.diag(torch.tensor([1.0, 4.0]))
    solved = torch.linalg.solve(torch.outer(x, x) / 4 + pull, towards)
    torch.testing.assert_close(found[0].flatten(), pull @ solved)
    # The gradient of the objective changes by 2 (w - a) with gamma: (1, 0.5).
    torch.testing.assert_close(found[1], -solved * torch.tensor([1.0, 0.5]))


def test_one_graph_convolution_over_three_classes() -> None:
    base = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    graph = GraphConvolution(base, torch.tensor(10.0)).requires_grad_(False)
    graph.gamma.fill_(1.0)
    graph.own.copy_(torch.tensor([[1.0, 1.0], [2.0, 3.0]]))
    graph.mix.zero_()
    graph.mix[0, 1], graph.mix[1, 0] = torch.tensor([0.5, 0.25]), torch.tensor([4.0, 8.0])
    nodes = with_novel(base, torch.tensor([[[5.0, 0.0]]]), torch.zeros(1, 1, dtype=torch.long), 1)
    torch.testing.assert_close(nodes, torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]]))
    # Base classes take half of the novel class in the first dimension. The novel class has cosines 1 and 0 with them:
    # it takes (e, 1) / (e + 1), weighted by 4 and 8, beside twice itself.
    e = torch.tensor(1.0).exp()
    novel = torch.stack([2 + 4 * e / (e + 1), 8 / (e + 1)])
    torch.testing.assert_close(
        graph(nodes)[0], torch.stack([torch.tensor([1.5, 0.0]), torch.tensor([0.5, 1.0]), novel])
    )
    # Without base class 0, which plays the novel one, all of it is of base class 1.
    torch.testing.assert_close(graph(nodes, torch.tensor([[0]]))[0, 2], torch.tensor([2.0, 8.0]))


def test_classes_of_a_graph_resemble_each_other_in_a_learned_space() -> None:
    base = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    graph = GraphConvolution(base, torch.tensor(10.0)).requires_grad_(False)
    graph.gamma.fill_(1.0)
    graph.relate.copy_(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))  # the first dimension does not count
    nodes = with_novel(base, torch.tensor([[[5.0, 0.0]]]), torch.zeros(1, 1, dtype=torch.long), 1)
    # The novel class resembles neither base class there: half of each, and itself, each times 0.01.
    torch.testing.assert_close(graph(nodes)[0, 2], torch.tensor([1 + 0.01 * 0.5 + 0.01, 0.01 * 0.5]))


def test_later_sessions_convolve_prototypes_not_what_was_convolved(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = Relational(RelationalConfig(meta_steps=0, head_steps=5))
    base, fitted = prepare(method, strokes_model, strokes)
    shots = EpisodeSource.of(strokes, "novel", 4, 2).draw([0]).support
    draws, state = Randomness.of_episodes(0, [0]), method.start(base, fitted, 1)
    for at in (0, 2):
        (state,) = method.grow(base, fitted, state, Task.of_shots(shots[:, at : at + 2], draws, "cpu"))
    unit = F.normalize(base.inputs.plain(shots.flatten(1)), dim=-1).unflatten(1, (4, 2)).mean(2)
    nodes = torch.cat([fitted.weights[None], F.normalize(unit, dim=-1)], dim=1)
    torch.testing.assert_close(state.nodes, nodes)
    torch.testing.assert_close(state.weights, fitted(nodes))


def test_gradient_penalty_of_a_linear_critic() -> None:
    class Linear(nn.Module):
        def forward(self, embedded: Tensor, prototypes: Tensor) -> Tensor:
            return embedded @ torch.tensor([3.0, 4.0]) + prototypes.sum(-1)

    x, mixing = torch.randn(2, 5, 2), torch.full((2, 5, 1), 0.3)
    assert float(gradient_penalty(Linear(), x, -x, x, mixing)) == pytest.approx((5 - 1) ** 2)


def test_the_generator_finds_the_mean_of_a_class_beside_its_prototype() -> None:
    """Embeddings lie around their prototype shifted by (1, -0.5): that shift is what there is to learn."""
    config = ProtoGANConfig(hidden=32, noise=2, matching=10.0)  # a critic can then move the mean by 0.05
    gan, shift = GAN(2, torch.tensor(1.0), config), torch.tensor([1.0, -0.5])
    optimiser = torch.optim.Adam(gan.parameters(), lr=5e-3, betas=config.meta_betas)
    for step in range(450):
        draws = Randomness.of_episodes(1, [step])
        prototypes = gaussian(draws["prototypes"], 8, 2)
        real = prototypes.repeat_interleave(8, dim=1) + shift + 0.3 * gaussian(draws["real"], 64, 2)
        optimiser.zero_grad()
        gan.loss(step, real, prototypes, config).backward()
        optimiser.step()
    prototypes = gaussian(Randomness.of_episodes(2, [0]), 8, 2)
    with torch.no_grad():
        made = gan.generate(prototypes, 200, Randomness.of_episodes(3, [0]))
    apart = made.view(8, 200, 2).mean(1) - prototypes[0]
    torch.testing.assert_close(apart.mean(0), shift, atol=0.1, rtol=0)


def test_what_the_trained_generator_makes_varies_as_embeddings_do(strokes: Dataset, strokes_model: BaseModel) -> None:
    """Of classes that it has not seen, with the default settings: not all that much, but more than before training."""

    def variation(embedded: Tensor) -> float:
        return float((embedded - embedded.mean(1, keepdim=True)).square().sum(-1).mean().sqrt())

    made = {}
    for steps in (0, ProtoGANConfig().meta_steps):
        base, (gan, _) = prepare(ProtoGAN(ProtoGANConfig(meta_steps=steps)), strokes_model, strokes)
        later = strokes.images.of_classes(strokes.split.val)
        real = torch.stack([base.inputs.plain(group[:20]) for group in later]) / gan.unit
        with torch.no_grad():
            found = gan.generate(real[:, :5].mean(1)[None], 20, Randomness.of_episodes(0, [0]))
        made[steps] = variation(found.view(real.shape)) / variation(real)
    before, after = made.values()
    assert after > 1.5 * before and after < 1.5, made


def test_players_of_the_gan_move_in_turn() -> None:
    gan = GAN(2, torch.tensor(1.0), ProtoGANConfig(hidden=4, noise=2, critic_steps=2))
    config = ProtoGANConfig(critic_steps=2)
    moved = []
    for step in range(3):
        gan.zero_grad()
        gan.loss(step, torch.randn(1, 6, 2), torch.randn(1, 3, 2), config).backward()
        moved.append(
            [player for player in ("generator", "critic") if getattr(gan, player).inward.weight.grad is not None]
        )
    assert moved == [["critic"], ["critic"], ["generator"]]


def test_every_class_counts_the_same_in_the_joint_classifier() -> None:
    # Cross-entropies log 2 (thrice, class 0) and log 4 (class 1, with logits 0 and log 3): the mean of log 2 and log 4.
    logits = torch.zeros(1, 4, 2)
    logits[0, 3, 0] = torch.tensor(3.0).log()
    found = class_balanced(logits, torch.tensor([[0, 0, 0, 1]]))
    torch.testing.assert_close(found, (torch.tensor([2.0]).log() + torch.tensor([4.0]).log()) / 2)
