"""``btfl bench``: train what the methods need, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import completion, options

Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="START",
        help="Train nothing: start from `zoo:NAME` or the folder of a finished run.",
        autocompletion=completion.zoo_entries,
    ),
]


def bench(
    context: typer.Context,
    out: options.Out = None,
    workers: options.Workers = options.DEFAULT_WORKERS,
    device: options.Device = "cpu",
    start: Start = None,
    tensorboard: options.TensorBoard = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Compare methods on the five streams of every client; train what they need.

    An experiment comes with btfl or is read from a TOML file; options change single settings of it. A run that was
    interrupted continues where it stopped; other methods of the same experiment are added to its results. With `--from`
    nothing is trained: the experiment and the weights are those of an entry of the zoo (`btfl zoo list`) or of another
    run, and a file or options choose methods and streams.

    Examples:

    `btfl bench quick`

    `btfl bench --from runs/quick --method btfl --method "btfl[prune_above=5]" --out runs/lambda`

    `btfl bench --dataset arrays --root mine.npz --model cnn --clients 10 --rounds 20`

    `btfl bench --dataset arrays --root phones.npz --partition natural --split ordered --model cnn1d`

    `btfl bench demo --method btfl --method "btfl[count=after]" --method my_module:MyMethod`
    """
    from btfl.cli.collect import collect, collect_faults
    from btfl.cli.running import run_and_show
    from btfl.engines import LocalEngine

    chosen, faults = collect(context.obj), collect_faults(context.obj)
    name = chosen.name if start is None else f"{chosen.name}-from-{Path(start.partition(':')[2] or start).name}"
    folder, engine = out or Path("runs") / name, LocalEngine(workers, device)
    run_and_show(chosen, folder, workers, engine, faults, tensorboard=tensorboard, start=start, overwrite=overwrite)
