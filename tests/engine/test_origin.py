import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.engine.origin import commit, versions


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package inside."""
    if shutil.which("git") is None:
        pytest.skip("no git here to make a checkout with")
    monkeypatch.delenv("LCWOF_COMMIT", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    package = tmp_path / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first")
    return package


def _git(where: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", where, *words], check=True, capture_output=True, text=True).stdout.strip()


def _asked(package: Path) -> str:
    commit.cache_clear()
    return commit(package)


def test_a_commit_is_told_with_changes_since(package: Path):
    head = _git(package, "rev-parse", "HEAD")[:7]
    assert _asked(package) == head
    (package.parents[1] / "notes.md").write_text("beside the package")
    assert _asked(package) == head
    (package / "__init__.py").write_text("x = 1\n")
    assert _asked(package) == head + "+"


def test_a_package_installed_inside_anothers_checkout_has_no_commit(package: Path):
    installed = package.parent / "installed"
    installed.mkdir()
    (installed / "__init__.py").write_text("")
    assert _asked(installed) == ""


def test_code_without_history_is_told_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LCWOF_COMMIT", "abc1234")
    assert _asked(tmp_path) == "abc1234"
    monkeypatch.delenv("LCWOF_COMMIT")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert _asked(tmp_path) == ""


def test_the_commit_is_that_of_the_beginning() -> None:
    commit.cache_clear()
    assert CliRunner().invoke(app, ["methods"]).exit_code == 0
    assert commit.cache_info().currsize == 1, "a commit made while a command runs is not that of its code"


def test_versions_leave_out_what_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lcwof.engine.origin.commit", lambda: "")
    assert set(versions()) == {"lcwof", "torch", "numpy"}
