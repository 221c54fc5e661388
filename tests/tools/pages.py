#!/usr/bin/env python3
"""Opens pages of the lab in headless Chromium and looks at what is drawn.

usage: pages.py SCRATCH-DIRECTORY PAGE.html:CHARTS...

Of every chart: each text and each mark is within the drawing, no text lies on another, every series that has points is
drawn. Of the page: it has so many charts, asks nobody for anything, and writes nothing to the console. Last, the look is tried
on a page that is broken on purpose.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LOOK = """
<script>
addEventListener('load', () => {
  const found = { charts: 0, series: 0, empty: 0, bad: [], requests: performance.getEntriesByType('resource').length };
  for (const svg of document.querySelectorAll('svg.chart')) {
    found.charts += 1;
    const name = svg.getAttribute('aria-label');
    const all = svg.getBoundingClientRect();
    const within = (r) => r.left >= all.left - 1 && r.right <= all.right + 1 && r.top >= all.top - 1 && r.bottom <= all.bottom + 1;
    const texts = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (const [text, r] of texts) if (!within(r)) found.bad.push(`${name}: text "${text}" is cut off`);
    for (const [i, [a, p]] of texts.entries()) for (const [b, q] of texts.slice(i + 1)) {
      if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2 && q.top < p.bottom - 2)
        found.bad.push(`${name}: texts "${a}" and "${b}" overlap`);
    }
    for (const shape of svg.querySelectorAll('path, rect')) {
      const r = shape.getBoundingClientRect();
      if (!within(r)) found.bad.push(`${name}: a ${shape.getAttribute('class')} is cut off`);
    }
    for (const series of svg.querySelectorAll('g.series')) {
      found.series += 1;
      if (series.dataset.points === '0') found.empty += 1;
      else if (!series.querySelector('path')) found.bad.push(`${name}: series "${series.dataset.name}" is not drawn`);
    }
  }
  document.body.innerHTML = '';
  const result = document.createElement('pre');
  result.id = 'found';
  result.textContent = JSON.stringify(found);
  document.body.append(result);
});
</script>
</head>"""


def look(scratch: Path, name: str, html: str):
    """What the browser found on a page, and what it wrote to the console."""
    page = scratch / name
    page.write_text(html.replace("</head>", LOOK, 1))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={scratch}/profile",
               "--window-size=1180,2000", "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    if not match:
        sys.exit(f"{name}: nothing rendered\n{done.stderr[-2000:]}")
    text = match.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(text), console


def main():
    scratch, pages = Path(sys.argv[1]), sys.argv[2:]
    failed = []
    for page in pages:
        path, charts = page.rsplit(":", 1)
        html = Path(path).read_text()
        found, console = look(scratch, Path(path).name, html)
        print(f"NOTE {Path(path).name}: {found['charts']} charts, {found['series']} series, {found['empty']} without points")
        failed += [f"{path}: {text}" for text in found["bad"] + console]
        if found["charts"] != int(charts):
            failed.append(f"{path}: {found['charts']} charts, not {charts}")
        if found["series"] == found["empty"] or found["requests"]:
            failed.append(f"{path}: {found}")
    broken = re.sub(r'(<text class="t" x=")[^"]*', r"\g<1>1075", html, count=1)
    broken = broken.replace("</head>", "<script>console.error('on purpose')</script></head>", 1)
    found, console = look(scratch, "broken.html", broken)
    if not any("is cut off" in text for text in found["bad"]) or len(console) != 1:
        failed.append(f"a broken page was not noticed: {found}, {console}")
    sys.exit("\n".join(failed) or 0)


main()
