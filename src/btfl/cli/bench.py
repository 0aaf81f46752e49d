"""``btfl bench``: train what the methods need, and compare them."""

from __future__ import annotations

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
    mlflow: options.Mlflow = None,
    overwrite: options.Overwrite = False,
    reference: options.Reference = None,
    columns: options.Columns = None,
) -> None:
    """Compare methods on the five streams of every client; train what they need.

    An experiment comes with btfl or is read from a TOML file; options change single settings of it. A run that was
    interrupted continues where it stopped; other methods of the same experiment are added to its results. With `--from`
    nothing is trained: the experiment and the weights are those of an entry of the zoo (`btfl zoo list`) or of another
    run, and a file or options choose methods and streams. What takes long then is kept for the next time
    (`btfl data clean`).

    A number may be several, with commas between them: each combination is a run in a folder of its own, seeds are
    averaged, and all are on one page. `--method all` is every method without gradient steps at test time, which are
    slow: add those by name (`btfl methods`).

    Examples:

    `btfl bench quick`

    `btfl bench demo --seed 0,1,2 --alpha 0.1,0.5,1.0 --method all --columns fairness`

    `btfl bench demo --method all --method my_module:MyMethod --reference my_module:MyMethod`

    `btfl bench --from runs/quick --method btfl --method "btfl[prune_above=5]" --out runs/lambda`

    `btfl bench --from runs/quick --privacy summary --privacy-unit record --epsilon 2 --out runs/private`

    `btfl bench demo --method btfl --privacy full --privacy-unit record --privacy-mechanism dp-sgd --client-samples 100`

    `btfl bench --dataset arrays --root mine.npz --model cnn --clients 10 --rounds 20`

    `btfl bench --dataset arrays --root phones.npz --partition natural --split ordered --model cnn1d`

    `btfl bench demo --method btfl --method "btfl[count=after]" --method my_module:MyMethod`
    """
    from btfl.cli.collect import collect_faults, collect_sweep
    from btfl.cli.running import run_and_show
    from btfl.engines import LocalEngine

    run_and_show(
        collect_sweep(context.obj),
        out,
        workers,
        LocalEngine(workers, device),
        collect_faults(context.obj),
        tensorboard=tensorboard,
        mlflow=mlflow,
        start=start,
        overwrite=overwrite,
        reference=reference,
        columns=options.named_columns(columns),
    )
