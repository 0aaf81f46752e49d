"""Put what a finished run found into ``results/``: small files only, each number with its source beside it.

``python benchmarks/keep_results.py runs/paper results/cifar10-cnn-dir0.1 --command "btfl bench --from ..."``

Several runs that a report would show as one, seeds, draws of the streams or methods run apart, go into folders 1, 2,
... of one. What is kept already can be among them, also what the folder itself holds: seeds can be added to it.

``python benchmarks/keep_results.py --again results/*/`` draws what is kept there again from the rows, after tables or
figures have changed, and writes the streams in today's format; what the pages say of the runs stays as it is.

A folder there holds ``run.json`` (every setting, seed, fingerprints, hash of the streams), ``results.parquet`` (a row
for each method, client and stream, from which the tables are made), the streams themselves as indices, the tables,
some figures, and a page that says how to make it all again. ``tests/report/test_committed_results.py`` makes the
tables again.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from btfl.data.manifest import Manifest
from btfl.report.build import write_report
from btfl.runs.layout import RunFiles
from btfl.runs.saved import SavedRun, load_run
from btfl.runs.trained import TrainedFederation

FIGURES = ("accuracy", "clients")
SHOWN = (
    "accuracy", "unseen", "difference", "difference-coherent", "difference-coherent-1", "paper", "detection",
    "calibration",
)  # fmt: skip
LARGEST = 3_000_000  # bytes a folder may have
_TRAINED = re.compile(r"^- trained federations \(.*?\): (.*)$", flags=re.MULTILINE)


def keep(runs: Sequence[Path], into: Path, command: str, note: str, figures: Sequence[str]) -> None:
    """Copy what is small, draw the report, and write the page."""
    for record in (RunFiles(run).record for run in runs):
        if private := re.findall(r'"(/[\w./-]+)"', record.read_text()):
            raise SystemExit(f"{record} names places on this machine, which do not belong here: {private}")
    if into.exists() and not any(RunFiles(place).record.exists() for place in (into, into / "1")):
        raise SystemExit(f"{into} is there and holds no kept run: name another folder")
    with tempfile.TemporaryDirectory() as scratch:
        new = Path(scratch) / into.name
        for number, run in enumerate(runs, start=1):
            place = new if len(runs) == 1 else new / str(number)
            place.mkdir(parents=True)
            files = RunFiles(run)
            for path in (files.record, files.results, *run.glob("streams*")):
                shutil.copy(path, place)
            write_streams_again(place)
            if files.unseen.exists():
                shutil.copy(files.unseen, place)
        draw(runs, new, figures)
        (new / "README.md").write_text(page([load_run(run) for run in runs], new, command, note))
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(new, into)
    size = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
    print(f"{into}: {size / 1e6:.2f} MB")
    if size > LARGEST:
        raise SystemExit(f"{into} is larger than {LARGEST / 1e6:.0f} MB: keep less")


def draw(runs: Sequence[Path], into: Path, figures: Sequence[str]) -> None:
    """Write the tables and some figures of the runs' report into a folder.

    What is kept already has no single samples: tables of these are of the other runs, which a note must say.
    """
    with_samples = [run for run in runs if RunFiles(run).samples.exists()]
    with tempfile.TemporaryDirectory() as scratch:
        report, of_samples = Path(scratch) / "all", Path(scratch) / "samples"
        write_report(runs, report)
        (into / "tables").mkdir(exist_ok=True)
        if 0 < len(with_samples) < len(runs):
            write_report(with_samples, of_samples)
            print(f"tables of single samples are of {', '.join(map(str, with_samples))}: say so in the --note")
        for folder in (of_samples, report):
            for path in sorted((folder / "tables").glob("*.md")) + sorted((folder / "tables").glob("*.csv")):
                shutil.copy(path, into / "tables")
        for name in figures:
            if (path := report / "figures" / f"{name}.png").exists():
                (into / "figures").mkdir(exist_ok=True)
                keep_figure(path, into / "figures" / path.name)


def keep_figure(drawn: Path, into: Path) -> None:
    """Copy a figure with 256 colours, which is a third of the bytes and cannot be told apart by eye."""
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(into, optimize=True)


def draw_again(folder: Path) -> None:
    """Draw what is kept in a folder again from its rows; the head of its page stays, and tables of single samples."""
    runs = [folder] if RunFiles(folder).record.exists() else sorted(path.parent for path in folder.glob("*/run.json"))
    if not runs:
        raise SystemExit(f"{folder} holds no kept run")
    head = (folder / "README.md").read_text().partition("\n## ")[0].rstrip()
    figures = [path.stem for path in (folder / "figures").glob("*.png")]
    for path in (folder / "tables").glob("difference*"):  # named after methods, which may have other names now
        path.unlink()
    for run in runs:
        write_streams_again(run)
    draw(runs, folder, figures)
    (folder / "README.md").write_text("\n".join([head, "", *drawn(folder)]).rstrip() + "\n")


def write_streams_again(run: Path) -> None:
    """Write the streams of a kept run as this btfl does: older ones took four times the room; their hash stays."""
    Manifest.load(run).save(run)


def page(runs: Sequence[SavedRun], into: Path, command: str, note: str) -> str:
    """Write the page of what is kept; several runs differ in their seeds, streams or methods alone."""
    saved = runs[0]
    experiment, training, data = saved.experiment, saved.record["training"], saved.record["data"]
    found = {(run.seed, recipe): digest for run in runs for recipe, digest in digests_of(run).items()}
    several = len({run.seed for run in runs}) > 1
    digests = [
        f"{f'seed {seed} ' if several else ''}{recipe} {digest}" for (seed, recipe), digest in sorted(found.items())
    ]
    lines = [
        f"# {into.name}",
        "",
        *([note, ""] if note else []),
        f"    {command}",
        "",
        f"- {data['source']}, {experiment['model']}, {saved.rows['client'].nunique()} clients, "
        f"{experiment['partition']}{_alpha(experiment)}, {experiment['split']} split, {_seeds(runs)}",
        f"- {training['rounds']} rounds of {training['local_epochs']} epochs, batch {training['batch']}, "
        f"{training['optimiser']} {training['learning_rate']:g}",
        f"- B and D: {_shifts(saved)}",
        *(f"- streams: {manifest}" for manifest in dict.fromkeys(run.manifest_hash for run in runs)),
        f"- trained federations (first 16 digits of their sha256): {', '.join(digests)}",
        f"- {platform.machine()}, {os.cpu_count()} cores, on the CPU; {datetime.date.today().isoformat()}",
        *(f"- {said}" for said in dict.fromkeys(note for run in runs for note in run.notes)),
        "",
    ]
    return "\n".join([*lines, *drawn(into)]).rstrip() + "\n"


def digests_of(run: SavedRun) -> dict[str, str]:
    """Return what a run's federations were trained to, by recipe; of a kept run, as its page says."""
    if trained := RunFiles(run.folder).trained():
        return {name: TrainedFederation.load(final.folder).digest()[:16] for name, final in trained.items()}
    pages = [folder / "README.md" for folder in (run.folder, run.folder.parent)]
    line = next((_TRAINED.search(path.read_text()) for path in pages if path.exists()), None)
    if line is None:
        raise SystemExit(f"{run.folder} has no trained federation, nor a page that tells its sha256")
    told = re.findall(r"(?:seed (\d+) )?([a-z-]+) ([0-9a-f]{16})", line[1])
    return {recipe: digest for seed, recipe, digest in told if not seed or int(seed) == run.seed}


