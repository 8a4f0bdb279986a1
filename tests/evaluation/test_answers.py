"""Answers are those that the measures count."""

from __future__ import annotations

import torch

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.data.sessions import StreamSource
from lcwof.evaluation import MEASURES, prepare, run_episodes
from lcwof.evaluation.ifsl import run_streams
from lcwof.methods.pn import Prototypes
from lcwof.models import BaseModel


def test_the_answers_make_the_measures(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = Prototypes()
    base, fitted = prepare(method, strokes_model, strokes)
    source = EpisodeSource.of(strokes, "novel", 3, 1)
    *_, last = run_episodes(method, base, fitted, source, [4, 7], filled_to=3)
    given, old = last.answers, len(strokes.split.base)
    assert given.answered.shape == given.confidence.shape == (2, len(given.true))
    right, novel = given.answered == given.true, given.true >= old
    for name, part in (("N/J", novel), ("B/J", ~novel)):
        assert torch.allclose(100 * right[:, part].float().mean(1), last.values[:, MEASURES.index(name)])
    assert given.confidence.min() >= 1 / (old + 3) and given.confidence.max() <= 1


def test_the_classes_are_those_of_the_episodes_images(strokes: Dataset, strokes_model: BaseModel) -> None:
    episodes = EpisodeSource.of(strokes, "novel", 3, 1).draw([0, 1, 2])
    labels = strokes.images.labels[episodes.novel_queries]
    named = [[strokes.split.novel[c] for c in row] for row in episodes.classes.tolist()]
    assert named == [[strokes.images.classes[int(queries[0])] for queries in row] for row in labels]


def test_the_answers_say_which_classes_an_episode_has(strokes: Dataset, strokes_model: BaseModel) -> None:
    method, source = Prototypes(), EpisodeSource.of(strokes, "novel", 3, 1)
    base, fitted = prepare(method, strokes_model, strokes)
    *_, last = run_episodes(method, base, fitted, source, [4, 7], filled_to=3)
    assert torch.equal(last.answers.classes.long(), source.draw([4, 7]).classes)


def test_the_answers_of_streams_make_the_measures_of_every_session(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = Prototypes()
    base, fitted = prepare(method, strokes_model, strokes)
    (streams,) = StreamSource.of(strokes, way=4, shot=2, queries=6, shuffle=True).draw([0, 1])
    old = len(strokes.split.base)
    for session, _ in run_streams(method, base, fitted, streams, 0):
        given = session.answers
        right, novel = given.answered == given.true, given.true >= old
        for name, part in (("N/J", novel), ("B/J", ~novel), ("J/J", novel | ~novel)):
            if part.any():
                each = torch.stack([100 * right[i][part[i]].float().mean() for i in range(2)])
                assert torch.allclose(each, session.values[:, MEASURES.index(name)])
        came = [[name for step in streams.steps[: session.number - 1] for name in step.classes[i]] for i in range(2)]
        assert [[streams.novel[at] for at in row] for row in given.classes.tolist()] == came
    assert len({tuple(sorted(row)) for row in came}) == 1 and came[0] != came[1]
