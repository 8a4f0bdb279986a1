"""Streams of sessions: who is in them, what differs between them, what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from lcwof.data import Dataset, benchmarks, load_dataset, sources
from lcwof.data.images import Images, Session
from lcwof.data.sessions import FewShotClass, StreamSource, pseudo_sessions
from lcwof.errors import LcwofError


def listed(strokes: Dataset, *counts: list[int]) -> Dataset:
    """The data set with lists: sessions whose classes have the given numbers of shots."""
    names, sessions = iter((*strokes.split.val, *strokes.split.novel)), []
    for shots in counts:
        classes = tuple(next(names) for _ in shots)
        groups = strokes.images.of_classes(classes)
        few = tuple(group[:shot] for group, shot in zip(groups, shots, strict=True))
        sessions.append(Session(classes, few, tuple(group[30:40] for group in groups)))
    return dataclasses.replace(strokes, sessions=tuple(sessions))


def test_drawn_streams_use_each_class_once_and_no_image_twice(strokes: Dataset) -> None:
    source = StreamSource.of(strokes, way=4, shot=2, queries=6)
    (streams,) = source.draw([0, 5])
    assert streams.count == 4 and streams.numbers == (0, 5)  # 12 classes beside the base classes, 4 a session
    for i in range(2):
        names = [name for step in streams.steps for name in step.classes[i]]
        assert len(set(names)) == 12 and not set(names) & set(strokes.split.base)
        for step in streams.steps:
            used = torch.cat([step.support[i], step.queries[i]])
            assert len(used.unique()) == len(used) == 4 * (2 + 6)
            labels = torch.cat([step.labels[i], step.answers[i]])
            assert [strokes.images.classes[k] for k in strokes.images.labels[used]] == [
                step.classes[i][k] for k in labels
            ]
    assert not torch.equal(streams.steps[0].support[0], streams.steps[0].support[1])
    assert torch.equal(source.draw([5])[0].steps[2].support[0], streams.steps[2].support[1]), "a stream is its number"
    assert torch.equal(streams.base_queries, strokes.split.test)


def test_few_shot_classes_are_tested_on_as_many_images_as_base_classes(strokes: Dataset) -> None:
    (streams,) = StreamSource.of(strokes, way=4, shot=2).draw([0])
    each = streams.base_answers.bincount()
    assert len(each.unique()) == 1 and streams.steps[0].answers[0].bincount().tolist() == [int(each[0])] * 4


def test_a_small_class_has_fewer_shots(strokes: Dataset) -> None:
    drawn = StreamSource.of(strokes, way=2, shot=4, sessions=1, queries=5)
    first, second = drawn.classes
    small = dataclasses.replace(drawn, classes=(FewShotClass("small", first.images[:3], None), second))
    (step,) = small.draw([0])[0].steps
    assert step.labels[0].tolist() == [0, 0, 1, 1, 1, 1] and step.answers[0].tolist() == [0, 1, 1, 1, 1, 1]
    assert len(torch.cat([step.support[0], step.queries[0]]).unique()) == 12


def test_listed_streams_are_the_lists_and_may_change_the_order_of_classes(strokes: Dataset) -> None:
    data = listed(strokes, [3, 1], [2, 2, 5])
    (streams,) = StreamSource.of(data).draw([0, 1])
    assert [step.way for step in streams.steps] == [2, 3]
    assert torch.equal(streams.steps[0].support[0], torch.cat(data.sessions[0].shots))
    assert torch.equal(streams.steps[1].support[0], streams.steps[1].support[1])
    assert streams.steps[1].labels[0].tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 2]
    shuffled = StreamSource.of(data, shuffle=True).draw(range(8))
    orders = {s.steps[0].classes[i] + s.steps[1].classes[i] for s in shuffled for i in range(len(s.numbers))}
    assert len(orders) > 1 and {tuple(sorted(order)) for order in orders} == {tuple(sorted(next(iter(orders))))}
    assert sorted(n for s in shuffled for n in s.numbers) == list(range(8))
    assert len(shuffled) > 1, "other orders have other numbers of shots, and run apart"
    assert all(torch.equal(step.labels, step.labels[:1].expand_as(step.labels)) for s in shuffled for step in s.steps)
    assert len(StreamSource.of(data, sessions=1).draw([0])[0].steps) == 1
    first = {s.steps[0].classes[i] for s in StreamSource.of(data, sessions=1, shuffle=True).draw(range(9)) for i in [0]}
    assert {name for names in first for name in names} > set(data.sessions[0].classes), "any class may come first"
    drawn = StreamSource.of(data, shot=1)
    assert not drawn.listed and drawn.ways[0] == 2, "what is not given is as in the lists"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"way": 13}, "has 12 classes beside the base classes"),
        ({"way": 5, "sessions": 3}, "enough for 2"),
        ({"shot": 0}, "at least one example"),
        ({"shot": 60}, "no class has 61 images"),
    ],
)
def test_streams_that_cannot_be_drawn_say_why(strokes: Dataset, options: dict[str, int], message: str) -> None:
    with pytest.raises(LcwofError, match=message):
        StreamSource.of(strokes, **options)  # type: ignore[arg-type]


def test_sessions_that_repeat_a_class_or_are_empty_are_refused(strokes: Dataset) -> None:
    one = listed(strokes, [2, 2]).sessions[0]
    with pytest.raises(LcwofError, match=r"session 3 of strokes/base-12 repeats the class"):
        dataclasses.replace(strokes, sessions=(one, one))
    with pytest.raises(LcwofError, match="session 2 of strokes/base-12 has no classes"):
        dataclasses.replace(strokes, sessions=(Session((), (), ()),))
    none = dataclasses.replace(one, shots=(one.shots[0], one.shots[1][:0]))
    with pytest.raises(LcwofError, match="has no images to learn from"):
        dataclasses.replace(strokes, sessions=(none,))
    with pytest.raises(LcwofError, match=r"--sessions 3: the lists of strokes/base-12 have 1"):
        StreamSource.of(dataclasses.replace(strokes, sessions=(one,)), sessions=3)


def test_pseudo_sessions_are_made_of_base_training_images_alone(strokes: Dataset) -> None:
    pseudo = pseudo_sessions(strokes, 4)
    assert pseudo.split.base == strokes.split.base[:8] and pseudo.split.novel == strokes.split.base[8:]
    assert not pseudo.split.val and not pseudo.sessions
    real = {name: i for i, name in enumerate(strokes.images.names)}
    used = torch.tensor([real[name] for name in pseudo.images.names])
    allowed = set(torch.cat([strokes.split.train, strokes.split.select]).tolist())
    assert set(used.tolist()) <= allowed, "no test image, no later class"
    parts = [set(getattr(pseudo.split, part).tolist()) for part in ("train", "select", "test")]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert set(used[pseudo.split.test].tolist()) <= set(strokes.split.select.tolist())
    assert (pseudo.base_labels(torch.cat([pseudo.split.train, pseudo.split.test])) >= 0).all()
    (streams,) = StreamSource.of(pseudo, way=2, shot=3).draw([0])
    assert streams.count == 3
    one = torch.cat([strokes.split.train[strokes.base_labels(strokes.split.train) != 0], strokes.split.train[:1]])
    small = dataclasses.replace(strokes, split=dataclasses.replace(strokes.split, train=one))
    with pytest.raises(LcwofError, match="has too few images to hold some out once more"):
        pseudo_sessions(small, 4)
    with pytest.raises(LcwofError, match="of 12 base classes, 1 to 11 can be held out"):
        pseudo_sessions(strokes, 12)


def test_the_published_sessions(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def names_alone(paths: list[Path], size: int, skip_bad: bool) -> Images:
        """Whose images are which is in the names: decoding 70,000 of them would add nothing here."""
        found = sources._list(paths).names
        classes = tuple(sorted({name.split("/")[0] for name in found}))
        labels = torch.tensor([classes.index(name.split("/")[0]) for name in found])
        return Images(torch.zeros(len(found), 3, 1, 1, dtype=torch.uint8), labels, classes, tuple(found))

    monkeypatch.setattr(benchmarks, "read_folders", names_alone)
    mini = load_dataset("mini-imagenet-fscil", real_data)
    assert [len(mini.split.base), len(mini.sessions)] == [60, 8]
    (streams,) = StreamSource.of(mini).draw([0])
    assert all(s.way == 5 and s.support.shape == (1, 25) and s.queries.shape == (1, 500) for s in streams.steps)
    assert len(streams.base_queries) == 6000 and streams.base_answers.bincount().eq(100).all()
    assert len(mini.split.train) + len(mini.split.select) == 30_000
    birds = load_dataset("cub200", real_data)
    (streams,) = StreamSource.of(birds).draw([0])
    assert [s.way for s in streams.steps] == [10] * 10 and streams.steps[0].support.shape == (1, 50)
    assert sum(s.queries.shape[1] for s in streams.steps) + len(streams.base_queries) == 5794


def test_another_seed_is_other_streams_and_classes_draw_apart(strokes: Dataset) -> None:
    first, second = (StreamSource.of(strokes, way=4, shot=3, seed=seed).draw([0])[0].steps[0] for seed in (0, 1))
    assert first.classes == second.classes and not torch.equal(first.support, second.support)
    own = strokes.images.of_classes(first.classes[0])
    places = {
        tuple(torch.searchsorted(of, few).tolist()) for of, few in zip(own, first.support[0].view(4, 3), strict=True)
    }
    assert len({len(of) for of in own}) == 1 and len(places) == 4, "of classes with as many images, others of them"


def test_shuffled_streams_of_few_sessions_take_any_class(strokes: Dataset) -> None:
    streams = StreamSource.of(strokes, way=2, shot=1, sessions=1, queries=3, shuffle=True).draw(range(40))
    names = {name for each in streams for classes in each.steps[0].classes for name in classes}
    assert names == {*strokes.split.val, *strokes.split.novel}


def test_classes_of_pseudo_sessions_have_all_their_training_images(strokes: Dataset) -> None:
    pseudo, whole = pseudo_sessions(strokes, 4), torch.cat([strokes.split.train, strokes.split.select])
    counts = strokes.base_labels(whole).bincount()[8:].tolist()
    assert [len(group) for group in pseudo.images.of_classes(pseudo.split.novel)] == counts
