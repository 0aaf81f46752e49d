"""The report of a run: one HTML page that opens from disk, and the same table as Markdown and CSV."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from btfl.bench.results import summary
from btfl.bench.run import BenchRun
from btfl.report.tables import HEADINGS, cell, markdown_table, notes
from btfl.storage import write_atomically


def write_report(run: BenchRun) -> Path:
    """Write ``report.html``, ``table.md`` and ``table.csv`` into the run's folder; give the page's path."""
    table = summary(run.rows)
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        (resources.files("btfl.report") / "page.html").read_text()
    )
    page = template.render(
        name=run.experiment.name,
        notes=notes(run.manifest),
        headings=[HEADINGS[column] for column in table.columns],
        rows=[(name, [cell(str(c), v) for c, v in row.items()]) for name, row in table.iterrows()],
        settings=[(key, value) for key, value in run.experiment.model_dump().items() if value not in (None, {})],
        manifest_hash=run.manifest.hash,
        source_notes=run.source.notes,
    )
    path = run.folder / "report.html"
    write_atomically(path, page.encode())
    write_atomically(run.folder / "table.md", markdown_table(table).encode())
    write_atomically(run.folder / "table.csv", table.to_csv(float_format="%.4f").encode())
    return path
