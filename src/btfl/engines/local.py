"""Training on one machine: in this process, or over a pool of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from btfl.data.federated import FederatedData
from btfl.engines.base import Broadcast, Failure, Job, Result, Session, attempt
from btfl.engines.pool import WorkerPool
from btfl.errors import InputError, UnknownNameError
from btfl.recipes.base import Recipe

DEVICES = ("cpu", "cuda", "auto")
_SORTED = 64  # jobs at a time are begun in order of size; so many results may have to wait for their turn


@dataclass(frozen=True)
class LocalEngine:
    """One process, or several with one torch thread each: on a CPU that is the fast way to use its cores."""

    workers: int = 1
    device: str = "cpu"
    """``cuda`` is a GPU, ``auto`` one if there is one. Only a CPU gives the same bytes on every run."""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UnknownNameError("device", self.device, DEVICES)
        if self.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise InputError(
                    f"no GPU that torch {torch.__version__} can use is here: train with the device cpu, or install a "
                    "driver and a torch that go with your GPU"
                )

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Start the workers; stop them at the end, whatever happens. All work on a GPU is done by this process."""
        import torch  # here, so that the command line can read the settings of this package without it

        from btfl.recipes.hardware import check_hardware, training_on

        on_gpu = self.device != "cpu" and torch.cuda.is_available()
        workers, device = (1, "cuda") if on_gpu else (self.workers, "cpu")
        with training_on(device):
            check_hardware(recipe.settings)  # here, so that workers forked from this process know it already
            with WorkerPool[tuple[Broadcast, Job], Result | Failure](workers, _attempt, recipe, data) as pool:
                yield _LocalSession(pool, data)


class _LocalSession:
    def __init__(self, pool: WorkerPool[tuple[Broadcast, Job], Result | Failure], data: FederatedData) -> None:
        self._pool, self._data = pool, data

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        order = self._large_ones_first(jobs)
        early: dict[int, Result | Failure] = {}
        turn = 0
        for place, result in zip(order, self._pool.map([(broadcast, jobs[place]) for place in order]), strict=True):
            early[place] = result
            while turn in early:
                yield jobs[turn], early.pop(turn)
                turn += 1

    def _large_ones_first(self, jobs: Sequence[Job]) -> list[int]:
        """Order the jobs so that no worker is left alone with a large one at the end of a round."""
        sizes = [self._data.size(job.client) for job in jobs]
        starts = range(0, len(jobs), _SORTED)
        parts = [range(start, min(start + _SORTED, len(jobs))) for start in starts]
        return [place for part in parts for place in sorted(part, key=lambda place: -sizes[place])]


def _attempt(recipe: Recipe, data: FederatedData, item: tuple[Broadcast, Job]) -> Result | Failure:
    return attempt(recipe, data, *item)
