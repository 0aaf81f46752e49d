"""Progress bars: what is told of a client alone moves none of them."""

from __future__ import annotations

import io

from rich.console import Console

from btfl.cli.progress import Watcher
from btfl.engines import Event


def test_a_warning_about_a_client_moves_no_bar() -> None:
    """It comes with no clients: a client that the screen leaves out of a round once ended a bench here."""
    with Watcher(Console(file=io.StringIO())) as watcher:
        watcher("fedavg", Event("train", 1, 20, 5, 10, {}))
        watcher("fedavg", Event("train", 1, 20, 0, 0, {}, "client 3 is left out: it lies", 3))
        (task,) = watcher._progress.tasks
        assert task.completed == 0.5
