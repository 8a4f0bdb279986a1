"""A data set is looked over before it is used; the command prints what was found."""

from __future__ import annotations

import json
import shutil

from typer.testing import CliRunner

from lcwof.cli.data import app
from lcwof.data import load_dataset
from lcwof.data.check import check_dataset
from lcwof.errors import LcwofError


def test_a_sound_set_has_counts_and_no_problems():
    report = check_dataset("digits")
    assert [(part.name, part.classes) for part in report.parts] == [
        ("base train", 6),
        ("base select", 6),
        ("base test", 6),
        ("val", 2),
        ("novel", 2),
    ]
    assert sum(part.images for part in report.parts) == 1797
    assert (report.parts[4].smallest_class, report.parts[4].smallest) == ("8", 174)
    assert report.problems == () and report.duplicates == report.leaks == 0


def test_broken_files_are_listed(make_folder):
    root = make_folder({name: 75 for name in "abcde"}, size=6)
    (root / "a" / "0.png").write_bytes(b"broken")
    report = check_dataset("folder", root, size=6)
    assert report.bad == ("a/0.png",)
    assert report.problems == ("1 files cannot be read as images",)


def test_a_test_image_that_is_also_a_training_image_is_a_problem(make_folder):
    root = make_folder({name: 75 for name in "abcde"}, size=6)
    data = load_dataset("folder", root, size=6)
    first, second = (data.images.names[int(part[0])] for part in (data.split.train, data.split.test))
    shutil.copy(root / first, root / second)
    novel = [data.images.names[int(i)] for i in data.images.of_classes(("e",))[0][:2]]
    shutil.copy(root / novel[0], root / novel[1])  # a pair as well, but nothing is trained on either
    report = check_dataset("folder", root, size=6)
    assert (report.duplicates, report.leaks) == (2, 1)
    assert [set(pair) for pair in report.duplicate_names] == [{first, second}, set(novel)]
    assert report.problems == ("1 images to evaluate on are pixel for pixel in the training images as well",)


def test_classes_too_small_for_an_episode_are_named(make_folder):
    """What makes episodes smaller is worth knowing; what makes them impossible is a problem."""
    root = make_folder({"a": 80, "b": 16, "c": 15})
    report = check_dataset("folder", root, size=12)
    small = "class 'c' has 15 novel images: so episodes ask about 14 of every such class at most, 15 is usual"
    assert (report.problems, report.notes) == ((), (small,)), "16 are a shot and 15 to ask about"
    for i in range(1, 15):
        (root / "c" / f"{i}.png").unlink()
    report = check_dataset("folder", root, size=12)
    assert report.problems == ("class 'c' has 1 novel images: none to ask about beside one to learn from",)
    assert report.notes == ()


def test_the_command_prints_a_report_and_json(make_folder):
    root = make_folder({name: 75 for name in "abcde"}, size=6)
    shown = CliRunner().invoke(app, ["check", "folder", "--root", str(root), "--set", "size=6"])
    assert shown.exit_code == 0 and "no problems found" in shown.stdout and "base train" in shown.stdout
    printed = CliRunner().invoke(app, ["check", "digits", "--set", "base=5", "--json"])
    assert json.loads(printed.stdout)["parts"][0]["classes"] == 5


def test_the_command_lists_what_is_found(tmp_path):
    listed = CliRunner().invoke(app, ["list", "--root", str(tmp_path)], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in listed.stdout.splitlines() if line.startswith("│")}
    assert "built in" in rows["digits"] and rows["omniglot"].split("│")[4].strip() == "no"


def test_mistakes_on_the_command_line_reach_the_user_as_sentences():
    for arguments in (
        ["check", "digit"],
        ["check", "digits", "--set", "base"],
        ["check", "digits", "--set", "base=x"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, LcwofError)
