"""Pieces of HTML that all parts of a page are made of. What comes from outside is escaped here or by the caller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from math import isnan
from typing import Any

from lcwof.report.compare import Paired
from lcwof.report.plotly_figures import Spec
from lcwof.report.table import difference_parts

_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud", "toImage"],
}
# Figures are drawn when they come near the window, so that a long page opens at once, and again when their width
# changes. On a touch screen a finger on a figure scrolls the page. Each is saved as it stands, on white; PNG in three
# times its pixels, for print.
_DRAW = """
(() => {
  const touch = !window.matchMedia("(hover: hover)").matches;
  const draw = (div) => {
    if (div.dataset.drawn) return;
    div.dataset.drawn = "yes";
    const spec = JSON.parse(div.nextElementSibling.textContent);
    if (touch) spec.layout.dragmode = false;
    const config = {...CONFIG, displayModeBar: touch ? false : "hover"};
    Plotly.newPlot(div, spec.data, spec.layout, config).then(() => {
      new ResizeObserver(() => Plotly.Plots.resize(div)).observe(div);
      const figure = div.parentElement, save = figure.querySelector(".save");
      const above = [...document.querySelectorAll("h2")].filter((h) => h.compareDocumentPosition(div) & 4).pop();
      const said = [above, ...figure.querySelectorAll("h3, figcaption")].map((e) => e ? e.textContent : "");
      const name = said.map((text, i) => i < 2 ? text : text.split(/[:.]/)[0]).join(" ");
      const filename = name.toLowerCase().replace(/[^\\p{L}\\p{N}]+/gu, "-").replace(/^-|-$/g, "");
      save.hidden = false;
      save.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
        const {format, scale} = button.dataset, width = div.clientWidth, height = div.clientHeight;
        const layout = {...div.layout, paper_bgcolor: "#ffffff", width, height};
        Plotly.downloadImage({data: div.data, layout}, {format, scale, width, height, filename});
      }));
    });
  };
  const all = document.querySelectorAll(".plot");
  const near = new IntersectionObserver((seen) => seen.forEach((e) => e.isIntersecting && draw(e.target)),
                                        {rootMargin: "800px"});
  all.forEach((div) => near.observe(div));
  window.addEventListener("beforeprint", () => all.forEach(draw));
})();
""".replace("CONFIG", json.dumps(_CONFIG))


def figure(title: str, caption: str, spec: Spec) -> str:
    """An interactive figure under its title and caption, with buttons that save it; `scripts` draws it."""
    text = json.dumps(spec, allow_nan=False)
    for mark in "<>&\u2028\u2029":  # none of which may stand in a script as it is
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    height = spec["layout"]["height"]
    described = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f"<figure><h3>{escape(title)}</h3>{described}"
        f'<div class="plot" role="img" aria-label="{escape(title)}" style="height:{height}px"></div>'
        f'<script type="application/json">{text}</script>'
        '<p class="save" hidden>Save as <button type="button" data-format="svg" data-scale="1">SVG</button> '
        '<button type="button" data-format="png" data-scale="3">PNG</button></p></figure>'
    )


def scripts() -> str:
    """What draws the figures, once a page: plotly.js itself, so that no network is needed, and a few lines."""
    from plotly.offline import get_plotlyjs  # here: only a page needs it

    return f"<script>{get_plotlyjs()}</script><script>{_DRAW}</script>"


NO_SCRIPT = "<noscript><p>The figures are drawn by a script inside this page; scripts are switched off.</p></noscript>"


def figures(parts: Sequence[str]) -> str:
    """Figures side by side where there is room."""
    return f'<div class="figures">{"".join(parts)}</div>'


def table(caption: str, head: str, rows: Sequence[str], kind: str = "") -> str:
    """A table that scrolls sideways where it is wider than the page; `caption`, `head` and `rows` are HTML. kind:
    "wrap" where names are long and may be broken into lines."""
    inner = (
        f"<table><caption><span>{caption}</span></caption><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    )
    classes = f"card scroll {kind}".strip()
    return f'<div class="{classes}">{inner}</div>'


def row(name: str, cells: Sequence[str], kind: str = "") -> str:
    """A row of a table with its name in front; cells are HTML."""
    mark = f' class="{kind}"' if kind else ""
    return f'<tr{mark}><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'


def heads(names: Sequence[str]) -> str:
    return "<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in names) + "</tr>"


def number(mean: float, interval: float) -> str:
    """What a cell shows of a mean; no interval where a single episode or stream gives none."""
    shown = "" if isnan(interval) else f"<i>± {interval:.2f}</i>"
    return f"<b>{mean:.2f}</b>{shown}"


def difference_cell(paired: Paired | None, none: str = "–") -> str:
    """A difference, quiet where it may be chance; `none` where there is none."""
    if paired is None:
        return f'<td class="close">{escape(none)}</td>'
    mean, interval, chance = difference_parts(paired)
    shown = f"<i>± {interval}</i>" if interval else ""
    said = f"<small>{chance}</small>" if chance else ""
    return f'<td class="{"clear" if paired.clear else "close"}">{mean}{shown}{said}</td>'


def told(notes: Sequence[str], origin: Sequence[str]) -> str:
    """Notes as a list, and folded away below them, as there are many, those of where each number comes from."""

    def listed(texts: Sequence[str]) -> str:
        return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>" if texts else ""

    folded = "<details><summary>Where each number was computed, how long it took, what was chosen</summary><div>"
    return listed(notes) + (f"{folded}{listed(origin)}</div></details>" if origin else "")


def pairs(entries: dict[str, Any]) -> str:
    """Names and what they stand for, as a list of definitions."""
    items = (f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>" for k, v in entries.items())
    return f"<dl>{''.join(items)}</dl>"
