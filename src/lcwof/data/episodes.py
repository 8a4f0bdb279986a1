"""Episodes as indices: which classes, which shots, which queries, all decided by (seed, episode number)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lcwof.data.images import Dataset
from lcwof.errors import LcwofError
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Pool:
    """Images of several classes as a table, so that E learners can draw from all classes in one call."""

    table: Tensor  # (C, n) image indices, rows padded by repeating the first
    counts: Tensor  # (C,)

    @classmethod
    def of(cls, groups: Sequence[Tensor]) -> Pool:
        counts = torch.tensor([len(group) for group in groups])
        width = int(counts.max()) if len(groups) else 0
        rows = [torch.cat([g, g[:1].expand(width - len(g))]) if len(g) else g.new_zeros(width) for g in groups]
        return cls(torch.stack(rows), counts)

    def to(self, device: torch.device | str) -> Pool:
        return Pool(self.table.to(device), self.counts.to(device))

    def draw(self, draws: Randomness, k: int) -> Tensor:
        """k different images of each class for each learner: (E, C, k)."""
        rows = draws.rows(self.counts, k)
        return self.table.expand(len(draws), -1, -1).gather(2, rows)


@dataclass(frozen=True)
class Episodes:
    """E episodes of N-way K-shot with base and novel queries; all but `classes` are image indices."""

    numbers: tuple[int, ...]
    classes: Tensor  # (E, N) positions among the classes that episodes are drawn from
    support: Tensor  # (E, N, K)
    novel_queries: Tensor  # (E, N, Q)
    base_queries: Tensor  # (E, C_B, Q_B)


@dataclass(frozen=True)
class EpisodeSource:
    """Draws episodes of one kind: on novel classes for the result, on validation classes for every choice."""

    few: Pool  # the classes learned from few shots
    base: Pool  # base queries
    way: int
    shot: int
    queries: int
    base_queries: int
    seed: int

    @classmethod
    def of(
        cls,
        data: Dataset,
        part: Literal["val", "novel"],
        way: int,
        shot: int,
        queries: int = 15,
        seed: int = 0,
    ) -> EpisodeSource:
        """`novel`: novel classes and base test images; `val`: validation classes and held-out base training images."""
        classes = data.split.novel if part == "novel" else data.split.val
        if not 1 <= way <= len(classes):
            raise LcwofError(f"{way}-way: {data.name} has {len(classes)} {part} classes, so 1 to {len(classes)}.")
        if shot < 1:
            raise LcwofError(f"--shot {shot}: at least one example a class is needed.")
        few = Pool.of(data.images.of_classes(classes))
        smallest = int(few.counts.min())
        if smallest < shot + 1:
            name = classes[int(few.counts.argmin())]
            raise LcwofError(
                f"{part} class {name!r} has {smallest} images: {shot}-shot needs at least {shot + 1} "
                "(the shots and one query). Lower --shot or remove the class."
            )
        index = data.split.test if part == "novel" else data.split.select
        labels = data.base_labels(index)
        base = Pool.of([index[labels == i] for i in range(len(data.split.base))])
        if int(base.counts.min()) == 0:
            name = data.split.base[int(base.counts.argmin())]
            kind = "test" if part == "novel" else "held-out"
            raise LcwofError(f"base class {name!r} has no {kind} images to evaluate on.")
        return cls(few, base, way, shot, min(queries, smallest - shot), min(queries, int(base.counts.min())), seed)

    def draw(self, numbers: Sequence[int]) -> Episodes:
        draws = Randomness.of_episodes(self.seed, numbers)
        classes = draws["classes"].permutation(len(self.few.counts))[:, : self.way]
        images = self.few.draw(draws["shots"], self.shot + self.queries)
        chosen = images.gather(1, classes.unsqueeze(-1).expand(-1, -1, images.shape[-1]))
        base = self.base.draw(draws["base queries"], self.base_queries)
        return Episodes(tuple(numbers), classes, chosen[..., : self.shot], chosen[..., self.shot :], base)
