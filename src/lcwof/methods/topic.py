"""TOPIC: topology-preserving knowledge incrementer (Tao, Hong, Chang, Dong, Wei, Gong, CVPR 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

from lcwof.learning import Batch, Descent, Learners, Scoring, descend
from lcwof.learning.losses import mean_where
from lcwof.methods.base import BEST, Base, Fitting, Method, State, Task, register_method
from lcwof.methods.embeddings import (
    base_embeddings,
    base_images,
    class_means,
    cosine_head,
    embed,
    squared_distances,
)
from lcwof.randomness import Randomness

_REACH = 16  # times the decay: nodes of a higher rank would move by less than a float can tell


@dataclass(frozen=True)
class TopicConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    nodes: int = 400  # of the neural gas; where there are few base images, one for every five of them
    gas_passes: int = 5  # over the base training images
    gas_rate: float = 0.02
    gas_decay: float = 1.0  # in ranks
    anchor: float = 350.0  # weight of keeping nodes in place
    pull: float = 0.3  # weight of the distance from an example to the node of its class
    push: float = 1e-5  # weight of its nearness to the neighbours of that node
    margin: float = 0.5  # squared distance beyond which neighbours are left alone
    node_rate: float = 0.1  # part of the way that the node of a new class follows its examples, a step
    anchors: int = 2  # nodes shown for every example; the original shows all of them in every step
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    head_steps: int = 0  # full-batch Adam steps that fit base weights; 0: they are class means, as new ones at first
    head_lr: float = 1e-2
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class TopicState(State):
    learners: Learners
    nodes: Tensor  # (E, N, D): where they are
    index: Tensor  # (E, N): the image that stands for each


Fitted = tuple[Tensor, Tensor, Tensor, Tensor]  # nodes, their images, the cosine head of base classes, its scale


def gas_pass(nodes: Tensor, samples: Tensor, rate: float, decay: float) -> None:
    """The samples (n, D), one after the other, move the nodes (N, D), in place: the one of rank i, counted from the
    nearest, by rate * exp(-i / decay) of the way. Tens of thousands of small steps: numpy asks for them three times as
    fast as torch, and threads, which would wait for each other at every step, are not worth starting."""
    places, reach = nodes.numpy(), min(len(nodes), max(1, int(_REACH * decay)))
    part = (rate * np.exp(-np.arange(reach) / decay)).astype(places.dtype)[:, None]
    lengths = np.square(places).sum(-1)
    with threadpool_limits(1):
        for sample in samples.numpy():
            apart = lengths - 2 * (places @ sample)  # squared, less the sample's length, which is the same for all
            near = np.argpartition(apart, reach - 1)[:reach]
            near = near[np.argsort(apart[near])]
            moved = places[near]
            moved += part * (sample - moved)
            places[near], lengths[near] = moved, np.square(moved).sum(-1)


def neural_gas(embedded: Tensor, count: int, config: TopicConfig, fitting: Fitting) -> Tensor:
    """`count` nodes that spread over the samples as these do: (n, D) -> (count, D). They start at random samples."""
    draws = Randomness.of_episodes(0, [0])["neural gas"]
    device, embedded = embedded.device, embedded.cpu()  # one small step after the other: nothing for a GPU
    nodes = embedded[draws["start"].permutation(len(embedded))[0, :count]].clone()
    for turn in range(config.gas_passes):
        order = draws["order", turn].permutation(len(embedded))[0]
        gas_pass(nodes, embedded[order], config.gas_rate, config.gas_decay)
        fitting("neural gas", turn + 1, config.gas_passes)
    return nodes.to(device)


def anchor_loss(embedded: Tensor, was: Tensor) -> Tensor:
    """How far each image has moved, as a mean over dimensions: (E, B, D), (E, B, D) -> (E, B)."""
    return (embedded - was).square().mean(-1)


def min_max(embedded: Tensor, labels: Tensor, nodes: Tensor, edges: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The two parts of the min-max loss, for each example: ||f - m_y||^2 to the node of its class, and
    sum of max(margin - ||f - m_i||^2, 0) over the neighbours i of that node.

    embedded: (E, B, D); labels: (E, B), positions among the W new classes; nodes: (E, N, D), the last W of the new
    classes; edges: (E, W, N), whether node i is a neighbour of a new class's node. Returns (E, B), (E, B).
    """
    apart = squared_distances(embedded, nodes)
    own = labels + (nodes.shape[1] - edges.shape[1])
    beside = edges.gather(1, labels.unsqueeze(-1).expand_as(apart))
    return apart.gather(-1, own.unsqueeze(-1)).squeeze(-1), ((margin - apart).clamp_min(0) * beside).sum(-1)


