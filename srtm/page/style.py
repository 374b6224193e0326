"""How pages look: light and dark, from a phone to a wide screen, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f9; --card: #ffffff; --ink: #16202c; --soft: #5a6675;
  --rule: #dfe4ea; --grid: #e9edf2;
  --good: #00795a; --bad: #c0392b; --doubt: #8a6100;
  --good-wash: #e3f4ee; --bad-wash: #fbe6e3; --doubt-wash: #fdf1d8;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #a3478a; --c4: #9a7200; --c5: #3a8fc4;
  --c6: #6b5bd2; --c7: #7a8694;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #10151b; --card: #182029; --ink: #e6ebf0; --soft: #9aa7b5;
    --rule: #2c3743; --grid: #232d38;
    --good: #4cc9a0; --bad: #ff8a7a; --doubt: #f0bd4f;
    --good-wash: #12352c; --bad-wash: #43201c; --doubt-wash: #3b2e10;
    --c0: #5cb3ec; --c1: #ff9248; --c2: #3fd0a4; --c3: #e391c9; --c4: #e0b84a; --c5: #8fd0f5;
    --c6: #a79cf5; --c7: #93a0ae;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 0 0 4px; letter-spacing: -0.005em; }
h3 { font-size: 1rem; margin: 28px 0 6px; }
p { margin: 6px 0; max-width: 72ch; }
a { color: var(--c0); text-underline-offset: 2px; }
code { font: 0.88em ui-monospace, "DejaVu Sans Mono", monospace; }
.soft { color: var(--soft); font-size: 0.88rem; }
.lead { color: var(--soft); font-size: 1.05rem; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
    padding: 22px 24px;
  margin: 22px 0; }
h1, h2, h3, p, li { overflow-wrap: anywhere; }
td, th { overflow-wrap: break-word; max-width: 26rem; }
.words { min-width: 6.5rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 10px;
    margin: 16px 0 4px;
  padding: 0; }
.facts div { border: 1px solid var(--rule); border-radius: 8px; padding: 10px 12px;
    min-width: 0; }
.facts dt { color: var(--soft); font-size: 0.78rem; }
.facts dd { margin: 0; font-size: 1.25rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; line-height: 1.3; }
.facts dd.plain { font-size: 0.92rem; font-weight: 500; }
.facts.plain { gap: 6px 18px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.facts.plain div { border: 0; padding: 2px 0; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; font-size: 0.88rem; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft);
    border-bottom: 2px solid var(--rule); padding: 6px 14px 6px 0;
  vertical-align: bottom; }
td { border-bottom: 1px solid var(--rule); padding: 6px 14px 6px 0; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.right { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.chip { display: inline-block; border-radius: 999px; padding: 1px 10px; font-size: 0.82rem;
    font-weight: 600;
  white-space: nowrap; }
.met { color: var(--good); background: var(--good-wash); }
.missed { color: var(--bad); background: var(--bad-wash); }
.undecided { color: var(--doubt); background: var(--doubt-wash); }
tr.missed-row td { background: var(--bad-wash); }
tr.missed-row td:first-child { box-shadow: inset 4px 0 0 var(--bad); padding-left: 12px; }
.note { border-left: 4px solid var(--doubt); background: var(--doubt-wash); border-radius: 4px;
    padding: 8px 14px;
  margin: 14px 0; }
.note.bad { border-color: var(--bad); background: var(--bad-wash); }
figure { margin: 26px 0 6px; }
figcaption { font-weight: 600; font-size: 0.95rem; margin-bottom: 12px; }
figcaption span { display: block; font-weight: 400; color: var(--soft); font-size: 0.86rem;
    max-width: 80ch; }
figure img { max-width: 100%; height: auto; background: #fff; border-radius: 8px;
    border: 1px solid var(--rule); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
    gap: 8px 32px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.strong { fill: var(--ink); font-weight: 600; }
svg text.label { font-weight: 600; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .limit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .halo { stroke: var(--card); stroke-width: 4; paint-order: stroke; stroke-linejoin: round; }
svg .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.narrow { display: none; }
@media (max-width: 640px) {
  main { padding: 20px 12px 48px; }
  section { padding: 16px 14px; border-radius: 10px; }
  h1 { font-size: 1.5rem; }
  .wide { display: none; }
  .narrow { display: block; }
}
@media print { body { background: #fff; } section { break-inside: avoid; border-color: #ccc; } }
""" + "".join(
    f".s{n} {{ stroke: var(--c{n}); }} .f{n}, svg text.f{n} {{ fill: var(--c{n}); }}\n"
    for n in range(8)
)  # fmt: skip
"""Colours of series are Okabe and Ito's (2008), which people of any colour vision tell apart,
darker or lighter until they have a contrast of 3 with the page."""
