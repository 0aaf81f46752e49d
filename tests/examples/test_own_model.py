"""The page and the notebook for a model of one's own: they run with torch and the core alone, and use public names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "own_model.ipynb"
PAGE = Path(__file__).parents[2] / "examples" / "own_model.py"
ABSENT = "sklearn pandas pyarrow matplotlib pydantic typer click rich PIL flwr platformdirs pooch jinja2 filelock onnx"

HIDE = f"import sys; sys.modules.update(dict.fromkeys('{ABSENT}'.split()))"  # None there: an import fails
ALONE = f"""
import runpy
{HIDE}
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


@pytest.mark.slow
def test_the_notebook_runs_with_torch_and_the_core_alone_and_shows_e_along_the_stream(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(HIDE))  # type: ignore[no-untyped-call]
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert {output.output_type for output in outputs} == {"execute_result"}  # nothing on stderr
    shown = [output.data for output in outputs]
    everyone, bundle, stream, right, state = [data["text/plain"] for data in shown]
    assert everyone.startswith("Summary(3 clients, 600 samples")
    assert bundle.startswith("ClientBundle(6 classes")
    assert stream.startswith("Recording(200 samples")
    assert shown[2]["text/html"].count("<circle") == 200
    found = {name: float(share) for name, share in re.findall(r"'([^']+)': ([\d.]+)", right)}
    assert found["Coherent"] > max(found["global head"], found["personal head"])
    assert '"seen": 200' in state
    assert not list(tmp_path.iterdir())
