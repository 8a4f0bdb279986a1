"""The project's own characters."""

from __future__ import annotations

import torch

from lcwof.data.strokes import draw_strokes


def test_shapes_names_and_ink():
    images = draw_strokes(classes=5, per_class=3)
    assert images.pixels.shape == (15, 1, 28, 28) and images.pixels.dtype == torch.uint8
    assert images.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert images.names[4] == "character-0001/001"
    ink = images.pixels.float().mean(dim=(1, 2, 3)) / 255
    assert ink.min() > 0.03 and ink.max() < 0.45  # bright lines on black
    assert images.pixels.amax(dim=(1, 2, 3)).min() > 150


def test_a_drawing_depends_on_seed_class_and_number_alone():
    few, many = draw_strokes(3, 2, seed=5), draw_strokes(70, 9, seed=5)
    assert torch.equal(few.pixels.view(3, 2, 28, 28), many.pixels.view(70, 9, 28, 28)[:3, :2])
    assert not torch.equal(few.pixels, draw_strokes(3, 2, seed=6).pixels)


def test_no_two_drawings_are_the_same():
    images = draw_strokes(20, 10)
    assert len(images.pixels.flatten(1).unique(dim=0)) == 200


def test_a_character_resembles_itself_but_not_trivially():
    """Nearest class mean on pixels is far above chance and far from perfect: there is something to learn."""
    pixels = draw_strokes(64, 40).pixels.view(64, 40, -1).float()
    means, test = pixels[:, :30].mean(dim=1), pixels[:, 30:].reshape(640, -1)
    right = torch.cdist(test, means).argmin(dim=1) == torch.arange(64).repeat_interleave(10)
    assert 0.3 < right.float().mean() < 0.95
