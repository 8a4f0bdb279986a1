"""The look of the HTML report: one column, system fonts, numbers that line up, light and dark."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --ink: #1c1c1e; --soft: #62676d; --line: #e3e4e2; --first: #2563b0;
  --shade: rgba(0, 0, 0, 0.16);
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #141517; --card: #1d1f22; --ink: #e9eaec; --soft: #9ea4ab; --line: #313439;
    --first: #8db8f2; --shade: rgba(0, 0, 0, 0.6);
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1040px; margin: 0 auto; padding: 48px 24px 64px; }
h1 {
  font-size: 30px; line-height: 1.2; letter-spacing: -0.015em; font-weight: 650; margin: 0 0 6px;
  overflow-wrap: anywhere;
}
h2 { font-size: 20px; line-height: 1.3; letter-spacing: -0.01em; font-weight: 620; margin: 52px 0 14px; }
h3 { font-size: 16px; font-weight: 620; margin: 0 0 6px; overflow-wrap: anywhere; }
p { margin: 0 0 10px; max-width: 72ch; overflow-wrap: anywhere; }
.soft, figcaption, caption, footer { color: var(--soft); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin: 0 0 16px;
}
.card li { margin: 5px 0; overflow-wrap: anywhere; }
.card > :last-child, .card li:last-child { margin-bottom: 0; }
.card ul { margin: 0; padding-left: 18px; max-width: 76ch; color: var(--soft); font-size: 15px; }
.scroll { /* a shadow at the right while there is more to scroll to */
  overflow-x: auto; padding: 6px 0;
  background:
    linear-gradient(to left, var(--card) 40%, transparent) right / 48px 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 18px 100% no-repeat scroll, var(--card);
}
table {
  border-collapse: collapse; width: 100%; font-size: 15px; font-variant-numeric: tabular-nums;
  white-space: nowrap;
}
caption { text-align: left; padding: 12px 22px 8px; font-size: 14px; white-space: normal; }
caption > span { display: block; max-width: min(100%, calc(100vw - 94px), 940px); position: sticky; left: 22px; }
caption b { color: var(--ink); font-weight: 620; font-size: 16px; margin-right: 8px; }
th, td { padding: 9px 12px; text-align: right; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { font-size: 13px; font-weight: 500; color: var(--soft); }
thead th[colspan] { text-align: center; border-bottom: 0; padding-bottom: 0; }
thead tr:has(th[colspan]) th { border-bottom: 0; }
th:first-child { text-align: left; padding-left: 22px; position: sticky; left: 0; background: var(--card); }
th:last-child, td:last-child { padding-right: 22px; }
tbody th { font-weight: 500; }
tr.first th, tr.first .hm b { font-weight: 700; }
td b { font-weight: 400; }
td i { font-style: normal; font-size: 12.5px; color: var(--soft); margin-left: 5px; }
td small { display: block; font-size: 12px; line-height: 1.2; }
.wrap th, .wrap td { white-space: normal; overflow-wrap: anywhere; }
.wrap thead th, .wrap td:nth-child(n + 3) { white-space: nowrap; overflow-wrap: normal; }
td.hm { min-width: 132px; position: relative; }
td.close { color: var(--soft); }
.bar { position: absolute; left: 12px; right: 12px; bottom: 4px; height: 3px; background: var(--line); }
.bar span { display: block; height: 100%; background: var(--soft); opacity: 0.6; }
tr.first .bar span { background: var(--first); opacity: 1; }
.figures {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); gap: 16px;
  margin: 0 0 16px;
}
figure {
  margin: 0; background: #ffffff; color: #1c1c1e; border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 16px 12px;
}
figure > svg { display: block; width: 100%; height: auto; }
.plot { width: 100%; }
.save { margin: 6px 0 0; font-size: 13px; color: #62676d; text-align: right; }
.save button {
  font: inherit; color: inherit; background: none; border: 1px solid #d9dbde; border-radius: 6px; padding: 3px 9px;
  margin-left: 5px; cursor: pointer;
}
.figures > * { min-width: 0; margin-bottom: 0; }
figure h3 { color: #1c1c1e; }
figcaption { font-size: 14px; color: #62676d; margin: 0 0 10px; }
.key { margin: 0 0 14px; font-size: 14px; color: var(--soft); max-width: none; }
.key span { white-space: nowrap; margin-right: 16px; }
.key svg { width: 26px; height: 8px; margin-right: 6px; vertical-align: middle; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 0 0 10px; }
summary { cursor: pointer; padding: 13px 22px; font-weight: 550; overflow-wrap: anywhere; }
summary .soft { font-weight: 400; margin-left: 8px; }
details > div { padding: 2px 22px 18px; }
dl {
  display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 7px 22px; margin: 0 0 14px;
  font-size: 15px;
}
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre {
  overflow-x: auto; background: var(--page); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; margin: 0;
}
footer {
  margin-top: 52px; padding-top: 18px; border-top: 1px solid var(--line); font-size: 14px;
  overflow-wrap: anywhere;
}
@media (max-width: 640px) {
  main { padding: 28px 14px 40px; }
  h1 { font-size: 25px; }
  h2 { margin-top: 40px; }
  .card { padding: 16px; }
  .card.scroll { padding: 4px 0; }
  caption, summary { padding-left: 16px; padding-right: 16px; }
  caption > span { left: 16px; }
  table { font-size: 14px; }
  th, td { padding: 9px 5px; }
  thead th { white-space: normal; vertical-align: bottom; }
  th:first-child { padding-left: 16px; }
  th:last-child, td:last-child { padding-right: 16px; }
  td i { display: block; margin: 0; font-size: 11.5px; line-height: 1.2; }
  td.hm { min-width: 0; }
  .bar { left: 5px; right: 5px; }
  details > div { padding: 2px 16px 16px; }
  figure { padding: 14px 8px 8px; }
  figure h3, figcaption { padding: 0 6px; }
  dl { grid-template-columns: 1fr; gap: 1px; }
  dd { margin-bottom: 8px; }
}
@media print { body { background: none; } .save { display: none; } .card, figure, details { break-inside: avoid; } }
"""
