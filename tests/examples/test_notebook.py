"""The notebook runs as it is, from the first cell to the last, and shows what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return its cells of code, executed in an empty folder."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    assert (folder / "runs" / "demo-sweep" / "report.html").exists()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> dict[str, Any]:
    """Return what a cell shows, by kind."""
    (output,) = [each for each in cell.outputs if each.output_type == "execute_result"]
    return dict(output.data)


def test_every_cell_shows_what_it_is_about(cells: list[Any]) -> None:
    verdict = r"<b>\S.* has the highest average, [\d.]+ %, (not )?clearly above .* interval .* over clients and seeds\)"
    assert re.search(verdict, shown(cells[0])["text/html"])
    assert "worst decile" in shown(cells[1])["text/html"]
    assert "log loss" in shown(cells[1])["text/html"]
    assert "Coherent" in shown(cells[3])["text/html"]
    assert "Halfway minus each method" in shown(cells[4])["text/html"]
    for figure in (cells[2], cells[5]):
        assert shown(figure)["image/png"].startswith("iVBOR")
    assert "all_external" in shown(cells[6])["text/html"]
    assert "report.html" in shown(cells[7])["text/plain"]


def test_nothing_is_printed_to_stderr_and_no_output_is_stored(cells: list[Any]) -> None:
    said = [output for cell in cells for output in cell.outputs if output.output_type == "stream"]
    assert [output.text for output in said] == []
    kept = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in kept.cells)
    assert NOTEBOOK.stat().st_size < 20_000
