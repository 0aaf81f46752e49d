"""The same table as Markdown, HTML, CSV, LaTeX and plain values."""

from __future__ import annotations

import csv
import io
import math
from html import escape as escape_html
from typing import Any

from btfl.report.table import Cell, Table

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "†": r"$\dagger$",
    "λ": r"$\lambda$", "ₛ": r"$_s$",
    "α": r"$\alpha$", "×": r"$\times$", "·": r"$\cdot$", "…": r"\ldots{}", "<": r"$<$", ">": r"$>$",
    "‘": "`", "’": "'", "|": r"$|$", "“": "``", "”": "''",
}  # fmt: skip


def to_markdown(table: Table) -> str:
    """Write Markdown: best in bold, second best in italics."""
    marks = {"best": "**{}**", "second": "*{}*", "": "{}"}
    rule = "---" if table.words else "---:"
    lines = [
        f"### {table.title}",
        "",
        _line([heading.replace("|", "\\|") for heading in table.headings]),
        _line(["---", *[rule] * (len(table.headings) - 1)]),
    ]
    for row in table.rows:
        cells = [marks[cell.mark].format(cell.text.replace("|", "\\|")) for cell in row.cells]
        lines.append(_line([f"*{cells[0]}* (set apart)" if row.apart else cells[0], *cells[1:]]))
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes)]).rstrip() + "\n"


def to_html(table: Table) -> str:
    """Write HTML for a notebook: best in bold, second best underlined, what is set apart in italics."""
    marks = {"best": "<b>{}</b>", "second": "<u>{}</u>", "": "{}"}
    sides = ["left", *["left" if table.words else "right"] * (len(table.headings) - 1)]
    heads = "".join(
        f'<th style="text-align:{side}">{escape_html(heading)}</th>'
        for side, heading in zip(sides, table.headings, strict=True)
    )
    lines = [f"<p><b>{escape_html(table.title)}</b></p>", f"<table><thead><tr>{heads}</tr></thead><tbody>"]
    for row in table.rows:
        label, *cells = [marks[cell.mark].format(escape_html(cell.text)) for cell in row.cells]
        first = f'<th style="text-align:left">{f"<i>{label}</i>" if row.apart else label}</th>'
        rest = "".join(f'<td style="text-align:{sides[-1]};white-space:nowrap">{cell}</td>' for cell in cells)
        lines.append(f"<tr>{first}{rest}</tr>")
    notes = "<br>".join(escape_html(note) for note in table.notes)
    return "\n".join([*lines, "</tbody></table>", f"<p><small>{notes}</small></p>" if notes else ""]).rstrip()


def to_csv(table: Table) -> str:
    """Write CSV: numbers in full, each in its own column."""
    parts = [
        list(dict.fromkeys(part for row in table.rows for part in row.cells[i].parts))
        for i in range(len(table.headings))
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            name
            for i, heading in enumerate(table.headings)
            for name in (f"{heading} {table.value_name if i else ''}".strip(), *(f"{heading} {p}" for p in parts[i]))
        ]
    )
    for row in table.rows:
        values: list[str] = []
        for i, cell in enumerate(row.cells):
            values += [_plain(cell), *(_number(cell.parts.get(part, math.nan)) for part in parts[i])]
        writer.writerow(values)
    return out.getvalue()


def to_plain(table: Table) -> dict[str, Any]:
    """Return a table as plain values, for JSON: its rows by column, with the names and all the digits of its CSV."""
    rows: list[dict[str, Any]] = []
    for row in table.rows:
        values: dict[str, Any] = {"name": row.method} if row.method else {}
        for i, (heading, cell) in enumerate(zip(table.headings, row.cells, strict=True)):
            values[f"{heading} {table.value_name if i else ''}".strip()] = cell.value
            values.update({f"{heading} {part}": value for part, value in cell.parts.items()})
        rows.append({**values, "apart": True} if row.apart else values)
    return {"name": table.name, "title": table.title, "rows": rows, "notes": list(table.notes)}


def to_latex(table: Table) -> str:
    """Write a floating booktabs table: best in bold, second best underlined."""
    marks = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
    align = "l" + ("l" if table.words else "r") * (len(table.headings) - 1)
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{escape(table.title)}. {escape(' '.join(table.notes))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\small\setlength{\tabcolsep}{4pt}",
        # Shrunk only if it is wider than the page.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        " & ".join(escape(heading) for heading in table.headings) + r" \\",
        r"\midrule",
    ]
    was_apart = False
    for row in table.rows:
        if row.apart and not was_apart:
            lines.append(r"\midrule")
        was_apart = row.apart
        lines.append(" & ".join(marks[cell.mark] % escape(cell.text) for cell in row.cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}", ""])


def latex_document(names: list[str]) -> str:
    """Write a document that holds the tables of the given files and compiles as it is."""
    inputs = [rf"\input{{tables/{name}.tex}}" for name in names]
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[margin=2cm]{geometry}",
            r"\usepackage{booktabs,graphicx}",
            r"\begin{document}",
            *(f"{line}\n\\clearpage" for line in inputs),
            r"\end{document}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Write text so that LaTeX prints it; what its fonts lack becomes a question mark."""
    return "".join(_LATEX.get(letter, letter if ord(letter) < 0x180 else "?") for letter in text)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(cell: Cell) -> str:
    return cell.value if isinstance(cell.value, str) else _number(cell.value) or ""


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(round(float(value), 10))
