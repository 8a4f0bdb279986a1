"""Who holds a file works on what it stands for, alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lcwof.engine.hold import Held, hold, holding


def test_what_another_process_holds_is_left_alone_until_it_ends(
    tmp_path: Path, held_by_another: Callable[[Path], Any]
) -> None:
    what = tmp_path / "new" / "run"
    with held_by_another(what.parent / ".run.held") as other:
        with pytest.raises(Held, match=r"another process is at work in .*run: wait for it"), holding(what):
            pytest.fail("two at work")
        with holding(tmp_path / "new" / "other"):
            pass
        other.kill()
        other.wait()
        assert list(what.parent.iterdir()) == [what.parent / ".run.held"], "a killed process cannot clear up"
        with holding(what):
            pass
        assert not list(what.parent.iterdir())


def test_one_waits_for_another_and_says_so(tmp_path: Path, held_by_another: Callable[[Path], Any]) -> None:
    said = []
    with held_by_another(tmp_path / ".base.held") as other:

        def waiting() -> None:
            said.append("waiting")
            assert other.stdin
            other.stdin.write("go\n")
            other.stdin.flush()

        with holding(tmp_path / "base", waiting):
            assert said and other.wait(10) == 0, "not before it has ended"
            assert (tmp_path / ".base.held").exists(), "what the other removed is not what is held now"
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_held_work_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert hold(tmp_path / "file" / "held", tmp_path) is None
    done = False
    with holding(tmp_path / "file" / "run"):
        done = True
    assert done
