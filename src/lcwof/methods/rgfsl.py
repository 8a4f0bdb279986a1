"""Relational generalized few-shot learning: prototypes from a graph (Shi, Salewski, Schiegg, Akata, Welling,
BMVC 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means, cosine_head
from lcwof.methods.meta import FakeSource, cosine_logits, meta_train


@dataclass(frozen=True)
class RelationalConfig:
    head_steps: int = 300  # full-batch Adam steps that fit the cosine head to the base classes
    head_lr: float = 1e-2
    meta_steps: int = 1000
    meta_lr: float = 1e-3
    meta_episodes: int = 8  # a step
    meta_way: int = 5
    meta_shots: tuple[int, ...] = (1, 5)  # in turn
    meta_queries: int = 15  # a class
    novel_bias: float = 0.0  # added to the logits of few-shot classes


@dataclass
class RelationalState(State):
    nodes: Tensor  # (E, C, D), unit length: prototypes as they enter the graph
    weights: Tensor  # (E, C, D): as they leave it
    scale: Tensor


class GraphConvolution(nn.Module):
    """w_i = own_r * v_i + sum over roles s of mix_rs * sum_{j of role s} a_ij v_j, i being of role r, base or novel.

    a_ij = softmax over j of role s of gamma cos(M v_i, M v_j): how much class i takes from class j. There is one such
    operator for each pair of roles, itself among them, with a learned weight for every dimension.
    """

    weights: Tensor  # (C_B, D), unit length

    def __init__(self, weights: Tensor, scale: Tensor) -> None:
        super().__init__()
        dim = weights.shape[1]
        self.own, self.mix = nn.Parameter(torch.ones(2, dim)), nn.Parameter(torch.full((2, 2, dim), 0.01))
        self.relate, self.gamma = nn.Parameter(torch.eye(dim)), nn.Parameter(torch.tensor(10.0))
        self.scale = nn.Parameter(scale.clone())
        self.register_buffer("weights", weights)

    def forward(self, nodes: Tensor, out: Tensor | None = None) -> Tensor:
        """Prototypes of all classes, base classes first, (E, C, D) -> (E, C, D). Base classes in `out` (E, n) give
        nothing to others."""
        base = len(self.weights)
        role = (torch.arange(nodes.shape[1], device=nodes.device) >= base).long()
        related = nodes @ self.relate
        convolved = self.own[role] * nodes
        for source, part in enumerate((slice(0, base), slice(base, None))):
            gone = out if source == 0 else None
            adjacency = cosine_logits(related, related[:, part], self.gamma, gone).softmax(-1)
            convolved = convolved + self.mix[role, source] * (adjacency @ nodes[:, part])
        return convolved


@register_method("rgfsl")
class Relational(Method):
    """logits = s cos(f(x), w_c). Classes are nodes of a graph: base classes with the weights of a cosine head fitted to
    the base classes over the shared base model, novel ones with the normalised mean of their normalised shots; a graph
    convolution over their similarities gives all w_c, so that prototypes of base classes answer to novel ones too. The
    convolution and s are trained on made-up episodes of base classes. A bias tuned without test data is added to novel
    logits.

    Of the source its abstract and its definition in later work were at hand. Chosen here: one layer without
    nonlinearity, similarities by a learned bilinear cosine and not by attributes of classes, an operator for each pair
    of base and novel with diagonal weights, a backbone and base weights that stay, embeddings of training images as
    they are, and as many steps of training, or none, as are better on validation; their rate and their made-up episodes
    are ours, too. Serves both protocols: in later sessions the graph holds the prototypes of all classes so far, and
    all are convolved anew."""

    Config, StateClass = RelationalConfig, RelationalState
    grid = MappingProxyType({"meta_steps": (0, 1000), "novel_bias": (BEST,)})
    config: RelationalConfig

    def fit_base(self, base: Base) -> GraphConvolution:
        config = self.config
        graph = GraphConvolution(*cosine_head(base, config.head_steps, config.head_lr)).to(base.inputs.device)
        source = FakeSource(base)
        way = max(1, min(config.meta_way, len(base.model.head) // 2))

        def loss_of(step: int) -> Tensor:
            shot = config.meta_shots[step % len(config.meta_shots)]
            fake = source.draw(step, config.meta_episodes, way, shot, config.meta_queries)
            joint = graph(with_novel(graph.weights, fake.support, fake.labels, way), fake.fake)
            logits = cosine_logits(fake.queries, joint, graph.scale, fake.fake)
            return F.cross_entropy(logits.flatten(0, 1), fake.answers.flatten())

        meta_train(self, base, graph, loss_of, config.meta_steps, config.meta_lr)
        return graph

    def start(self, base: Base, fitted: GraphConvolution, learners: int) -> RelationalState:
        nodes = fitted.weights.expand(learners, -1, -1)
        return RelationalState("relating", 0, nodes, fitted(nodes), fitted.scale)

    @torch.no_grad()
    def grow(
        self, base: Base, fitted: GraphConvolution, before: RelationalState, task: Task
    ) -> Iterator[RelationalState]:
        nodes = with_novel(before.nodes, base.inputs.plain(task.support), task.labels, task.way)
        yield RelationalState("relating", 1, nodes, fitted(nodes), before.scale)

    def logits(self, state: RelationalState, maps: Tensor) -> Tensor:
        return cosine_logits(maps, state.weights, state.scale)


def with_novel(nodes: Tensor, embedded: Tensor, labels: Tensor, way: int) -> Tensor:
    """Nodes (E, C, D) or (C, D), and after them those of the classes of shots (E, M, D), labelled (E, M)."""
    novel = F.normalize(class_means(F.normalize(embedded, dim=-1), labels, way), dim=-1)
    return torch.cat([nodes.expand(len(novel), -1, -1), novel], dim=1)
