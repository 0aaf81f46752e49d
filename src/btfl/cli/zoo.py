"""``btfl zoo``: trained federations that come with btfl."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from btfl.cli import completion, options, output
from btfl.cli.command import Commands

if TYPE_CHECKING:
    from btfl.zoo.start import ZooEntry

app = Commands(help="Trained federations to start from: `btfl bench --from zoo:NAME` needs no training.")


@app.command("list")
def list_() -> None:
    """Show every entry: what was trained, when, on what machine.

    Example: `btfl zoo list`
    """
    from btfl.zoo.start import zoo_entries

    entries = zoo_entries()

    def show(console: Any) -> None:
        for entry in entries:
            _show(console, entry)
        if not entries:
            console.print("The zoo is empty.")

    output.emit({"entries": [dict(entry.card) for entry in entries]}, show, highlight=False)


@app.command()
def pack(
    run: options.Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, for example cifar10-cnn-dir0.1.")],
    into: Annotated[Path, typer.Option(help="The zoo to add it to.")] = Path("src/btfl/zoo"),
    commit: Annotated[str, typer.Option(help="The commit of btfl it was trained with.")] = "",
    note: Annotated[str, typer.Option(help="What a user of it should know.")] = "",
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="A recipe to pack; repeat it for several. All that were trained, if none is named. Methods that need "
            "another one are not in the entry.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    serving: Annotated[
        bool,
        typer.Option(
            "--serving/--no-serving",
            help="Whether to pack what `btfl serve` needs, too. It grows with the square of the features: 178 MB for "
            "1,280 features and 10 clients.",
        ),
    ] = True,
) -> None:
    """Make an entry from a finished run: weights and private states, from which the rest follows.

    Of a run with FedAvg's training it also packs what `btfl serve` needs: bundles without features, and the extractor.
    `--recipe` and `--no-serving` leave out what is large.

    Example: `btfl zoo pack runs/paper cifar10-cnn-dir0.1 --commit abc1234`

    Example: `btfl zoo pack runs/office officehome --recipe fedavg --recipe fedrep --no-serving`
    """
    from btfl import __version__
    from btfl.zoo import start

    told = {
        "btfl": __version__,
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "note": note,
    }
    entry = start.pack(run, name, into, told, recipe or None)
    if serving and "fedavg" in entry.recipes:
        from btfl.export import need_onnx

        need_onnx()
        from btfl.export.serving import pack_serving

        pack_serving(run, entry.folder)
    size = sum(path.stat().st_size for path in entry.folder.iterdir())

    def show(console: Any) -> None:
        _show(console, entry)
        console.print(f"{entry.folder}: {size / 1e6:.2f} MB")

    output.emit({"folder": entry.folder, "bytes": size, "card": dict(entry.card)}, show, highlight=False)


@app.command()
def serving(
    run: options.Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry that the run started from.")],
    into: Annotated[Path, typer.Option(help="The zoo it is in.")] = Path("src/btfl/zoo"),
) -> None:
    """Add what `btfl serve` needs to an entry that lacks it: bundles without features, and the extractor as ONNX.

    The entry's own files stay as they are. The run must have started from it, so that its weights are the same.

    Example: `btfl zoo serving runs/quick cifar10-cnn-dir0.1-quick`
    """
    from btfl.export import need_onnx

    need_onnx()
    from btfl.export.serving import RECIPE, pack_serving
    from btfl.zoo.start import ZooEntry

    entry = ZooEntry.read(into / name)
    _, state = entry.end_of_training(RECIPE)
    packed = pack_serving(run, entry.folder, state.shared)
    result = {"folder": entry.folder, "clients": len(packed.bundles)}
    output.emit_lines(result, f"{entry.folder}: {len(packed.bundles)} clients for btfl serve")


def _show(console: Any, entry: ZooEntry) -> None:
    card, experiment = entry.card, entry.experiment
    recipes = ", ".join(f"{recipe} ({told['rounds']} rounds)" for recipe, told in card["recipes"].items())
    console.print(f"[bold]{card['name']}[/bold]  {experiment['dataset']}, {experiment['model']}, {recipes}")
    # alpha is the Dirichlet's alone
    partition = (
        f"dirichlet {experiment['alpha']:g}" if experiment["partition"] == "dirichlet" else experiment["partition"]
    )
    console.print(
        f"    {entry.clients} clients, {partition}, {experiment['split']} split, seed {experiment['seed']}; "
        f"trained {card['date']} on {card['machine']}{', commit ' + card['commit'] if card['commit'] else ''}",
        markup=False,
    )
    if card["note"]:
        console.print(f"    {card['note']}", markup=False)
