"""The page for a model of one's own: it runs with torch and the core alone, is short, and uses public names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "examples" / "own_model.py"
ABSENT = "sklearn pandas pyarrow matplotlib pydantic typer click rich PIL flwr platformdirs pooch jinja2 filelock onnx"

ALONE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys("{ABSENT}".split()))  # None there: an import fails as if nothing were installed
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_it_runs_with_torch_and_the_core_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", ALONE, str(PAGE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    right = {name: float(share) for name, share in re.findall(r"^(.+): ([\d.]+)% right", done.stdout, re.M)}
    assert set(right) == {"Global head", "Personal head", "Btfl", "Coherent"}
    assert min(right["Btfl"], right["Coherent"]) > right["Personal head"]
    assert '"seen": 200' in done.stdout
    assert not list(tmp_path.iterdir())


def test_it_is_short_and_uses_public_names_only() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) < 60
    assert not re.findall(r"(?:\.|import )_\w+", text)
