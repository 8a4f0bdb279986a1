"""What the data tests share: a cache of their own, small image folders, and real data where there is any."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("LCWOF_CACHE", str(folder))
    return folder


@pytest.fixture
def real_data() -> Path:
    """The folder of real benchmark data, as a user would set it."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    root = Path(os.environ.get("LCWOF_DATA") or beside)
    if not root.is_dir():
        pytest.skip("real benchmark data is not here: set LCWOF_DATA to its folder")
    return root


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """make_folder({"cat": 3}) writes cat/0.png ... with random pixels and returns their root."""

    def make(classes: dict[str, int], *, at: str = "set", size: int = 12) -> Path:
        root = tmp_path / at
        random = np.random.default_rng(0)
        for name, count in classes.items():
            (root / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / name / f"{i}.png")
        return root

    return make
