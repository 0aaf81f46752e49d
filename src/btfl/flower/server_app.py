"""The server's side on Flower: the one loop of all engines, over the grid."""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from btfl.engines.federation import Event, is_finished, train_federation
from btfl.flower.session import GridEngine
from btfl.flower.task import FlowerTask, TaskReader
from btfl.runs.layout import TrainingFiles
from btfl.runs.trained import TrainedFederation

log = logging.getLogger("flwr")  # whose lines `flwr run --stream` shows


def make_server_app(read_task: TaskReader = FlowerTask.from_run_config) -> ServerApp:
    """Make the ServerApp for what is read from the run config."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        serve(grid, read_task(context.run_config))

    app.main()(main)
    return app


def serve(grid: Grid, task: FlowerTask) -> TrainedFederation:
    """Train; the shared model and the checkpoints stay in the task's folder, the bundles with the clients."""
    recipe, data = task.make()
    engine = GridEngine(grid, task.faults, bindings=TrainingFiles(Path(task.folder)).nodes)
    log.info("btfl: %s on %s, %d clients, run folder %s", recipe.name, data.source.name, len(data), task.folder)
    federation = train_federation(
        recipe, data, engine, folder=task.folder, report=_tell, faults=task.faults, longer=True
    )
    if is_finished(task.folder, recipe.settings.rounds):
        log.info("btfl: done; the shared model is in %s, every client has its bundle", task.folder)
    else:
        log.warning("btfl: some clients have no bundle, see above; start the run again to give them another chance")
    return federation


def _tell(event: Event) -> None:
    if event.metrics:
        told = "  ".join(f"{name} {value:.4g}" for name, value in event.metrics.items())
        log.info("btfl: round %d of %d: %s", event.round, event.rounds, told)
    elif event.clients_done == event.clients and event.stage != "train":
        log.info("btfl: %s: %d of %d clients", event.stage, event.clients_done, event.clients)
