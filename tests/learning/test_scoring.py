import math

import pytest
import torch

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError
from lcwof.evaluation.gfsl import prepare, run_episodes
from lcwof.learning import Phase2, Phase3, Scoring, whitening_of
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.models import BaseModel


def test_a_linear_head_with_a_bias_of_each_class() -> None:
    heads = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 2.0, 0.5]]])
    found = Scoring(bias=True).logits(torch.tensor([[[3.0, 4.0]]]), heads)
    torch.testing.assert_close(found, torch.tensor([[[3.0, 4.0, 14.5]]]))


def test_cosines_from_the_centre() -> None:
    scoring = Scoring(scale=10.0, centre=torch.tensor([1.0, 1.0]))
    heads = torch.tensor([[[0.0, 5.0], [3.0, 0.0]]])
    found = scoring.logits(torch.tensor([[[2.0, 2.0]]]), heads)  # from the centre it lies at 45 degrees
    cos = math.sqrt(0.5)
    torch.testing.assert_close(found, torch.tensor([[[10 * cos, 10 * cos]]]))


def test_novel_weights_start_at_the_mean_direction_with_the_length_of_the_known() -> None:
    scoring = Scoring(centre=torch.tensor([1.0, 0.0]))
    embedded = torch.tensor([[[2.0, 0.0], [1.0, 7.0], [0.0, 0.0]]])  # directions right, up, left
    known = torch.tensor([[[3.0, 0.0], [0.0, 5.0]]])
    found = scoring.start_novel(embedded, torch.tensor([[0, 0, 1]]), 2, known)
    torch.testing.assert_close(found, 4 * torch.tensor([[[math.sqrt(0.5), math.sqrt(0.5)], [-1.0, 0.0]]]))


def test_a_good_start_is_far_above_chance_before_any_learning(digits: Dataset, digits_model: BaseModel) -> None:
    """And learning from it does not destroy it."""
    source = EpisodeSource.of(digits, "novel", 2, 5)
    config = LCwoFConfig(head="cosine", start="mean", phase2=Phase2(epochs=3), phase3=Phase3(epochs=3))
    method = LCwoF(config)
    base, fitted = prepare(method, digits_model, digits)
    first, *_, last = run_episodes(method, base, fitted, source, range(8), lambda phase, epoch: True)
    assert first.epoch == 0 and first.values[:, 0].mean() > 70, "N/N"
    assert first.values[:, 1].mean() > 85, "B/B: unit base weights judge as the base model does"
    assert last.values[:, 0].mean() > first.values[:, 0].mean() - 5


def test_whitening_needs_two_images_of_a_class() -> None:
    with pytest.raises(LcwofError, match="two training images of every base class"):
        whitening_of(torch.randn(3, 1, 4), 0.3)


def test_whitening_evens_out_variation_and_leaves_products_with_the_base_head() -> None:
    torch.manual_seed(0)
    stretch = torch.tensor([5.0, 1.0, 0.2])
    embedded = torch.randn(4, 50, 3) * stretch + 10 * torch.randn(4, 1, 3)
    whitening = whitening_of(embedded, 1e-6)
    within = ((embedded - embedded.mean(1, keepdim=True)) @ whitening).flatten(0, 1)
    torch.testing.assert_close(within.T @ within / (within.T @ within)[0, 0], torch.eye(3), atol=1e-3, rtol=1e-3)
    head, centre, asked = torch.randn(4, 3), embedded.mean((0, 1)), torch.randn(1, 6, 3)
    scoring = Scoring(scale=1.0, centre=centre, whitening=whitening)
    lengths = ((asked - centre) @ whitening).norm(dim=-1, keepdim=True)
    weights = torch.linalg.solve(whitening, head.T).T
    expected = (asked - centre) @ head.T / lengths / weights.norm(dim=-1)
    found = scoring.logits(asked, scoring.start_base(head)[None])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_novel_weights_are_as_long_as_the_known_without_their_biases() -> None:
    known = torch.tensor([[[3.0, 0.0, 40.0], [0.0, 5.0, -7.0]]])  # the last is a bias
    found = Scoring(bias=True).start_novel(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[0]]), 1, known)
    torch.testing.assert_close(found, torch.tensor([[[4.0, 0.0, 0.0]]]))
