"""Incremental few-shot learning with attention attractor networks (Ren, Liao, Fetaya, Zemel, NeurIPS 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means
from lcwof.methods.meta import FakeSource, cosine_logits, fresh_linear, meta_train, ruled_out

_ENOUGH = 8.0  # steps by the root of the condition number: distances shrink by e^-8 or more


@dataclass(frozen=True)
class AttractorConfig:
    hidden: int = 50  # units of the MLP that makes attractors of base weights
    tau: float = 2.0  # sharpness of attention to start from; sharper, attractors learn base classes by heart
    gamma: float = 0.01  # pull to start from; the source's 0.1 is for its embeddings, which are not of length 1
    solver_steps: int = 60  # accelerated gradient steps to the equilibrium, while attractors are trained
    back_steps: int = 20  # of recurrent back-propagation
    damping: float = 0.1  # of recurrent back-propagation
    meta_steps: int = 600  # of `meta_episodes`, where the source has 8,000 of one
    meta_lr: float = 1e-3
    meta_episodes: int = 8  # a step
    meta_way: int = 5
    meta_shots: tuple[int, ...] = (1, 5)  # in turn
    meta_queries: int = 15  # a class
    novel_bias: float = 0.0  # added to the logits of few-shot classes


@dataclass
class AttractorState(State):
    weights: Tensor  # (E, C, D)
    bias: Tensor  # (E, C)
    support: Tensor  # (E, M, D): embeddings of all shots seen so far
    labels: Tensor  # (E, M), positions among the few-shot classes


@dataclass(frozen=True)
class FastProblem:
    """The objective of the fast weights w of K novel classes, for E learners:

    1/M sum_i CE([w_b . x_i, w . x_i], y_i) + 1/K sum_k sum_d gamma_d (w_kd - a_kd)^2
    """

    inputs: Tensor  # x: (E, M, D)
    labels: Tensor  # y: (E, M), positions among the novel classes
    base_logits: Tensor  # w_b . x: (E, M, C_B)
    attractors: Tensor  # a: (E, K, D)
    gamma: Tensor  # (D,)

    def gradient(self, weights: Tensor) -> Tensor:
        way = weights.shape[1]
        joint = torch.cat([self.base_logits, self.inputs @ weights.mT], dim=-1).softmax(-1)
        errors = joint[..., -way:] - F.one_hot(self.labels, way)
        pull = 2 / way * self.gamma * (weights - self.attractors)
        return errors.mT @ self.inputs / self.inputs.shape[1] + pull

    @torch.no_grad()
    def rates(self) -> tuple[Tensor, Tensor]:
        """Step sizes (E, 1, D) with which gradient steps shrink distances, and a bound (E, 1, 1) on the condition
        number they leave: the Hessian of a softmax is at most 1/2, a norm of the Gram matrix at most its row sums."""
        way, shots = self.attractors.shape[1], self.inputs.shape[1]
        gram = self.inputs / self.gamma @ self.inputs.mT
        condition = 1 + way / 4 * gram.abs().sum(-1).amax(-1).view(-1, 1, 1) / shots
        return way / 2 / self.gamma / condition, condition

    def step(self, weights: Tensor) -> Tensor:
        return weights - self.rates()[0] * self.gradient(weights)

    @torch.no_grad()
    def solve(self, steps: int | None = None) -> Tensor:
        """The fast weights at their minimum, by Nesterov's method for strongly convex functions. By default each
        learner takes as many steps as its condition number asks for: many classes need more."""
        rate, condition = self.rates()
        momentum = (condition.sqrt() - 1) / (condition.sqrt() + 1)
        enough = (_ENOUGH * condition.sqrt()).ceil() if steps is None else torch.full_like(condition, steps)
        weights = ahead = self.attractors.detach()
        for step in range(int(enough.max())):
            last, weights = weights, torch.where(step < enough, ahead - rate * self.gradient(ahead), weights)
            ahead = weights + momentum * (weights - last)
        return weights


def recurrent_back_propagation(step: Callable[[Tensor], Tensor], found: Tensor, steps: int, damping: float) -> Tensor:
    """An equilibrium w = step(w) found without a graph, as a function of what `step` depends on.

    Gradients g become sum_t (J^T - damping)^t g, with t up to `steps` and J the Jacobian of `step` at the equilibrium,
    which tends to (1 + damping - J^T)^-1 g; then they go through one step.
    """
    leaf = found.detach().requires_grad_()
    with torch.enable_grad():
        again = step(leaf)

    def through(gradient: Tensor) -> Tensor:
        term = total = gradient
        for _ in range(steps):
            (back,) = torch.autograd.grad(again, leaf, term, retain_graph=True)
            term = back - damping * term
            total = total + term
        return total

    equilibrium = step(found.detach())
    equilibrium.register_hook(through)
    return equilibrium


class Attractors(nn.Module):
    """a_k = sum_b softmax_b(tau cos(p_k, w_b)) MLP(w_b) + bias, and the pull gamma towards it.

    Inputs are embeddings divided by the usual length of base embeddings, so that settings do not depend on it, and a
    constant 1.
    """

    weights: Tensor  # (C_B, D + 1)
    length: Tensor

    def __init__(self, head: Tensor, length: Tensor, config: AttractorConfig) -> None:
        super().__init__()
        dim = head.shape[1]
        self.inward = fresh_linear(dim, config.hidden, "inward")
        self.outward = fresh_linear(
            config.hidden, dim + 1, "outward"
        )  # its bias is the attractor's: attention sums to 1
        nn.init.zeros_(self.outward.weight)
        self.tau = nn.Parameter(torch.tensor(config.tau))
        self.log_gamma = nn.Parameter(torch.full((dim + 1,), config.gamma).log())
        self.register_buffer("weights", F.pad(head * length, (0, 1)))
        self.register_buffer("length", length)

    def inputs(self, embedded: Tensor) -> Tensor:
        return F.pad(embedded / self.length, (0, 1), value=1.0)

    def problem(self, inputs: Tensor, labels: Tensor, way: int, out: Tensor | None = None) -> FastProblem:
        """What the fast weights of `way` classes solve. Base classes in `out` (E, n) are not seen."""
        base = self.weights.expand(len(inputs), -1, -1)
        means = class_means(inputs[..., :-1], labels, way)
        attention = cosine_logits(means, base[..., :-1], self.tau, out).softmax(-1)  # (E, K, C_B)
        attractors = attention @ self.outward(self.inward(self.weights[:, :-1]).tanh())
        base_logits = inputs @ base.mT if out is None else ruled_out(inputs @ base.mT, out)
        return FastProblem(inputs, labels, base_logits, attractors, self.log_gamma.exp())


@register_method("aan")
class Attractor(Method):
    """logits = w_c . f(x) + b_c over the shared base model, whose head stays. The weights and biases of novel classes
    minimise the cross-entropy of their shots among all classes and the distance to attractors, CE + 1/K sum_k sum_d
    gamma_d (w_kd - a_kd)^2 for K novel classes; an attractor a_k = sum_b softmax_b(tau cos(p_k, w_b)) MLP(w_b) + bias
    is made of the base weights that the mean p_k of their shots resembles. Attractors and the pull towards them are
    trained on made-up episodes of base classes, through the minimum, by recurrent back-propagation. A bias tuned
    without test data is added to novel logits.

    Settings are those of the authors' code unless said otherwise. Choices: steps to the minimum are scaled by the pull
    and by a bound on the curvature, where the source runs L-BFGS to the end and back-propagates with steps of 1: the
    source's 20 damped ones reach a part of the implicit gradient; no dropout on class means, no decay of fast weights,
    no bias of base classes; the MLP starts at 0 in its outward layer, at the usual numbers in the other; a constant
    rate, fewer steps of more episodes, or none if that is better on validation; one model for all numbers of shots.
    Serves both protocols, where the source has one session: in a stream the inputs of all shots are kept, and a new
    session solves for all few-shot classes together, so that none has an advantage by its age."""

    Config, StateClass = AttractorConfig, AttractorState
    keeps_base = True
    grid = MappingProxyType({"meta_steps": (0, 600), "novel_bias": (BEST,)})
    config: AttractorConfig

    def fit_base(self, base: Base) -> Attractors:
        config, source = self.config, FakeSource(base)
        length = source.embedded.square().sum(-1).mean().sqrt()
        attractors = Attractors(base.model.head.to(length.device), length, config).to(length.device)
        way = max(1, min(config.meta_way, len(base.model.head) // 2))

        def loss_of(step: int) -> Tensor:
            shot = config.meta_shots[step % len(config.meta_shots)]
            fake = source.draw(step, config.meta_episodes, way, shot, config.meta_queries)
            problem = attractors.problem(attractors.inputs(fake.support), fake.labels, way, fake.fake)
            found = problem.solve(config.solver_steps)
            novel = recurrent_back_propagation(problem.step, found, config.back_steps, config.damping)
            queries = attractors.inputs(fake.queries)
            logits = torch.cat([ruled_out(queries @ attractors.weights.T, fake.fake), queries @ novel.mT], dim=-1)
            return F.cross_entropy(logits.flatten(0, 1), fake.answers.flatten())

        meta_train(self, base, attractors, loss_of, config.meta_steps, config.meta_lr)
        return attractors

    def start(self, base: Base, fitted: Attractors, learners: int) -> AttractorState:
        head = base.model.head.to(base.inputs.device).expand(learners, -1, -1)
        labels = torch.zeros(learners, 0, dtype=torch.long, device=head.device)
        return AttractorState("solving", 0, head, head.new_zeros(head.shape[:2]), head[:, :0], labels)

    @torch.no_grad()
    def grow(self, base: Base, fitted: Attractors, before: AttractorState, task: Task) -> Iterator[AttractorState]:
        old = len(fitted.weights)
        known = before.weights.shape[1] - old
        support = torch.cat([before.support, base.inputs.plain(task.support)], dim=1)
        labels = torch.cat([before.labels, task.labels + known], dim=1)
        novel = fitted.problem(fitted.inputs(support), labels, known + task.way).solve()
        weights = torch.cat([before.weights[:, :old], novel[..., :-1] / fitted.length], dim=1)
        bias = torch.cat([before.bias[:, :old], novel[..., -1]], dim=1)
        yield AttractorState("solving", 1, weights, bias, support, labels)

    def kept(self, base: Base, memory: Task) -> int:
        return memory.support.shape[1]

    def logits(self, state: AttractorState, maps: Tensor) -> Tensor:
        return maps @ state.weights.mT + state.bias.unsqueeze(1)
