"""What open projects have: files that parse, that agree with the code, and that name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from btfl import __version__
from btfl.experiments.experiment import Experiment
from btfl.methods.registry import METHODS
from btfl.recipes.settings import TrainingSettings
from btfl.serve.settings import ServeSettings
from btfl.zoo.start import zoo_entries
from docs.blocks import ROOT

PARSED = (".pre-commit-config.yaml", ".github/workflows/ci.yml", ".github/ISSUE_TEMPLATE/bug.yml", "CITATION.cff")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("name", PARSED)
def test_files_for_other_programs_parse(name: str) -> None:
    assert isinstance(read(name), dict)


def test_the_citation_is_of_this_version_and_has_the_paper() -> None:
    cited = read("CITATION.cff")
    assert cited["version"] == __version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert "Bayesian-based Test-Time Generalization" in cited["references"][0]["title"]
    assert re.search(rf"^\| {re.escape(__version__[:3])}\b", (ROOT / "SECURITY.md").read_text(), re.M)


def test_the_workflow_runs_the_gate_and_builds_the_image() -> None:
    steps = [step.get("run", "") for job in read(".github/workflows/ci.yml")["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps
    assert any("deploy/Dockerfile" in step for step in steps)
    gate = (ROOT / ".ci" / "run").read_text()
    targets = re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"^make (\w+)$", gate, re.M)) == {"test", "lint", "site", "dist"} <= set(targets)


def test_every_entry_of_the_zoo_has_a_card_for_people() -> None:
    page = (ROOT / "docs" / "model-cards.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    facts = {row[0].strip("`"): row[1:] for row in rows if len(row) == 5}
    assert list(facts) == [entry.card["name"] for entry in zoo_entries()]
    for entry in zoo_entries():
        clients, training, recipes, megabytes = facts[entry.card["name"]]
        assert clients == str(entry.clients)
        (rounds,) = {told["rounds"] for told in entry.card["recipes"].values()}
        assert training.startswith(f"{rounds}×")
        assert recipes.split(", ") == sorted(entry.recipes)
        size = sum(path.stat().st_size for path in entry.folder.iterdir()) / 1e6
        assert float(megabytes) == pytest.approx(size, abs=0.051)
        assert f"**`{entry.card['name']}`**" in page  # what it is, below


def test_reference_pages_have_every_key_every_setting_and_every_command() -> None:
    pytest.importorskip("mkdocs", reason="the site's tools are not installed: pip install 'btfl[docs]'")
    import reference

    pages = reference.pages()
    settings = pages["reference/settings.md"]
    for knob in (*Experiment.knobs(), *TrainingSettings.knobs(), *ServeSettings.knobs()):
        assert f"| `{knob.name}` |" in settings, knob.name
    for name, variant in METHODS.items():
        part = pages["reference/methods.md"].partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        assert variant.title in part
        assert variant.settings or all(f"| `{knob.name}` |" in part for knob in variant.method.knobs()), name
    for command in ("bench", "data get", "serve", "serve-token new", "flower simulate", "zoo list"):
        assert f"## `btfl {command}`" in pages["reference/commands.md"]
    for place in re.findall(r"\((btfl[\w.]+\.md)\)", pages["reference/python.md"]):
        assert f"reference/{place}" in pages


def test_every_page_is_in_the_navigation_or_taken_in_by_it() -> None:
    hooks = (ROOT / "website" / "hooks.py").read_text()
    assert "How-to" in hooks
    named = re.findall(r"([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = {path.stem for path in Path(ROOT / "docs").glob("*.md")}
    generated = {"changelog", "contributing", "security-policy", "conduct", "commands", "settings", "methods", "python"}
    assert set(named) - generated - {"index"} <= there
