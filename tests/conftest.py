"""Small real data and small trained models, made once a test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from lcwof.data import Dataset, load_dataset
from lcwof.learning import Phase1, pretrain
from lcwof.models import BaseModel

torch.set_num_threads(1)  # tests run in parallel processes


@pytest.fixture(scope="session", autouse=True)
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LCWOF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="session")
def digits_model(digits: Dataset) -> BaseModel:
    """conv4, for what needs convolutions and BN."""
    return pretrain(digits, Phase1("conv4", 3, batch=32, lr=0.05, schedule="one-cycle"), torch.device("cpu"))


@pytest.fixture(scope="session")
def strokes() -> Dataset:
    return load_dataset("strokes", classes=24, base=12, val=6)


@pytest.fixture(scope="session")
def strokes_model(strokes: Dataset) -> BaseModel:
    """mlp, for what needs many runs."""
    return pretrain(strokes, Phase1("mlp", 12, batch=32, lr=0.05, schedule="one-cycle"), torch.device("cpu"))
