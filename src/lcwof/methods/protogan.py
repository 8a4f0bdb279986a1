"""ProtoGAN: a GAN that prototypes condition makes features (Dwivedi, Gupta, Mitra, Ahmed, Jain, ICCV workshops
2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means
from lcwof.methods.meta import FakeSource, fresh_linear, meta_train
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class ProtoGANConfig:
    hidden: int = 512  # units of the generator and of the critic
    noise: int = 64  # dimensions
    penalty: float = 10.0  # on critics whose gradient is not of length 1
    matching: float = 1.0  # of the class means of generated and real embeddings: without it the game runs in circles
    critic_steps: int = 5  # for one of the generator
    meta_steps: int = 3000  # of critic and generator together
    meta_lr: float = 1e-3
    meta_betas: tuple[float, float] = (0.5, 0.9)  # a critic's past is about another generator
    meta_episodes: int = 2  # a step
    meta_way: int = 8
    meta_shots: tuple[int, ...] = (1, 5)  # in turn
    meta_queries: int = 8  # real embeddings a class, and as many generated ones
    steps: int = 50  # of Adam, for the joint classifier
    lr: float = 1e-2
    each: int = 4  # embeddings of every class in a step: real ones of base classes, generated ones of novel classes
    novel_bias: float = 0.0  # added to the logits of few-shot classes


@dataclass
class ProtoGANState(State):
    weights: Tensor  # (E, C, D)
    support: Tensor  # (E, M, D): embeddings of all shots seen so far
    labels: Tensor  # (E, M), positions among the few-shot classes


def gradient_penalty(critic: nn.Module, real: Tensor, made: Tensor, prototypes: Tensor, mixing: Tensor) -> Tensor:
    """Mean of (||gradient of the critic|| - 1)^2 between real and generated embeddings (Gulrajani et al. 2017).

    real, made, prototypes: (E, B, D); mixing: (E, B, 1), in [0, 1].
    """
    between = (mixing * real + (1 - mixing) * made).detach().requires_grad_()
    (slope,) = torch.autograd.grad(critic(between, prototypes).sum(), between, create_graph=True)
    return (slope.norm(dim=-1) - 1).square().mean()


def gaussian(draws: Randomness, *shape: int) -> Tensor:
    """Standard normal numbers, (E, *shape)."""
    return torch.special.ndtri(
        draws.uniform(*shape).double() + 2.0**-25
    ).float()  # uniform numbers are in steps of 2^-24


def means_apart(differences: Tensor) -> Tensor:
    """||E d||^2 from n samples of d, (..., n, D) -> (...), without what their spread adds to the square of their mean,
    which would teach a generator not to vary: (||sum d||^2 - sum ||d||^2) / n (n - 1).

    >>> means_apart(torch.tensor([[[3.0], [1.0]], [[1.0], [-1.0]]]))  # 3 * 1, 1 * -1
    tensor([ 3., -1.])
    """
    count = differences.shape[-2]
    total, squares = differences.sum(-2).square().sum(-1), differences.square().sum((-2, -1))
    return (total - squares) / (count * (count - 1)) if count > 1 else total


class Network(nn.Module):
    """One hidden layer over what is given, side by side."""

    def __init__(self, inputs: int, hidden: int, outputs: int, purpose: str) -> None:
        super().__init__()
        self.inward = fresh_linear(inputs, hidden, f"{purpose} inward")
        self.outward = fresh_linear(hidden, outputs, f"{purpose} outward")

    def forward(self, *parts: Tensor) -> Tensor:
        return self.outward(F.leaky_relu(self.inward(torch.cat(parts, dim=-1)), 0.2))


class GAN(nn.Module):
    """x~ = p + G(p, z), z normal, and the critic D(x, p); p is the mean of a few embeddings of a class. Embeddings are
    in units in which those of base images have a mean square of 1 a dimension."""

    unit: Tensor

    def __init__(self, dim: int, unit: Tensor, config: ProtoGANConfig) -> None:
        super().__init__()
        self.noise = config.noise
        self.generator = Network(dim + config.noise, config.hidden, dim, "generator")
        self.critic = Network(2 * dim, config.hidden, 1, "critic")
        self.register_buffer("unit", unit)

    def generate(self, prototypes: Tensor, each: int, draws: Randomness) -> Tensor:
        """Embeddings of classes, class by class: (E, C, D) -> (E, C * each, D)."""
        given = prototypes.repeat_interleave(each, dim=1)
        return given + self.generator(given, gaussian(draws, given.shape[1], self.noise))

    def loss(self, step: int, real: Tensor, prototypes: Tensor, config: ProtoGANConfig) -> Tensor:
        """What the player whose turn it is minimises: real (E, C * each, D), prototypes (E, C, D)."""
        each = real.shape[1] // prototypes.shape[1]
        draws = Randomness.of_episodes(0, range(step * len(real), (step + 1) * len(real)), real.device)["gan"]
        given = prototypes.repeat_interleave(each, dim=1)
        if step % (config.critic_steps + 1) < config.critic_steps:
            with torch.no_grad():
                made = self.generate(prototypes, each, draws["noise"])
            mixing = draws["mixing"].uniform(real.shape[1], 1)
            penalty = gradient_penalty(self.critic, real, made, given, mixing)
            return self.critic(made, given).mean() - self.critic(real, given).mean() + config.penalty * penalty
        made = self.generate(prototypes, each, draws["noise"])
        self.critic.requires_grad_(False)
        loss = -self.critic(made, given).mean()
        self.critic.requires_grad_(True)
        return loss + config.matching * means_apart((made - real).unflatten(1, (-1, each))).mean()


@register_method("protogan")
class ProtoGAN(Method):
    """logits = w_c . f(x), a softmax classifier of all classes over the shared base model, fitted for every episode to
    real embeddings of base classes and to shots and generated embeddings of novel ones, every class counting the same.
    A generator, conditioned on the mean of a class's shots, is trained as a Wasserstein GAN with gradient penalty on
    made-up shots and real embeddings of base classes. A bias tuned without test data is added to novel logits.

    Of the source its abstract and its definition in later work were at hand. Chosen here: the class prototype is the
    mean of the shots, not the output of a network of its own; what is generated is a difference from it; the generator
    also matches the means of classes, and no classifier takes part in its training; the joint classifier starts from
    the base head and from the mean directions of shots and takes a fixed number of Adam steps, each on other real and
    other generated embeddings; sizes, weights of losses, rates and numbers of steps are ours. All base images are used
    while learning and count as kept. Serves both protocols: in later sessions the classifier goes on from where it
    stood, with embeddings generated for all few-shot classes so far, whose shots are kept. What is generated varies
    less than real embeddings do."""

    Config, StateClass = ProtoGANConfig, ProtoGANState
    grid = MappingProxyType({"lr": (1e-3, 1e-2), "novel_bias": (BEST,)})
    config: ProtoGANConfig

    def fit_base(self, base: Base) -> tuple[GAN, FakeSource]:
        config, source = self.config, FakeSource(base)
        unit = source.embedded.square().mean().sqrt()
        gan = GAN(source.embedded.shape[1], unit, config).to(source.embedded.device)
        way = max(1, min(config.meta_way, len(base.model.head) // 2))

        def loss_of(step: int) -> Tensor:
            turn = step // (config.critic_steps + 1)  # both players look at the same number of shots
            shot = config.meta_shots[turn % len(config.meta_shots)]
            fake = source.draw(step, config.meta_episodes, way, shot, config.meta_queries)
            real = fake.queries[:, : way * fake.each] / unit
            return gan.loss(step, real, class_means(fake.support / unit, fake.labels, way), config)

        # Settings of the classifier must not make another training of the same generator.
        plain = ProtoGANConfig()
        same = ProtoGAN(replace(config, steps=plain.steps, lr=plain.lr, each=plain.each))
        meta_train(same, base, gan, loss_of, config.meta_steps, config.meta_lr, config.meta_betas)
        return gan, source

    def start(self, base: Base, fitted: tuple[GAN, FakeSource], learners: int) -> ProtoGANState:
        head = base.model.head.to(base.inputs.device).expand(learners, -1, -1)
        labels = torch.zeros(learners, 0, dtype=torch.long, device=head.device)
        return ProtoGANState("fitting", 0, head, head[:, :0], labels)

    def grow(
        self, base: Base, fitted: tuple[GAN, FakeSource], before: ProtoGANState, task: Task
    ) -> Iterator[ProtoGANState]:
        config, (gan, source) = self.config, fitted
        old, known, draws = len(base.model.head), before.weights.shape[1], task.draws["protogan"].to(base.inputs.device)
        few = known - old + task.way
        support = torch.cat([before.support, base.inputs.plain(task.support)], dim=1)
        labels = torch.cat([before.labels, task.labels + known - old], dim=1)
        prototypes = class_means(support, labels, few)
        lengths = before.weights.norm(dim=-1, keepdim=True).mean(dim=1, keepdim=True)
        fresh = F.normalize(prototypes[:, known - old :], dim=-1) * lengths
        # In the generator's units, so that a learning rate means the same with every backbone.
        weights = (torch.cat([before.weights, fresh], dim=1) * gan.unit).requires_grad_()
        given, shots = prototypes / gan.unit, support / gan.unit
        answers = torch.arange(old + few, device=labels.device).repeat_interleave(config.each).expand(len(labels), -1)
        answers = torch.cat([answers, labels + old], dim=1)
        optimiser = torch.optim.Adam([weights], lr=config.lr)  # elementwise, so learners do not touch
        for step in range(config.steps):
            real = source.of_every_class(step, config.each).expand(len(given), -1, -1) / gan.unit
            with torch.no_grad():
                made = gan.generate(given, config.each, draws["noise", step])
            loss = class_balanced(torch.cat([real, made, shots], dim=1) @ weights.mT, answers).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        yield ProtoGANState("fitting", 1, weights.detach() / gan.unit, support, labels)

    def kept(self, base: Base, memory: Task) -> int:
        return int(base.pool.counts.sum()) + memory.support.shape[1]

    def logits(self, state: ProtoGANState, maps: Tensor) -> Tensor:
        return maps @ state.weights.mT


def class_balanced(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over classes of the mean cross-entropy of each: logits (E, B, C), labels (E, B) -> (E,)."""
    counts = F.one_hot(labels, logits.shape[-1]).sum(1)
    losses = F.cross_entropy(logits.mT, labels, reduction="none")
    return (losses / counts.gather(1, labels)).sum(1) / logits.shape[-1]
