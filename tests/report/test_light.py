"""Reports, results and exports need no torch: nothing of them imports it, or what trains and evaluates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from drawn_runs import make_run

LIGHT = (
    "btfl.report.build", "btfl.runs.saved", "btfl.runs.results", "btfl.runs.trained", "btfl.runs.checkpoint",
    "btfl.runs.start", "btfl.export", "btfl.export.clients", "btfl.zoo.start",
)  # fmt: skip
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "flwr"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_reports_results_and_exports_load_without_torch() -> None:
    assert run(f"import sys, {', '.join(LIGHT)}; print({{'torch', 'flwr'}} & set(sys.modules))") == "set()"


def test_a_report_imports_nothing_that_trains_or_evaluates() -> None:
    packages = "{name.split('.')[1] for name in sys.modules if name.startswith('btfl.')}"
    code = f"import sys, btfl.report.build, btfl.report.terminal; print(*{packages})"
    above = {"benchmark", "engines", "experiments", "export", "flower", "models", "recipes", "studies", "zoo", "cli"}
    assert not above & set(run(code).split())


def test_the_command_reports_where_there_is_no_torch(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", length=8, methods=("fedavg",))
    code = f"{BLOCKED}\nimport sys\nsys.argv = ['btfl', 'report', {str(folder)!r}]\nfrom btfl.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 or str(tmp_path) in done.stdout
    assert (folder / "report.html").exists()
