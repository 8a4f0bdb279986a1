"""The classifier of generalized few-shot video classification (Xian et al., TPAMI 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from lcwof.learning.learners import fresh_head
from lcwof.learning.losses import cross_entropy
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method


@dataclass(frozen=True)
class VideoConfig:
    steps: int = 100  # of Adam, on all shots of an episode
    lr: float = 1e-2
    novel_bias: float = 0.0  # added to the logits of few-shot classes: the method's only way to balance


@dataclass
class VideoState(State):
    weights: Tensor  # (E, C, D)
    support: Tensor  # (E, M, D): embeddings of all shots seen so far
    labels: Tensor  # (E, M), positions among the few-shot classes


@register_method("gfsv")
class Video(Method):
    """logits = w_c . f(x) over a frozen backbone; the weights of novel classes are fitted to their shots by Adam, among
    the novel classes alone, and stand beside the base head: of a single novel class there is nothing to learn. Uses the
    shared base model.

    This is the source's classifier; the retrieval of more videos from a tagged web corpus and the features generated
    from names of classes, which it adds, need that corpus and those names and are not here. Choices: 100 steps by
    default, where the source takes 10 at this rate (`tune` tries both, and others), Adam's own betas, no bias that is
    trained and dropped. Serves both protocols, where the source has one session: in a stream the embeddings of all
    shots are kept, and a new session fits all few-shot classes together. A bias tuned without test data is added to
    novel logits."""

    Config, StateClass = VideoConfig, VideoState
    keeps_base = True
    grid = MappingProxyType({"lr": (1e-3, 1e-2, 1e-1), "steps": (10, 30, 100, 300), "novel_bias": (BEST,)})
    config: VideoConfig

    def start(self, base: Base, fitted: None, learners: int) -> VideoState:
        head = base.model.head.to(base.inputs.device).expand(learners, -1, -1)
        labels = torch.zeros(learners, 0, dtype=torch.long, device=head.device)
        return VideoState("fitting", 0, head, head[:, :0], labels)

    def grow(self, base: Base, fitted: None, before: VideoState, task: Task) -> Iterator[VideoState]:
        old = len(base.model.head)
        known = before.weights.shape[1] - old
        support = torch.cat([before.support, base.inputs.plain(task.support)], dim=1)
        labels = torch.cat([before.labels, task.labels + known], dim=1)
        novel = fresh_head(known + task.way, before.weights, task.draws).requires_grad_()
        optimiser = torch.optim.Adam([novel], lr=self.config.lr)  # elementwise, so learners do not touch
        for _ in range(self.config.steps):
            loss = cross_entropy(support @ novel.mT, labels).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        weights = torch.cat([before.weights[:, :old], novel.detach()], dim=1)
        yield VideoState("fitting", 1, weights, support, labels)

    def kept(self, base: Base, memory: Task) -> int:
        return memory.support.shape[1]

    def logits(self, state: VideoState, maps: Tensor) -> Tensor:
        return maps @ state.weights.mT
