import dataclasses

import pytest
import torch

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError


def test_an_episode_takes_what_the_protocol_says(strokes: Dataset) -> None:
    episodes = EpisodeSource.of(strokes, "novel", way=5, shot=2).draw(range(20))
    assert episodes.support.shape == (20, 5, 2)
    assert episodes.novel_queries.shape == (20, 5, 15)
    assert episodes.base_queries.shape == (20, 12, 15)
    names = strokes.images.classes
    for e in range(20):
        labels = strokes.images.labels[episodes.support[e]]
        assert (labels == labels[:, :1]).all()
        assert len(labels[:, 0].unique()) == 5
        assert {names[i] for i in labels[:, 0].tolist()} <= set(strokes.split.novel)
        assert torch.equal(strokes.images.labels[episodes.novel_queries[e]], labels[:, :1].expand(5, 15))
        taken = torch.cat([episodes.support[e].flatten(), episodes.novel_queries[e].flatten()])
        assert len(taken.unique()) == len(taken), "no image is both shot and query"
        assert set(episodes.base_queries[e].flatten().tolist()) <= set(strokes.split.test.tolist())
        assert torch.equal(strokes.base_labels(episodes.base_queries[e, :, 0]), torch.arange(12))
    assert len({tuple(s) for s in episodes.support.flatten(1).tolist()}) == 20


def test_validation_episodes_see_neither_novel_classes_nor_test_images(strokes: Dataset) -> None:
    episodes = EpisodeSource.of(strokes, "val", way=3, shot=1).draw(range(50))
    few = strokes.images.labels[torch.cat([episodes.support.flatten(), episodes.novel_queries.flatten()])]
    assert {strokes.images.classes[i] for i in few.unique().tolist()} == set(strokes.split.val)
    assert set(episodes.base_queries.flatten().tolist()) <= set(strokes.split.select.tolist())


def test_an_episode_is_its_number(strokes: Dataset) -> None:
    source = EpisodeSource.of(strokes, "novel", way=4, shot=1, seed=5)
    together, alone = source.draw([8, 3, 11]), source.draw([3])
    for part in ("support", "novel_queries", "base_queries"):
        assert torch.equal(getattr(together, part)[1], getattr(alone, part)[0])


@pytest.mark.parametrize(
    ("way", "shot", "words"),
    [
        (7, 1, "7-way: strokes/base-12 has 6 novel classes"),
        (0, 1, "0-way: strokes/base-12 has 6 novel classes"),
        (2, 0, "--shot 0"),
        (2, 60, "has 60 images: 60-shot needs at least 61"),
    ],
)
def test_impossible_episodes_are_refused(strokes: Dataset, way: int, shot: int, words: str) -> None:
    with pytest.raises(LcwofError, match=words):
        EpisodeSource.of(strokes, "novel", way, shot)


def test_a_base_class_without_test_images_is_named(strokes: Dataset) -> None:
    keep = strokes.base_labels(strokes.split.test) != 4
    split = dataclasses.replace(strokes.split, test=strokes.split.test[keep])
    with pytest.raises(LcwofError, match="has no test images"):
        EpisodeSource.of(dataclasses.replace(strokes, split=split), "novel", 2, 1)


def test_small_classes_are_asked_less_and_never_about_a_shot(strokes: Dataset) -> None:
    """One novel class has 8 images, one base class 4 test images."""
    name, labels = strokes.split.novel[0], strokes.images.labels.clone()
    small = strokes.images.of_classes((name,))[0]
    labels[small[8:]] = int(labels[strokes.images.of_classes((strokes.split.novel[1],))[0][0]])
    of_base = strokes.base_labels(strokes.split.test)
    test = torch.cat([strokes.split.test[of_base != 4], strokes.split.test[of_base == 4][:4]])
    split = dataclasses.replace(strokes.split, test=test)
    data = dataclasses.replace(strokes, images=dataclasses.replace(strokes.images, labels=labels), split=split)
    source = EpisodeSource.of(data, "novel", 6, 3)
    assert (source.queries, source.base_queries) == (5, 4)
    episodes = source.draw(range(5))
    for few in torch.cat([episodes.support, episodes.novel_queries], dim=2).flatten(0, 1):
        assert len(few.unique()) == 3 + 5
    assert all(len(few.unique()) == 4 for few in episodes.base_queries.flatten(0, 1))


def test_another_seed_is_other_episodes(strokes: Dataset) -> None:
    first, second = (EpisodeSource.of(strokes, "novel", 4, 1, seed=seed).draw(range(3)) for seed in (0, 1))
    for part in ("support", "novel_queries", "base_queries"):
        assert not torch.equal(getattr(first, part), getattr(second, part))
