"""Small real data and small trained models, made once a test session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

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


Shell = Callable[..., tuple[int, str]]


@pytest.fixture
def shell() -> Shell:
    """The command as a process of its own, through the real entry point: exit status and everything printed."""

    def run(*words: object) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "lcwof.cli.main", *map(str, words)],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


_HOLDS = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
os.unlink(sys.argv[1])
"""


@contextmanager
def _held(file: Path) -> Iterator[subprocess.Popen[str]]:
    file.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", _HOLDS, str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        try:
            yield other
        finally:
            other.kill()


@pytest.fixture
def held_by_another() -> Callable[[Path], AbstractContextManager[subprocess.Popen[str]]]:
    """While it lasts, another process holds a file; a line on its input makes it remove the file and end."""
    pytest.importorskip("fcntl", reason="no Unix: nothing can be held")
    return _held