def hebbian_edges(embedded: Tensor, labels: Tensor, nodes: Tensor, way: int) -> Tensor:
    """Which nodes are neighbours of the new classes' nodes, the last `way`: those nearest to one of a class's examples,
    its own node aside. (E, M, D), (E, M), (E, N, D) -> (E, way, N)."""
    count = nodes.shape[1]
    own = F.one_hot(labels + count - way, count).bool()
    nearest = squared_distances(embedded, nodes).masked_fill(own, torch.inf).argmin(-1)
    return (F.one_hot(labels, way).mT.float() @ F.one_hot(nearest, count).float()) > 0


def follow(nodes: Tensor, embedded: Tensor, labels: Tensor, fresh: Tensor, rate: float) -> Tensor:
    """Nodes (E, W, D) after a part of the way to the mean of a batch's examples, those marked fresh, of their class."""
    own = labels.unsqueeze(-1) == torch.arange(nodes.shape[1], device=labels.device)
    member = (own & fresh.unsqueeze(-1)).to(nodes.dtype)  # (E, B, W)
    count = member.sum(1).unsqueeze(-1)
    return nodes + rate * (member.mT @ embedded - count * nodes) / count.clamp_min(1)


@register_method("topic")
class Topic(Method):
    """logits = s cos(f(x), w_c). A neural gas over the unit embeddings of the base images stands for what is known, an
    image for each node. New classes add a node each; loss = cross-entropy of the new examples + anchor loss, which
    keeps the images of nodes where they were, + min-max loss, which pulls examples to the node of their class and
    pushes them from its neighbours. Weights of known classes stay as they are.

    The weights of the losses, the unit embeddings, the fixed weights of known classes, the margin and the rate of new
    nodes are those of the authors' released scripts for mini-ImageNet. The code of the min-max loss and of the gas was
    not at hand. Choices: the rate, decay and passes of the gas; the neighbours of a new node are the nodes that come
    second to it for one of its examples, and edges between old nodes, which enter no loss, are not kept. Inverse
    variances in the anchor loss are left out: for unit embeddings the scripts make them 1. Class weights have unit
    length and start at the mean of their shots, where the authors' are free and start near 0, and a bias tuned without
    test data is added to few-shot classes. Nodes of new classes follow their examples, and examples, not nodes, are
    pushed from neighbours. By default rates, batch, momentum, weight decay and gradient clip are those of phase 2 of
    `lcwof`, not taken from the source, and the 40 epochs are ours; `tune` tries other rates, and fewer epochs.

    Uses the shared base model; base weights are class means, as new ones at first, and s is fitted to base images.
    Serves both protocols: in a stream, few-shot classes of earlier sessions are known ones, too, and their nodes
    anchors."""

    Config = TopicConfig
    grid = MappingProxyType({"descent.lr_head": (1e-3, 1e-2), "descent.lr_tail": (1e-4, 1e-3), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail"})
    stop = ("learning", "descent.epochs")
    config: TopicConfig

    def fit_base(self, base: Base) -> Fitted:
        embedded = F.normalize(torch.cat(base_embeddings(base)), dim=-1)
        nodes = neural_gas(embedded, self._count(base), self.config, base.fitting)
        images = torch.cat(base_images(base)).to(embedded.device)
        index = images[torch.cdist(nodes, embedded).argmin(-1)]
        return nodes, index, *cosine_head(base, self.config.head_steps, self.config.head_lr)

    def _count(self, base: Base) -> int:
        return max(1, min(self.config.nodes, int(base.pool.counts.sum()) // 5))

    def start(self, base: Base, fitted: Fitted, learners: int) -> TopicState:
        nodes, index, weights, scale = fitted
        begun = Learners.start(base.inputs, learners, Scoring(scale=float(scale)))
        begun.base_head = weights.expand(learners, -1, -1).clone()
        return TopicState("learning", 0, begun, nodes.expand(learners, -1, -1), index.expand(learners, -1))

    def grow(self, base: Base, fitted: Fitted, before: TopicState, task: Task) -> Iterator[TopicState]:
        config, old = self.config, before.learners
        learners = old.grown(task.way, task.draws)
        known, count = learners.base_head.shape[1], before.nodes.shape[1]
        learners.start_from_means(base.inputs, task.support, task.labels + known)
        shots = F.normalize(embed(base, task.support, old), dim=-1)
        nodes = torch.cat([before.nodes, class_means(shots, task.labels, task.way)], dim=1)
        edges = hebbian_edges(shots, task.labels, nodes, task.way)
        # The image that stands for a new node is the shot nearest to it.
        apart = squared_distances(nodes[:, count:], shots)
        theirs = F.one_hot(task.labels, task.way).mT.bool()
        nearest = apart.masked_fill(~theirs, torch.inf).argmin(-1)
        index = torch.cat([before.index, task.support.gather(1, nearest)], dim=1)
        draws = task.draws["topic"].to(base.inputs.device)
        is_node = known + task.way  # in place of a label, for the images of nodes

        def samples(epoch: int) -> tuple[Tensor, Tensor]:
            drawn = draws["anchors", epoch].permutation(count)[:, : config.anchors * task.support.shape[1]]
            labels = torch.cat([task.labels + known, torch.full_like(drawn, is_node)], dim=1)
            return torch.cat([task.support, before.index.gather(1, drawn)], dim=1), labels

        def objective(batch: Batch) -> Tensor:
            embedded, fresh = F.normalize(batch.embedded, dim=-1), batch.labels < is_node
            was = F.normalize(old.taught(batch)[0], dim=-1)
            labels = (batch.labels - known).clamp_max(task.way - 1)  # of images of nodes: not looked at
            pull, push = min_max(embedded, labels, nodes.clone(), edges, config.margin)  # a copy: they move below
            logs = F.log_softmax(batch.logits, dim=-1).gather(-1, (labels + known).unsqueeze(-1)).squeeze(-1)
            moved = follow(nodes[:, count:], embedded.detach(), labels, fresh, config.node_rate)
            nodes[:, count:].copy_(moved)
            stay = mean_where(anchor_loss(embedded, was), ~fresh)
            return mean_where(config.pull * pull + config.push * push - logs, fresh) + config.anchor * stay

        yield TopicState("learning", 0, learners, nodes, index)
        heads, how = ("novel_head",), config.descent
        for epoch in descend(
            learners, heads, samples, base.inputs, how, 0.0, draws, "learning", objective, recordable=True
        ):
            yield TopicState("learning", epoch, learners, nodes, index)

    def kept(self, base: Base, memory: Task) -> int:
        return self._count(base) + memory.way

    def logits(self, state: TopicState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: TopicState) -> dict[str, Tensor]:
        return {**state.learners.weights(), "nodes": state.nodes, "index": state.index}

    def unpack(self, base: Base, fitted: Fitted, tensors: dict[str, Tensor]) -> TopicState:
        scoring = Scoring(scale=float(fitted[3]))
        learners = Learners.unpack(base.inputs.tail, tensors, scoring)
        return TopicState("resumed", 0, learners, tensors["nodes"], tensors["index"])
