"""How a client's own samples look, for a bundle to take along: from the data of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.load import load_data
from btfl.monitor import Looks
from btfl.runs.client import DeployedClient
from btfl.runs.layout import RunFiles
from btfl.runs.saved import load_run


def looks_of_run(run: str | Path, root: Path | None = None) -> Callable[[int], Looks]:
    """Return what says how the samples of each client of a run look, by its number.

    Parameters
    ----------
    run : the folder of ``btfl bench``; its data are read again
    root : where the data are, if not where the run found them
    """
    folder = Path(run)
    if not RunFiles(folder).record.is_file():
        raise InputError(
            f"how samples look is read off a client's own samples, and {run} does not say where they are: give the "
            "folder of a finished run of `btfl bench`, or make it where the samples are, Looks.of(samples)"
        )
    data = load_data(make_experiment(dict(load_run(folder).experiment)), root)

    def of(number: int) -> Looks:
        part, pool = data.partition.parts[number], data.source.pool
        return Looks.of(pool.take(part.train).values, pool.take(part.validation).values)

    return of


def with_looks(client: DeployedClient | ClientBundle, looks: Looks) -> DeployedClient | ClientBundle:
    """Return a client whose bundle takes along how its samples look."""
    if isinstance(client, ClientBundle):
        return looks.carried_by(client)
    return replace(client, bundle=looks.carried_by(client.bundle))


def fleet_with_looks(
    bundles: Mapping[int, Callable[[], ClientBundle]], looks: Callable[[int], Looks]
) -> dict[int, Callable[[], ClientBundle]]:
    """Return the same for the clients of a fleet, each still made when its turn comes."""
    return {number: partial(_made, make, looks, number) for number, make in bundles.items()}


def _made(make: Callable[[], ClientBundle], looks: Callable[[int], Looks], number: int) -> ClientBundle:
    return looks(number).carried_by(make())
