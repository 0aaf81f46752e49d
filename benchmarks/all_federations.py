"""Coherent minus every other method on every federation of ``results/``: a figure, the tables, and every number.

Run as ``python benchmarks/all_federations.py`` after a folder of ``results/`` has changed; it takes every folder there.
It writes ``all-federations.png``, ``.md`` and ``.csv`` into ``results/``, puts the short table into the page there, and
prints it. ``--print-all`` prints the long tables too. ``tests/report/test_federations.py`` makes them again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from keep_results import keep_figure

from btfl.report.drawing import Drawing
from btfl.report.federations import NAME, Federation, as_csv, full_tables, in_words, read_federations, short_table
from btfl.report.figures.federations import of_all_federations
from btfl.storage import write_atomically

RESULTS = Path(__file__).parents[1] / "results"
BEGIN, END = "<!-- made by benchmarks/all_federations.py -->", "<!-- end of what it makes -->"


def full_page(federations: Sequence[Federation]) -> str:
    """Return the page with a table for each federation."""
    lines = [
        "# Coherent minus every other method, on every federation",
        "",
        f"Made by `python benchmarks/all_federations.py` from the rows in these folders; [{NAME}.csv]({NAME}.csv)",
        "has the intervals of every stream. In points; in brackets the 95 % bootstrap interval over clients and,",
        "if there are several, seeds. *Coherent is* judges the average by its interval; *worse on* names the streams",
        "whose interval lies below zero. Clients that took no part in training are in the pages of the folders.",
        "",
        f"![Coherent minus each method on every federation, where it loses included]({NAME}.png)",
        "",
    ]
    return "\n".join([*lines, *(table.markdown() for table in full_tables(federations))]).rstrip() + "\n"


def with_short_table(page: str, federations: Sequence[Federation]) -> str:
    """Return a page with what is between the two marks replaced by what there is to say, and the short table."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    made = f"{in_words(federations)}\n\n{short_table(federations).markdown()}"
    return f"{before}{BEGIN}\n{made}{END}{after}"


def main() -> None:
    """Write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder with the results")
    parser.add_argument("--print-all", action="store_true", help="print the tables of all federations")
    typed = parser.parse_args()
    federations = read_federations(typed.results)
    write_atomically(typed.results / f"{NAME}.md", full_page(federations).encode())
    write_atomically(typed.results / f"{NAME}.csv", as_csv(federations).encode())
    drawing = Drawing(NAME, "Coherent minus each method", "", lambda: of_all_federations(federations))
    drawing.save(typed.results / f"{NAME}.png")
    keep_figure(typed.results / f"{NAME}.png", typed.results / f"{NAME}.png")
    page = typed.results / "README.md"
    if page.exists() and BEGIN in page.read_text():
        write_atomically(page, with_short_table(page.read_text(), federations).encode())
    print(in_words(federations), end="\n\n")
    for table in [short_table(federations), *(full_tables(federations) if typed.print_all else [])]:
        print(table.text(80))


if __name__ == "__main__":
    main()