def drawn(into: Path) -> list[str]:
    """Return the tables and figures of a page."""
    tables = [into / "tables" / f"{name}.md" for name in SHOWN]
    shown = [path.read_text().replace("### ", "## ") for path in tables if path.exists()]
    return shown + [f"![{path.stem}](figures/{path.name})\n" for path in sorted((into / "figures").glob("*.png"))]


def _alpha(experiment: Mapping[str, Any]) -> str:
    return f" {experiment['alpha']:g}" if experiment["partition"] == "dirichlet" else ""


def _seeds(runs: Sequence[SavedRun]) -> str:
    seeds = sorted({run.seed for run in runs})
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _shifts(run: SavedRun) -> str:
    if "shifted_ind" not in set(run.rows["stream"]):
        return "left out: neither another domain nor corruptions"
    shift = run.record["data"]["shift"]
    return f"half from {shift}, half corrupted" if shift else "corrupted throughout"


def main() -> None:
    """Keep one run, or several as one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="and last where to keep them")
    parser.add_argument("--again", action="store_true", help="draw what is kept in these folders again")
    parser.add_argument("--command", default="", help="what makes this run from nothing, or from the zoo")
    parser.add_argument("--note", default="", help="what a reader must know first")
    parser.add_argument("--figures", nargs="*", default=FIGURES)
    arguments = parser.parse_args()
    if arguments.again:
        for folder in arguments.runs:
            draw_again(folder)
        return
    *runs, into = arguments.runs
    if not runs or not arguments.command:
        parser.error("name a run, where to keep it, and the --command that makes it")
    keep(runs, into, arguments.command, arguments.note, arguments.figures)


if __name__ == "__main__":
    main()
