"""Flower's simulation as an engine: virtual clients on Ray, this process as the server."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from btfl.data.federated import FederatedData
from btfl.engines.base import Session
from btfl.engines.faults import FaultSettings
from btfl.errors import BtflError, InputError
from btfl.experiments.experiment import Experiment
from btfl.flower.client_app import make_client_app, run_name
from btfl.flower.session import GridEngine
from btfl.flower.task import FlowerTask
from btfl.recipes.base import Recipe
from btfl.runs.layout import TrainingFiles

_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}


@dataclass(frozen=True)
class FlowerSimulation:
    """Trains the recipes of one experiment in Flower's simulation.

    Each client makes its data itself from the experiment, as a real one would load its own; nothing but messages goes
    to and fro. What the clients keep lies in ``folder/<recipe>/clients``.
    """

    experiment: Experiment
    folder: Path
    workers: int = 1
    """Ray actors, with one core and one torch thread each."""
    faults: FaultSettings = field(default_factory=FaultSettings)

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Start Ray and the virtual clients; stop them at the end, whatever happens."""
        folder = self.folder.absolute() / recipe.name
        task = FlowerTask.of(self.experiment, recipe.name, folder, self.faults)
        if run_name(*task.make()) != run_name(recipe, data):
            raise InputError("the recipe and data to simulate are not those of the simulation's experiment")
        simulation, clients = _Simulation(task, len(data), self.workers), TrainingFiles(folder).clients
        with (
            simulation as grid,
            GridEngine(grid, self.faults, clients, simulation.check).open(recipe, data) as session,
        ):
            yield session


class _Simulation:
    """A simulation in a thread of its own, from which the grid is borrowed."""

    def __init__(self, task: FlowerTask, clients: int, workers: int) -> None:
        self._grids: queue.Queue[Grid] = queue.Queue()
        self._finished = threading.Event()
        self._error: BaseException | None = None
        backend: dict[str, Any] = {
            "init_args": {"num_cpus": workers, "include_dashboard": False, **_QUIET},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        self._thread = threading.Thread(
            target=self._simulate, args=(make_client_app(task), clients, backend), name="flower simulation"
        )
        self._logger = logging.getLogger("flwr")
        self._level = self._logger.level

    def __enter__(self) -> Grid:
        self._logger.setLevel(logging.ERROR)  # its progress would be printed over ours
        self._thread.start()
        while True:
            try:
                return self._grids.get(timeout=0.5)
            except queue.Empty:
                self.check()

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        self._thread.join()
        self._logger.setLevel(self._level)

    def check(self) -> None:
        """Raise an error if the simulation has ended before its time."""
        if not self._thread.is_alive():
            raise BtflError(f"Flower's simulation has stopped: {self._error or 'it gives no reason'}")

    def _simulate(self, client_app: Any, clients: int, backend: Any) -> None:
        server = ServerApp()

        def main(grid: Grid, context: Context) -> None:
            self._grids.put(grid)
            self._finished.wait()

        server.main()(main)
        try:
            run_simulation(server, client_app, clients, backend_config=backend)
        except BaseException as error:  # flwr may also call exit
            self._error = error
