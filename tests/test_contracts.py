"""The line is guarded: an import that goes against it breaks a contract (``lint-imports``, part of ``make lint``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

AGAINST_THE_LINE = {
    "a report imports torch": ("report/build.py", "import torch", "btfl.report.build -> torch"),
    "a report reaches torch through a run": ("runs/saved.py", "import torch", "btfl.runs.saved -> torch"),
    "a method imports a recipe": (
        "methods/lame.py",
        "from btfl.recipes.base import Recipe",
        "btfl.methods.lame -> btfl.recipes.base",
    ),
    "the core imports another library": ("core/heads.py", "import yaml", "btfl.core.heads imports yaml"),
    "the core imports pandas inside a function": (
        "methods/btfl/memory.py",
        "def load():\n    import pandas",
        "btfl.methods.btfl.memory imports pandas",
    ),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src" / "btfl", folder / "src" / "btfl", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "contracts.py", folder / "tests")
    shutil.copy(ROOT / ".importlinter", folder)
    return folder


def test_every_contract_is_kept(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("case", AGAINST_THE_LINE)
def test_what_goes_against_the_line_is_found(copy: Path, case: str) -> None:
    place, line, said = AGAINST_THE_LINE[case]
    path = copy / "src" / "btfl" / place
    before = path.read_text()
    path.write_text(f"{before}\n{line}\n")
    try:
        done = lint(copy)
    finally:
        path.write_text(before)
    assert done.returncode != 0
    assert said in done.stdout
