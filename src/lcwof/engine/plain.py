"""One episode of LCwoF the ordinary way: one network, torch.optim, the whole backbone in every step.

Slow and simple on purpose. It draws the same random numbers as the engine, so tests hold the engine against it, and
`lcwof bench` measures what learning many episodes at once gains over it.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.data.augment import NUMBERS, augment_batch
from lcwof.data.episodes import EpisodeSource
from lcwof.learning import Descent
from lcwof.learning.inputs import Inputs, drawn_views, view_noise
from lcwof.learning.learners import fresh_head
from lcwof.learning.tail import keyed_noise
from lcwof.methods.base import Base
from lcwof.methods.lcwof import LCwoF
from lcwof.models.layers import Noise
from lcwof.randomness import Randomness, substream, uniform


class PlainEpisode:
    """A copy of the base model that learns the novel classes of one episode, as the paper has it: linear heads, random
    start, replayed examples drawn once."""

    def __init__(self, method: LCwoF, base: Base, source: EpisodeSource, number: int) -> None:
        self.method, self.base, self.inputs = method, base, base.inputs
        device = self.inputs.device
        self.draws = Randomness.of_episodes(source.seed, [number])["learning"].to(device)
        shots = source.draw([number]).support[0].to(device)
        known = len(base.model.head)
        self.support = shots.flatten()
        self.labels = torch.arange(len(shots), device=device).repeat_interleave(shots.shape[1]) + known
        self.shot = shots.shape[1]
        backbone = copy.deepcopy(base.model.backbone).eval()
        self.trunk, self.tail = backbone.trunk(method.adapt), backbone.tail(method.adapt).requires_grad_()
        self.anchor = [weight.detach().clone() for weight in self.tail.parameters()]
        self.base_head = nn.Parameter(base.model.head.clone())
        fresh = fresh_head(len(shots), base.model.head[None], self.draws)[0]
        self.novel_head = nn.Parameter(fresh)

    def phase2(self) -> None:
        self._descend(self.method.config.phase2, [self.novel_head], self.support, self.labels, self.draws["phase 2"])

    def phase3(self) -> None:
        how, draws = self.method.config.phase3, self.draws["phase 3"]
        pool = self.base.pool.to(self.inputs.device)
        each = how.replay_per_class or self.shot
        replayed = pool.draw(draws["replay"], each)[0].flatten()
        old = torch.arange(len(pool.counts), device=self.inputs.device).repeat_interleave(each)
        heads = [self.base_head, self.novel_head]
        self._descend(how, heads, torch.cat([replayed, self.support]), torch.cat([old, self.labels]), draws)

    def _descend(
        self, how: Descent, heads: list[nn.Parameter], index: Tensor, labels: Tensor, draws: Randomness
    ) -> None:
        groups = [
            {"params": list(self.tail.parameters()), "lr": how.lr_tail},
            {"params": heads, "lr": how.lr_head},
        ]
        weights = [weight for group in groups for weight in group["params"]]  # type: ignore[attr-defined]
        optimiser = torch.optim.SGD(groups, momentum=how.momentum, weight_decay=how.weight_decay)
        lam = self.method.constraint(self.shot)
        for epoch in range(how.epochs):
            order = draws["order", epoch].permutation(len(index))[0]
            drawn = draws["augment", epoch]
            numbers, keys = drawn.uniform(len(index), NUMBERS)[0], drawn["drop"].spread(len(index))
            if how.views:  # of images of base classes; few-shot ones are augmented anew each time
                old = labels[order] < len(self.base_head)
                kept = view_noise(index[order], drawn_views(drawn, len(index), how.views)[0])
                numbers, keys = torch.where(old[:, None], kept[0], numbers), torch.where(old, kept[1], keys)
            for step, at in enumerate(range(0, len(index), how.batch)):
                batch = slice(at, at + how.batch)
                chosen = order[batch]
                noise = keys[batch], draws["drop", epoch, step].keys
                embedded = self._embed(how, index[chosen], numbers[batch], *noise)
                logits = embedded @ torch.cat([self.base_head, self.novel_head]).T
                loss = how.loss_weight * F.cross_entropy(logits, labels[chosen])
                pairs = zip(self.tail.parameters(), self.anchor, strict=True)
                loss = loss + lam * torch.stack([(w - a).square().sum() for w, a in pairs]).sum()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, how.clip)
                optimiser.step()

    def _embed(self, how: Descent, index: Tensor, numbers: Tensor, keys: Tensor, tail_key: Tensor) -> Tensor:
        inputs: Inputs = self.inputs.cropped(how.least_crop)
        pixels = inputs.pixels[index]
        if inputs.augments:
            pixels = augment_batch(pixels, numbers, inputs.augment, inputs.size)
            maps = self.trunk(inputs.model.normalise(pixels), keyed_noise(keys, how.drop_blocks))
        else:
            maps = inputs.plain(index)
        return self.tail(maps, _noise_of_one(tail_key, how.drop_blocks))

    @torch.no_grad()
    def logits(self, index: Tensor) -> Tensor:
        """Joint logits of images under the test transform, nothing kept from before."""
        inputs = self.inputs
        network_inputs = inputs.network_inputs(inputs.pixels[index.to(inputs.device)]).float()
        embedded = self.tail(self.trunk(network_inputs))
        if inputs.model.mirror:
            embedded = (embedded + self.tail(self.trunk(network_inputs.flip(-1)))) / 2
        return embedded @ torch.cat([self.base_head, self.novel_head]).T


def _noise_of_one(key: Tensor, blocks: bool) -> Noise:
    """The noise of a learner's tail, for a tail that is not stacked."""
    calls = 0

    def numbers(shape: torch.Size) -> Tensor:
        nonlocal calls
        calls += 1
        return uniform(substream(key, calls), shape)[0]

    return Noise(numbers, float(blocks))
