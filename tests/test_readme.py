"""The README's example runs as printed, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_as_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) == 6
    check = "\nassert probabilities.shape == (5, 10) and abs(probabilities.sum(1) - 1).max() < 1e-12"
    subprocess.run([sys.executable, "-W", "error", "-c", code + check], check=True, cwd=tmp_path)


def test_every_link_leads_somewhere() -> None:
    root = README.parent
    for page in (README, root / "CONTRIBUTING.md", *root.glob("docs/*.md"), *root.glob("examples/*/*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_page_links_to_the_glossary() -> None:
    for page in (README, *README.parent.glob("docs/*.md")):
        assert page.name == "glossary.md" or "glossary.md" in page.read_text(), f"{page.name} has no link to it"
