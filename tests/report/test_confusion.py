"""Mistakes by hand: eight answers, see `four_answers_twice`."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from runs_by_hand import four_answers_twice, without_the_last

from lcwof.engine.recorded import RecordedAnswers
from lcwof.evaluation import Answers
from lcwof.report import class_accuracies, confusion, mistakes
from lcwof.report.confusion import Mistake


def test_samples_are_lost_to_their_own_or_to_the_other_kind() -> None:
    found = confusion(four_answers_twice())
    assert found.base == (75.0, 0.0, 25.0)  # of a, b, a, b one b was taken for the novel c
    assert found.novel == (50.0, 25.0, 25.0)  # d and e right, c once taken for e, once for b


def test_a_stream_may_have_fewer_queries_than_another() -> None:
    found = confusion(without_the_last())
    assert found.base == pytest.approx((200 / 3, 0.0, 100 / 3)) and found.novel == (50.0, 25.0, 25.0)
    base, _ = class_accuracies(without_the_last())
    assert base == [("a", 100.0, 2), ("b", 0.0, 1)]
    assert mistakes(without_the_last()).base == ()  # b and c now met in one episode of two


def test_classes_are_sorted_by_accuracy() -> None:
    base, novel = class_accuracies(four_answers_twice())
    assert base == [("a", 100.0, 2), ("b", 50.0, 2)]
    assert novel == [("d", 100.0, 1), ("e", 100.0, 1), ("c", 0.0, 2)]


def test_a_novel_class_never_drawn_has_no_accuracy() -> None:
    answers = dataclasses.replace(four_answers_twice(), novel=("c", "d", "e", "f"))
    assert [c.name for c in class_accuracies(answers)[1]] == ["d", "e", "c"]


def test_mistakes_are_shares_of_what_was_asked_while_both_were_in_the_running() -> None:
    """c was asked twice beside b. c taken for e is left out: they met in one episode of two, too few to tell."""
    found = mistakes(four_answers_twice())
    assert found.base == (Mistake("b", "c", 50.0, 1),)
    assert found.novel == (Mistake("c", "b", 50.0, 1),)


def test_the_largest_shares_come_first_whatever_the_counts() -> None:
    """Over ten episodes a is taken for b four times; for the novel c, which is there in five, three times."""
    classes = torch.tensor([[0]] * 5 + [[1]] * 5)
    a_as = torch.tensor([[2]] * 3 + [[1]] * 2 + [[1]] * 2 + [[0]] * 3)
    answered = torch.cat([torch.full((10, 1), 2), a_as, torch.full((10, 1), 1)], dim=1)
    given = Answers(classes, torch.tensor([2, 0, 1]), answered, torch.ones(10, 3))
    answers = RecordedAnswers(("a", "b"), ("c", "d"), tuple(range(10)), given)
    found = mistakes(answers).base
    assert found == (Mistake("a", "c", 60.0, 3), Mistake("a", "b", 40.0, 4))
    assert mistakes(answers, top=1).base == found[:1]
    assert mistakes(answers).novel == ()


def test_shares_are_of_the_queries_of_the_class_that_was_asked() -> None:
    """Of a there is one query an episode, of the novel c there are two: one in two is taken for a."""
    given = Answers(torch.tensor([[0]]), torch.tensor([1, 1, 0]), torch.tensor([[0, 1, 0]]), torch.ones(1, 3))
    found = mistakes(RecordedAnswers(("a",), ("c",), (0,), given))
    assert found.novel == (Mistake("c", "a", 50.0, 1),)
