"""A table or figure of the paper as files: ours beside the printed numbers, and where each was computed."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from lcwof.engine import Run
from lcwof.engine.overview import Points
from lcwof.models import pretrained
from lcwof.models.checkpoint import write_aside
from lcwof.report.beside import beside_csv, beside_html, beside_json, beside_latex, beside_markdown
from lcwof.report.cells import Runs, compared
from lcwof.report.compare import paired_difference
from lcwof.report.figures import as_svg, save_png
from lcwof.report.markup import NO_SCRIPT, figure, figures, scripts, told
from lcwof.report.page import html_page
from lcwof.report.panels import Panel, panel_json, panel_markdown, panel_spec, panels_figure
from lcwof.report.paper_plots import plot_panels
from lcwof.report.points import points_figure, points_spec, title_of
from lcwof.report.reproduction import Reproduction
from lcwof.report.table import difference_words

POINTS = "points.json"  # in a run's folder: the test samples of one episode after each phase


def write(what: Reproduction, runs: Runs, out: Path) -> str:
    """A table or figure from the runs that are there, into a folder; returns what was written."""
    if what.paper is None:
        return _draw(what, runs, out)
    parts, notes, origins = compared(what, runs), _notes(what, runs), _origins(runs)
    file, said = out / f"{what.key}.md", [*notes, *origins]
    write_aside(file, beside_markdown(what, parts, said).encode())
    page = html_page(f"lcwof: {what.key}", beside_html(what, parts, told(notes, origins)))
    write_aside(out / f"{what.key}.html", page.encode())
    write_aside(out / f"{what.key}.tex", beside_latex(what, parts).encode())
    write_aside(out / f"{what.key}.csv", beside_csv(what, parts).encode())
    write_aside(out / f"{what.key}.json", (json.dumps(beside_json(what, parts, said), indent=1) + "\n").encode())
    return f"{file}, and .html, .tex, .csv and .json beside it"


def _draw(what: Reproduction, runs: Runs, out: Path) -> str:
    """A figure: to look at in a page, and as SVG and PNG; what is drawn as Markdown and JSON."""
    panels, notes, origins = plot_panels(what, runs), _notes(what, runs), _origins(runs)
    printed = {"": panels_figure(panels, 2)}
    shown = figures([figure(p.title, _under(p), panel_spec(p)) for p in panels])
    overview = what.figure == "overview"  # whose runs another figure may share
    with_points = {key: run.path / POINTS for key, run in runs.items() if overview and (run.path / POINTS).exists()}
    for (place, setting, row), file in with_points.items():
        phases = [Points(**each) for each in json.loads(file.read_text())]
        alone = len(with_points) == 1
        printed["-points" if alone else f"-points-{place}-{row}-{setting}"] = points_figure(phases)
        drawn = [figure(*title_of(each), points_spec(each)) for each in phases]
        of = "" if alone else escape(f" of {place}/{row}-{setting}")
        shown += (
            f"<h2>Test samples of one episode{of}</h2><p>Embeddings in the plane by t-SNE. Base classes are pale; "
            f"larger where the answer is sure, crosses where it is wrong.</p>{figures(drawn)}"
        )
    for name, sheet in printed.items():
        write_aside(out / f"{what.key}{name}.svg", as_svg(sheet, what.key + name, what.about).encode())
        save_png(sheet, out / f"{what.key}{name}.png")
    kept = {"key": what.key, "panels": [panel_json(panel) for panel in panels], "notes": [*notes, *origins]}
    body = f"<h1>{escape(what.about)}</h1>{NO_SCRIPT}{shown}{told(notes, origins)}"
    write_aside(out / f"{what.key}.html", html_page(f"lcwof: {what.key}", body, scripts()).encode())
    write_aside(out / f"{what.key}.json", (json.dumps(kept, indent=1) + "\n").encode())
    text = "\n".join(
        [f"## {what.about}\n", *map(panel_markdown, panels), *(f"- {note}" for note in (*notes, *origins))]
    )
    write_aside(out / f"{what.key}.md", (text + "\n").encode())
    return f"{out / what.key}.html, and .md, .svg, .png and .json beside it"


def _under(panel: Panel) -> str:
    bars = "bars are 95% intervals" if panel.counted else "with their 95% intervals under the pointer"
    return "; ".join(filter(None, (f"means over {panel.episodes} episodes, {bars}", panel.remark)))


def _origin(about: dict[str, Any]) -> str:
    versions = " ".join(f"{name} {number}" for name, number in about["versions"].items() if name != "numpy")
    begun = "; begun on ".join(["", *map(_origin, about.get("before", []))])
    return ", ".join(filter(None, (about["hardware"], about["compute"], versions, about.get("date")))) + begun


def _apart(what: Reproduction, runs: Runs) -> list[str]:
    """Of a figure, how far its runs end from the one that they are compared with: what curves hardly show."""
    found = []
    for (place, setting, row), run in runs.items() if what.figure else ():
        other = runs.get((place, setting, what.reference))
        if isinstance(run, Run) and isinstance(other, Run) and other is not run:
            paired = paired_difference(run, other)
            if paired is not None:
                ends = f"{row}-{setting} ({place}) ends, in hm less that of {what.reference}, by episode"
                found.append(f"{ends}: {difference_words(paired)}.")
    return found


def _notes(what: Reproduction, runs: Runs) -> list[str]:
    """What the numbers need to be read with: remarks, data and base models."""
    notes = [*what.remarks, *_apart(what, runs)]
    data = {run.about["data"]: run.about.get("classes") or {} for run in runs.values()}
    for name, classes in data.items():
        counts = "/".join(str(number) for number in classes.values())
        notes.append(f"Data: {name}" + (f", {counts} {'/'.join(classes)} classes." if counts else "."))
    models = {}
    for (place, _, _), run in runs.items():
        model = run.about["model"]
        mirror = ", tests on the mean over image and mirror image" if model.get("mirror") else ""
        known = pretrained(model.get("phase1", {}).get("backbone", ""))
        begun = f", begun from weights that know {known.knows}" if known else ""
        teachers = model.get("phase1", {}).get("teachers", ())
        taught = f", taught by {' and '.join(teachers)}" if teachers else ""
        known_as = f"base test accuracy {model.get('test accuracy')}%{begun}{taught}{mirror}"
        models[str(place)] = f"Base model {place}: {known_as}."
    return [*notes, *models.values()]


def _origins(runs: Runs) -> list[str]:
    """Where the numbers come from: hardware and versions, time taken, what was chosen."""
    origins: dict[str, list[str]] = {}
    for (place, setting, row), run in sorted(runs.items()):
        origins.setdefault(_origin(run.about), []).append(f"{place}/{row}-{setting}")
    notes = [f"Computed on {origin}: {', '.join(names)}." for origin, names in origins.items()]
    seconds = {f"{place}/{row}-{setting}": run.about.get("seconds", 0.0) for (place, setting, row), run in runs.items()}
    if seconds:
        taken = ", ".join(f"{name} {value:.0f}" for name, value in sorted(seconds.items(), key=lambda x: -x[1]))
        notes.append(f"Seconds for the test episodes or streams: {taken}.")
        tuned = {
            f"{place}/{row}-{setting}": why["seconds"]
            for (place, setting, row), run in runs.items()
            if "seconds" in (why := run.about["recipe"].get("tuning") or {})
        }
        if tuned:
            taken = ", ".join(f"{name} {value:.0f}" for name, value in sorted(tuned.items(), key=lambda x: -x[1]))
            notes.append(f"Seconds to choose settings, what is fitted to base classes included: {taken}.")
    for (place, setting, row), run in sorted(runs.items()):
        why = run.about["recipe"].get("tuning") or {}
        if why:
            settings = ", ".join(f"{k} {v}" for k, v in why["settings"].items())
            notes.append(f"{row}-{setting} ({place}), chosen without test data: {settings} ({why['why']}).")
    return notes
