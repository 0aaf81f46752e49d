"""The page in a real browser: no error, every figure drawn, tables that sort, light and dark, wide and narrow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from btfl.report.build import write_report
from drawn_runs import make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (apt: chromium)")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr",
)  # fmt: skip
LIGHT, DARK = 1, 0  # Chromium's numbers for prefers-color-scheme

# Put into a copy of the page: collects errors from the start, clicks as a person would, and writes what it saw.
WATCH = "<script>window.seen = []; addEventListener('error', (e) => seen.push(String(e.message)));</script>"
CLICK = """<script>
const table = document.querySelector("figure.table table");
const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "average");
const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
const keys = () => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.key);
const result = { before: names(), errors: seen };
const button = table.tHead.rows[0].cells[column].querySelector("button");
button.click();
result.down = names(); result.downKeys = keys();
result.arrow = table.tHead.rows[0].cells[column].getAttribute("aria-sort");
button.click();
result.up = names();
table.tHead.rows[0].cells[0].querySelector("button").click();
result.byName = names();
result.figures = [...document.querySelectorAll("figure.drawing svg")].map((svg) => {
  const box = svg.getBoundingClientRect();
  return { width: box.width, height: box.height, shapes: svg.querySelectorAll("path, use").length };
});
result.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
result.cut = [...document.querySelectorAll(".intervals")].map((one) => one.parentElement)
  .map((box) => box.scrollWidth - box.clientWidth);
result.ink = getComputedStyle(document.body).color;
const out = document.createElement("pre"); out.id = "result"; out.textContent = JSON.stringify(result);
document.body.append(out);
</script>"""

FRAME = """<script>
document.querySelector("iframe").addEventListener("load", (event) => {
  const inner = event.target.contentDocument, root = inner.documentElement;
  const cut = (tables) => [...inner.querySelectorAll(tables)].map((one) => one.parentElement)
    .map((box) => box.scrollWidth - box.clientWidth);
  const out = document.createElement("pre"); out.id = "result";
  out.textContent = JSON.stringify({
    width: root.clientWidth, overflow: root.scrollWidth - root.clientWidth,
    cut: cut(".intervals"), numbers: cut(root.clientWidth < 700 ? ".numbers" : ".intervals"),
  });
  document.body.append(out);
});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    return write_report([make_run(folder / "run")], folder / "out").page


def browse(page: Path, profile: Path, scheme: int, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={scheme}", *options,
         page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


def visit(page: Path, folder: Path, scheme: int, width: int, clicks: str = CLICK) -> dict[str, Any]:
    """Open the page with the harness in it, and give what it saw."""
    before, _, after = page.read_text().rpartition("</body>")
    text = f"{before}{clicks}</body>{after}".replace("<head>", f"<head>{WATCH}", 1)
    harness = folder / "harness.html"
    harness.write_text(text)
    done = browse(harness, folder / f"profile-{scheme}-{width}", scheme, f"--window-size={width},900", "--dump-dom")
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    return seen


def test_no_error_all_figures_drawn_and_tables_sort_by_click(page: Path, tmp_path: Path) -> None:
    seen = visit(page, tmp_path, LIGHT, 1200)
    assert seen["errors"] == []
    assert len(seen["figures"]) == len(list((page.parent / "figures").glob("*.svg")))
    for figure in seen["figures"]:
        assert figure["width"] > 500
        assert figure["height"] > 100
        assert figure["shapes"] > 20
    values = [float(key) for key in seen["downKeys"]]
    assert values[:-1] == sorted(values[:-1], reverse=True)
    assert seen["arrow"] == "descending"
    assert [names[-1].endswith("Oracle") for names in (seen["down"], seen["up"], seen["byName"])] == [True] * 3
    assert seen["up"][:-1] == seen["down"][:-1][::-1]
    assert seen["byName"] != seen["up"]
    assert sorted(seen["before"]) == sorted(seen["up"])
    assert seen["overflow"] <= 0


def test_tables_of_differences_fit_a_laptop_and_a_phone(page: Path, tmp_path: Path) -> None:
    assert visit(page, tmp_path, LIGHT, 1280)["cut"] == [0]
    for width in (390, 768):
        seen = visit(in_a_frame(page, tmp_path, width), tmp_path, LIGHT, 1280, clicks=FRAME)
        assert seen == {"width": width, "overflow": 0, "cut": [0], "numbers": [0] * len(seen["numbers"])}
        assert seen["numbers"]


def in_a_frame(page: Path, folder: Path, width: int) -> Path:
    """Write a page that has this one in a frame: Chromium opens no window as narrow as a phone."""
    inside = page.read_text().replace("&", "&amp;").replace('"', "&quot;")
    framed = folder / f"framed-{width}.html"
    framed.write_text(
        f'<head></head><body><iframe srcdoc="{inside}" style="border:0;width:{width}px;height:900px"></iframe></body>'
    )
    return framed


def test_a_phone_scrolls_tables_and_figures_not_the_page(page: Path, tmp_path: Path) -> None:
    seen = visit(page, tmp_path, DARK, 500)  # Chromium opens no window narrower than this
    assert seen["overflow"] <= 0
    assert all(figure["width"] >= 600 for figure in seen["figures"])


@pytest.mark.parametrize(("scheme", "paper_is_light"), [(LIGHT, True), (DARK, False)])
def test_light_and_dark(page: Path, tmp_path: Path, scheme: int, paper_is_light: bool) -> None:
    shot = tmp_path / "shot.png"
    browse(page, tmp_path / "profile", scheme, "--window-size=1200,3200", f"--screenshot={shot}")
    grey = np.asarray(Image.open(shot).convert("L"))
    paper = int(np.median(grey))
    assert (paper > 245) if paper_is_light else (paper < 40)
    ink = np.abs(grey.astype(int) - paper) > 120
    assert 0.005 < ink.mean() < 0.2  # text and figures stand out from the paper, and do not cover it
