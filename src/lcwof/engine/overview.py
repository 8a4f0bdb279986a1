"""What a learner sees after each phase: test samples of one episode as points of a plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.engine.recipe import Recipe
from lcwof.errors import LcwofError
from lcwof.evaluation import prepare
from lcwof.evaluation.gfsl import query_logits
from lcwof.methods import Task
from lcwof.methods.embeddings import embed
from lcwof.methods.lcwof import LCwoF, LCwoFState
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Points:
    """Test samples after a phase."""

    phase: str
    x: list[float]
    y: list[float]
    classes: list[int]  # joint labels: base classes first
    novel: list[bool]
    confidence: list[float]  # of the answer
    right: list[bool]


def overview(
    recipe: Recipe,
    model: BaseModel,
    data: Dataset,
    episode: int = 0,
    each: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Points]:
    """One episode of LCwoF: its novel queries and `each` base queries a class after phases 1, 2 and 3, embedded and
    laid out in the plane by t-SNE. progress: epochs that are done, of how many."""
    method = recipe.kind()(recipe.method_config())
    if not isinstance(method, LCwoF):
        raise LcwofError(f"an overview shows the phases of lcwof, not of {method.name}.")
    e = recipe.evaluate
    source = EpisodeSource.of(data, "novel", e.way, e.shot, e.queries, e.seed)
    base, fitted = prepare(method, model, data, recipe.compute(method, 1))
    episodes = source.draw([episode])
    task = Task.of_shots(
        episodes.support, Randomness.of_episodes(source.seed, [episode])["learning"], base.inputs.device
    )
    old, novel = episodes.base_queries[:, :, :each], episodes.novel_queries
    queries = torch.cat([old.flatten(1), novel.flatten(1)], dim=1)
    known = old.shape[1]
    labels = torch.arange(known + novel.shape[1])
    counts = torch.tensor([old.shape[2]] * known + [novel.shape[2]] * novel.shape[1])
    answers = labels.repeat_interleave(counts)

    def points(phase: str, state: LCwoFState) -> Points:
        where = _plane(embed(base, queries, state.learners)[0])
        best = query_logits(method, state, base, queries)[0].softmax(-1).max(-1)
        found, sure = best.indices.cpu(), best.values.cpu()
        columns = (where[:, 0], where[:, 1], answers, answers >= known, sure, found == answers)
        told = (c.double().round(decimals=3) if c.is_floating_point() else c for c in columns)
        return Points(phase, *(column.tolist() for column in told))

    state = method.start(base, fitted, 1)
    shown = [points("phase 1", state)]
    before, total = 0, sum(method.phases().values())
    for phase, learn in (("phase 2", method.grow), ("phase 3", method.settle)):
        for learned in learn(base, fitted, state, task):  # none where phase 3 is left out
            state = learned
            progress(before + state.epoch, total)
        shown.append(points(phase, state))
        before += method.phases()[phase]
    return shown


def _plane(embedded: torch.Tensor) -> torch.Tensor:
    from sklearn.manifold import TSNE  # takes a second to import

    few = min(30.0, (len(embedded) - 1) / 3)
    return torch.from_numpy(TSNE(perplexity=few, init="pca", random_state=0).fit_transform(embedded.cpu().numpy()))
