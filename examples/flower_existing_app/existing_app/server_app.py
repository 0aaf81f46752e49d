"""The server."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from btfl.flower.exchange import WithBtfl  # BTFL
from existing_app.task import CLASSES, WIDTH, Net

app = ServerApp()


class Strategy(WithBtfl, FedAvg):  # BTFL: this class; it was FedAvg itself before
    """FedAvg that ends with the exchange of likelihoods."""

    classes, dimensions = CLASSES, WIDTH


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and leave every client with its bundle."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        initial = ArrayRecord(Net().state_dict())
    strategy = Strategy(fraction_evaluate=0.0)
    strategy.start(grid, initial, num_rounds=int(context.run_config["rounds"]))
    print(f"{len(strategy.exchanged.kept)} clients have their bundle")
