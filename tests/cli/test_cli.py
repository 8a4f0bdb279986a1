"""The commands as a person types them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli import demo as demo_module
from lcwof.cli import main as main_module
from lcwof.cli.main import app
from lcwof.data import Dataset, datasets, load_dataset
from lcwof.data.images import Session
from lcwof.errors import LcwofError
from lcwof.methods import method_names

runner = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "cache"))


def lcwof(*words: object) -> str:
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("base") / "base.safetensors"
    words = ["--set", "phase1.lr=0.05", "--set", "phase1.schedule=one-cycle", "--set", "phase1.batch=32"]
    said = json.loads(
        lcwof("pretrain", "--data", "digits", "--backbone", "mlp", "--epochs", 6, "-o", out, "--json", *words)
    )
    assert said["test accuracy"] > 90 and said["phase1"]["batch"] == 32
    return out


def test_tune_evaluate_report(base: Path, tmp_path: Path) -> None:
    common = ["--data", "digits", "--model", base, "--way", 2, "--shot", 1]
    tuned = tmp_path / "tuned.toml"
    short = ["--set", "method.phase2.epochs=10", "--set", "method.phase3.epochs=6"]
    said = lcwof("tune", *common, "--method", "lcwof", "--episodes", 3, "-o", tuned, *short)
    assert "Chosen: hm" in said
    text = tuned.read_text()
    assert text.startswith("# lcwof evaluate") and "3 validation episodes" in text and "[method.phase3]" in text
    candidates = json.loads(tuned.with_suffix(".json").read_text())["candidates"]
    assert len(candidates) == 2 * 5 * 7
    run = tmp_path / "run"
    said = json.loads(lcwof("evaluate", tuned, "--episodes", 4, "--curves", 3, "-o", run, "--json"))
    assert "3 validation episodes" in said["tuning"]["why"]
    settings = json.loads((run / "run.json").read_text())["recipe"]["method"]
    assert settings["phase3"]["epochs"] == candidates[0]["settings"]["phase3.epochs"]
    assert len((run / "rows.jsonl").read_text().splitlines()) == 4
    other = tmp_path / "pn"
    lcwof("evaluate", *common, "--method", "pn", "--episodes", 4, "-o", other)
    page = tmp_path / "page.html"
    assert f"Report: {page}\n" in lcwof("report", tmp_path, "-o", page)
    assert page.read_text().count('class="plot"') >= 1 + 1 + 2 * 2  # and the trade-off, unless no epoch was chosen
    table = lcwof("report", tmp_path, "--format", "csv").splitlines()
    assert table[0].startswith("data,way,shot,method,run,episodes,N/N,N/N interval") and len(table) == 1 + 2
    tex = tmp_path / "table.tex"
    assert lcwof("report", tmp_path, "--format", "latex", "-o", tex) == f"Table: {tex}\n"
    assert r"\toprule" in tex.read_text()
    assert lcwof("report", tmp_path, "--format", "markdown").startswith("| data | setting | method |")
    result = runner.invoke(app, ["report", str(run), "--format", "csv", "--json"])
    assert isinstance(result.exception, LcwofError) and "choose one" in str(result.exception)
    shutil.copytree(other, tmp_path / "begun.partial")
    result = runner.invoke(app, ["report", str(tmp_path), "--format", "csv"])
    assert "Left out, as unfinished: begun.partial." in result.stderr and len(result.stdout.splitlines()) == 1 + 2


def test_compare_runs_methods_on_the_same_episodes_and_goes_on(base: Path, tmp_path: Path) -> None:
    words = [
        "compare",
        "--data",
        "digits",
        "--model",
        base,
        "--way",
        2,
        "--shot",
        1,
        "--episodes",
        4,
        "-o",
        tmp_path / "c",
    ]
    short = ["--set", "method.phase2.epochs=6", "--set", "method.phase3.epochs=4", "--set", "tune.episodes=2"]
    said = lcwof(*words, "--methods", "lcwof,pn", *short)
    assert "to lcwof: hm less lcwof's" in said and "novel_bias" in said and (tmp_path / "c" / "report.html").exists()
    assert "2 validation episodes" in (tmp_path / "c" / "pn.toml").read_text()
    about = tmp_path / "c" / "pn" / "run.json"
    before = json.loads(about.read_text())
    del before["recipe"]["evaluate"]["answers"]  # as runs before there were answers
    about.write_text(json.dumps(before))
    made = about.stat().st_mtime_ns
    rows = json.loads(lcwof(*words, "--methods", "lcwof,pn,gfsv", *short, "--json"))
    assert {row["method"] for row in rows} == {"lcwof", "pn", "gfsv"}
    assert about.stat().st_mtime_ns == made, "what is there is not done again"
    more = json.loads(lcwof(*words, "--methods", "gfsv", *short, "--episodes", 6, "--json"))
    assert more[0]["episodes"] == 6, "more are added"
    for wrong in (
        ["--methods", "pn", "--shot", 2],
        ["--methods", "lcwof", *short, "--no-tune"],  # would stand among tuned ones
        ["--methods", "lcwof", *short, "--set", "method.phase2.epochs=7"],
        ["--methods", "lcwof", *short, "--set", "tune.episodes=3"],
    ):
        result = runner.invoke(app, [str(word) for word in [*words, *wrong]])
        assert isinstance(result.exception, LcwofError) and "other settings (" in str(result.exception), wrong
    for wrong, why in (
        (["--methods", "pn", "--set", "tune.episodes=2", "--episodes", 3], "has 4 episodes, more than the 3 asked for"),
        (["--methods", " , "], "--methods names none"),
    ):
        result = runner.invoke(app, [str(word) for word in [*words, *wrong]])
        assert isinstance(result.exception, LcwofError) and why in str(result.exception), wrong
    recipe = tmp_path / "own.toml"  # its grid is of lcwof alone
    recipe.write_text(
        "[method]\nphase2.epochs = 2\nphase3.epochs = 1\n[tune]\nepisodes = 1\ngrid.weight_constraint = [1.0]\n"
    )
    few = ["--data", "digits", "--model", base, "--way", 2, "--shot", 1, "--episodes", 1, "--methods", "lcwof,pn"]
    assert "pn" in lcwof("compare", recipe, *few, "-o", tmp_path / "g")
    other = tmp_path / "other.safetensors"
    lcwof("pretrain", "--data", "digits", "--backbone", "mlp", "--epochs", 1, "-o", other)
    evaluated = ["--data", "digits", "--method", "pn", "--way", 2, "--shot", 1, "--episodes", 4]
    lcwof("evaluate", *evaluated, "--model", other, "-o", tmp_path / "weak")
    shown = ["report", tmp_path / "c" / "pn", tmp_path / "c", tmp_path / "weak", "--format", "csv"]
    result = runner.invoke(app, [str(word) for word in shown])
    assert "do not all start from the same base model" in result.stderr, "whatever the format"
    assert len(result.stdout.splitlines()) == 1 + 4, "a run named twice is one"
    assert "same base model" not in runner.invoke(app, [str(word) for word in [*shown[:3], *shown[4:]]]).stderr
    story = tmp_path / "weak" / "run.json"
    story.write_text(json.dumps({**json.loads(story.read_text()), "data": "others"}))
    assert "same base model" not in runner.invoke(app, [str(word) for word in shown]).stderr, "nor could they"
    result = runner.invoke(app, [str(word) for word in [*words, "--methods", "pn", "--model", other]])
    assert isinstance(result.exception, LcwofError)
    assert "other settings (tuned for something else, model)" in str(result.exception)
    shutil.rmtree(tmp_path / "c" / "pn")  # tuned, not evaluated: as an interruption leaves it
    result = runner.invoke(app, [str(word) for word in [*words, "--methods", "pn", "--shot", 2]])
    assert isinstance(result.exception, LcwofError) and "was tuned for other settings" in str(result.exception)


def test_info_tells_how_a_base_model_was_made(base: Path, tmp_path: Path) -> None:
    said = lcwof("info", base)
    assert "a base model: mlp" in said and "base classes (6): 0, 1, 2, 3, 4, 5" in said and "data: digits" in said
    assert "on test images, %" in said and "tests are shown the common crop" in said
    assert "backbone mlp" in said and "epochs " in said and "momentum" not in said, "what is other than the defaults"
    assert json.loads(lcwof("info", base, "--json"))["about"]["phase1"]["backbone"] == "mlp"
    (tmp_path / "not.safetensors").write_text("no")
    result = runner.invoke(app, ["info", str(tmp_path / "not.safetensors")])
    assert isinstance(result.exception, LcwofError) and "not a readable model file" in str(result.exception)


def test_tune_stream_and_stream(base: Path, tmp_path: Path) -> None:
    short = ["--set", "phase1.lr=0.05", "--set", "phase1.schedule=one-cycle", "--set", "phase1.batch=32"]
    pseudo, tuned, run = tmp_path / "pseudo.safetensors", tmp_path / "tuned.toml", tmp_path / "run"
    lcwof("pretrain", "--data", "digits", "--pseudo", 2, "--backbone", "mlp", "--epochs", 3, "-o", pseudo, *short)
    few = ["--way", 1, "--shot", 3, "--streams", 2]
    short = ["--set", "method.phase2.epochs=10", "--set", "method.phase3.epochs=6"]
    words = ["--data", "digits", "--pseudo", 2, "--model", pseudo, "--outcome", "base-biased", *few, *short]
    assert "Chosen: J/J" in lcwof("tune-stream", *words, "-o", tuned)
    assert "2 classes of them as later sessions" in tuned.read_text() and "pseudo = 0" in tuned.read_text()
    said = json.loads(lcwof("stream", tuned, "--model", base, "--streams", 2, "-o", run, "--json"))
    assert len(said["sessions"]) == 5 and said["streams"] == 2 and said["sessions"][1]["hm"]["mean"] > 30
    assert "base-biased: J/J" in json.loads((run / "run.json").read_text())["recipe"]["tuning"]["why"]
    lcwof("report", run, "-o", tmp_path / "page.html")
    assert lcwof("report", run, "--format", "markdown").startswith("**lcwof (run)**, digits/base-6")
    assert "hm, session & 2 & 3" in lcwof("report", run, "--format", "latex")
    assert lcwof("report", run, "--format", "csv").startswith("data,method,run,streams,session,classes,images kept,N/N")
    for words, why in (
        (["tune-stream", "--data", "digits", "--model", base], "no pseudo-sessions: give --pseudo N"),
        (["tune-stream", "--data", "digits", "--pseudo", 2, "--model", base, *few], "trained on 6 other base classes"),
        (["tune-stream", "--outcome", "best"], "choose one of balanced, base-biased"),
        (["stream", "--data", "digits", "--model", base, "--set", "tuning.why=hm"], "chosen by `lcwof tune`"),
        (["stream", "--data", "digits", "--model", pseudo, *few], "was it made with --pseudo"),
    ):
        result = runner.invoke(app, [str(word) for word in words])
        assert isinstance(result.exception, LcwofError) and why in str(result.exception)


def test_streams_are_compared_and_a_comparison_goes_on(base: Path, tmp_path: Path) -> None:
    pseudo = tmp_path / "pseudo.safetensors"
    short = ["--set", "phase1.lr=0.05", "--set", "phase1.schedule=one-cycle", "--set", "phase1.batch=32"]
    lcwof("pretrain", "--data", "digits", "--pseudo", 2, "--backbone", "mlp", "--epochs", 3, "-o", pseudo, *short)
    few = ["--way", 1, "--shot", 3, "--sessions", 3, "--streams", 2, "--set", "tune.streams=1"]
    words = ["compare-stream", "--data", "digits", "--model", base, "--pseudo", 2, *few, "-o", tmp_path / "c"]
    with_model = [*words, "--pseudo-model", pseudo, "--methods", "pn,iw"]
    said = json.loads(lcwof(*with_model, "--json"))
    assert [(run["method"], len(run["sessions"]), run["streams"]) for run in said] == [("pn", 4, 2), ("iw", 4, 2)]
    assert (tmp_path / "c" / "report.html").exists()
    assert "2 classes of them as later sessions" in (tmp_path / "c" / "pn.toml").read_text()
    before = (tmp_path / "c" / "pn" / "run.json").stat().st_mtime_ns
    shutil.rmtree(tmp_path / "c" / "iw")
    assert "hm by session" in lcwof(*with_model)
    assert (tmp_path / "c" / "pn" / "run.json").stat().st_mtime_ns == before, "not done again"
    for wrong, why in (
        ([*words, "--methods", "ft"], "give --pseudo-model FILE"),
        ([*with_model, "--seed", 3], "other settings (seed, tuned for something else)"),
        ([*with_model, "--methods", "nothing"], "no method named 'nothing'"),
    ):
        result = runner.invoke(app, [str(word) for word in wrong])
        assert isinstance(result.exception, LcwofError) and why in str(result.exception)


def test_tuning_for_listed_sessions_does_not_replace_the_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_lists() -> Dataset:
        data = load_dataset("strokes", classes=14, base=8, val=2)
        groups = data.images.of_classes(data.split.novel)
        few, tests = (tuple(group[part] for group in groups) for part in (slice(3), slice(20, 30)))
        return dataclasses.replace(data, sessions=(Session(data.split.novel, few, tests),))

    monkeypatch.setattr(datasets, "_REGISTRY", dict(datasets._REGISTRY))
    datasets.register_dataset("listed", about="", get="", needs="nothing")(with_lists)
    base, pseudo, tuned = (tmp_path / name for name in ("base.safetensors", "pseudo.safetensors", "tuned.toml"))
    words = ["--data", "listed", "--backbone", "mlp", "--epochs", 3, "--set", "phase1.lr=0.05"]
    lcwof("pretrain", *words, "-o", base)
    lcwof("pretrain", *words, "--pseudo", 4, "-o", pseudo)
    lcwof("tune-stream", "--data", "listed", "--pseudo", 4, "--model", pseudo, "--method", "pn", "-o", tuned)
    assert "\nway" not in tuned.read_text() and "1 session of 4 classes" in tuned.read_text()
    lcwof("stream", tuned, "--model", base, "--streams", 1, "-o", tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["listed"] and about["ways"] == [4]


def test_streams_take_the_base_classes_asked_for_and_as_many_new_ones_as_there_are(tmp_path: Path) -> None:
    model, run = tmp_path / "base.safetensors", tmp_path / "run"
    words = ["--data", "digits", "--base-classes", 7]
    lcwof("pretrain", *words, "--backbone", "mlp", "--epochs", 1, "-o", model)
    lcwof("stream", *words, "--model", model, "--method", "pn", "--streams", 1, "-o", run)
    about = json.loads((run / "run.json").read_text())
    assert about["classes"]["base"] == 7 and about["ways"] == [3] and len(about["base"]) == 7
    few = ["--method", "pn", "--way", 1, "--shot", 1, "--episodes", 2]
    lcwof("evaluate", *words, "--model", model, *few, "-o", tmp_path / "episodes")
    assert json.loads((tmp_path / "episodes" / "run.json").read_text())["classes"]["base"] == 7


def test_methods_and_data_are_listed() -> None:
    assert {"lcwof", "iw", "pn", "ft"} <= set(json.loads(lcwof("methods", "--json")))
    listed = lcwof("methods")
    assert all(name in listed for name in ("lcwof", "aan", "topic")) and "Snell" in listed
    assert [line.split()[0] for line in listed.splitlines()[:16]] == method_names(), "a line each"
    assert "largest gradient norm" in lcwof("methods", "lcwof"), "settings are explained, those of phases too"
    told = lcwof("methods", "pn")
    assert "mean embedding of class c" in told and "novel_bias" in told and "meta_steps" in told
    assert "digits" in lcwof("data", "list")
    assert json.loads(lcwof("data", "list", "--json"))["digits"]["needs"] == "nothing"


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "fit",
        "learn",
        "predict",
        "info",
        "pretrain",
        "tune",
        "evaluate",
        "compare",
        "tune-stream",
        "stream",
        "compare-stream",
        "methods",
        "report",
    ],
)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    assert f"lcwof {command}" in lcwof(command, "--help")


def test_mistakes_end_in_one_sentence_and_status_2(
    base: Path, tmp_path: Path, shell: Callable[..., tuple[int, str]]
) -> None:
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(base.read_bytes()[:5000])
    evaluate = ["evaluate", "--data", "digits", "--model"]
    for words, expected in (
        (["fit", tmp_path / "absent"], "no folder"),
        ([*evaluate, base, "--way", 9], "9-way: digits"),
        ([*evaluate, base, "--way", 2, "--shot", 500], "500-shot needs at least 501"),
        ([*evaluate, cut, "--way", 2], "truncated or another format"),
        (["evaluate", "--data", "strokes", "--model", base], "trained on 6 other base classes"),
        ([*evaluate, base, "--set", "evaluate.wya=3"], "did you mean 'way'?"),
        (["predict", base, tmp_path], "holds a base model, but a classifier is needed"),
        (["report", tmp_path / "none"], "no run folder"),
        ([*evaluate, base, "--root", tmp_path], "the data set digits is built in and reads no files"),
        (["fit", tmp_path, "-o", "/proc/no/m.safetensors"], "cannot write /proc/no/m.safetensors"),
        ([*evaluate, base, "--episodes", 0], "recipe.evaluate.episodes = 0: at least 1 is needed"),
    ):
        status, said = shell(*words)
        assert status == 2, (words, said)
        assert said.startswith("error: ") and said.count("\n") == 1, said
        assert expected in said, said


def test_demo_end_to_end_with_few_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = demo_module.RECIPE.read_text()
    small = text.replace("episodes = 100", "episodes = 3").replace("episodes = 20", "episodes = 2")
    small = small.replace("epochs = 100", "epochs = 5").replace("epochs = 60", "epochs = 5")
    assert small.count("episodes = ") == 2 and "episodes = 100" not in small
    (tmp_path / "demo.toml").write_text(small)
    monkeypatch.setattr(demo_module, "RECIPE", tmp_path / "demo.toml")
    said = lcwof("demo", "-o", tmp_path / "out")
    assert f"{tmp_path / 'out' / 'report.html'}\n" in said
    assert len(list((tmp_path / "out").glob("*w*s"))) == 8
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("phase 2") >= 2 and page.count('class="plot"') > 8 + 8


def test_signs_that_the_terminal_lacks_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(main_module, "app", lambda: print("57.9 ± 0.5", flush=True))
    main_module.main()
    assert written.getvalue().split() == [b"57.9", b"?", b"0.5"]
