"""The page of a real run has every section; runs recorded before there were answers still make one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from runs_by_hand import four_answers_twice, make_run

from lcwof.data import Dataset
from lcwof.engine import Run, evaluate_run, read_recipe
from lcwof.models import BaseModel
from lcwof.report import write_report

OF_ANSWERS = ["Class by class", "How far confidence can be trusted"]
SECTIONS = [
    "What happened",
    "Results",
    "Along learning",
    "Novel against base",
    "Who is taken for whom",
    *OF_ANSWERS,
    "What the measures mean",
    "The methods",
    "The runs in detail",
]


@pytest.fixture(scope="module")
def runs(digits: Dataset, digits_model: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder, made = tmp_path_factory.mktemp("runs"), []
    short: dict[str, Any] = {"method.phase2.epochs": 4, "method.phase3.epochs": 4}
    for method, settings in (("lcwof", short), ("pn", {})):
        options = {"method.name": method, "evaluate.way": 2, "evaluate.episodes": 3, "evaluate.curves": 2}
        recipe = read_recipe([], {"data.name": "digits", "device": "cpu", **options, **settings}, [])
        made.append(evaluate_run(recipe, digits_model, digits, folder / method))
    return made


def sections(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_a_real_run_makes_every_section(runs: list[Run], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "r.html", "digits").read_text()
    assert sections(page) == SECTIONS
    specs = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert len(specs) == 1 + 2 + 2 + 2  # curves; balance and trade-off; classes and reliability of both runs
    for spec in specs:
        go.Figure(spec)
    assert page.count("<caption><span><b>lcwof</b> mistaken most</span></caption>") == 1
    assert re.search(r"lcwof, phase 3: area \d\d\.\d along it, B/J", page) and "(ECE " in page
    assert re.search(r'<th scope="row">pn</th><td><b>\d\d\.\d\d</b><i>± ', page.partition(">AUSUC</th>")[2])
    assert "given a bias" in page
    for kind in ("base", "novel"):
        assert f"{kind} samples taken for" in page


def test_runs_recorded_before_there_were_answers_make_a_page(runs: list[Run], tmp_path: Path) -> None:
    old = []
    for run in runs:
        folder = tmp_path / run.path.name
        folder.mkdir()
        for name in ("rows.jsonl", "curves.jsonl"):
            (folder / name).write_bytes((run.path / name).read_bytes())
        about = json.loads((run.path / "run.json").read_text())
        del about["recipe"]["evaluate"]["answers"]
        (folder / "run.json").write_text(json.dumps(about))
        old.append(Run.read(folder))
    page = write_report(old, tmp_path / "r.html", "digits").read_text()
    assert sections(page) == [name for name in SECTIONS if name not in OF_ANSWERS]
    assert "Not here, because no answers were recorded" in page
    assert "given a bias" not in page and "Dots follow the last phase" in page, "only what is drawn is explained"
    page = write_report([old[0], runs[1]], tmp_path / "r.html", "digits").read_text()
    assert sections(page) == SECTIONS
    assert "evaluate.answers = false): lcwof (digits/base-6, 2-way 1-shot)." in page


def test_answers_of_some_episodes_only_are_said_to_be_so(tmp_path: Path) -> None:
    run = make_run("pn", [50.0, 60.0, 70.0])
    run.answers = four_answers_twice()
    page = write_report([run], tmp_path / "r.html", "two of three").read_text()
    cells = "".join(f"<td>{value}</td>" for value in ("75.0", "0.0", "25.0", "50.0", "25.0", "25.0"))
    assert f'<th scope="row">pn, 2 of 3 episodes</th>{cells}' in page
    assert "Base samples: too modest by 15.0 points (ECE 35.0); novel: too sure by 17.5 points (ECE 37.5)." in page
    assert "Base: best a (100.0), worst b (50.0). Novel: best d (100.0), worst c (0.0)." in page
    assert '<th scope="row">c (novel)</th><td>b (base)</td><td>50.0</td><td>1</td>' in page
