"""What all figures share: colours, quiet axes, and SVG that can stand inside a page."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lcwof.models.checkpoint import write_aside

if TYPE_CHECKING:  # matplotlib takes half a second to import
    from matplotlib.figure import Figure

NOVEL, BASE, HM = "#c2334d", "#2563b0", "#1c1c1e"
QUIET, FAINT = "#6b7076", "#d9dbde"
SIZE = 11  # of text, in points of a figure 5.4 inches wide: 10 pixels on a phone
_TEXT: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "DejaVu Sans", "sans-serif"],
}


def new_figure(width: float, height: float, dpi: float | None = None) -> Figure:
    """Nothing drawn yet; sides in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi)


def quiet_axes(figure: Figure, box: tuple[float, float, float, float]) -> Any:
    """Axes with two spines and light grid lines; box: left, bottom, width and height as parts of the figure."""
    ax = figure.add_axes(box)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(which="both", colors=QUIET, length=0)
    ax.tick_params(labelsize=SIZE, pad=5)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def as_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an <svg> element that scales with its surroundings. `name` keeps ids apart within one page."""
    out = BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None, "Title": title}
    from matplotlib import rc_context

    with rc_context({**_TEXT, "svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata=nothing, transparent=True)
    svg = out.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?) height="[^"]*"', r'<svg role="img"\1', svg, count=1)
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{prefix}-", svg)
    return svg.strip()


def save_png(figure: Figure, path: Path) -> Path:
    out = BytesIO()
    from matplotlib import rc_context

    with rc_context(_TEXT):
        figure.savefig(out, format="png", dpi=200, facecolor="white")
    write_aside(path, out.getvalue())
    return path
