"""Sums of which the server learns the total alone: masked on Flower, and with the same arithmetic in one process.

What is averaged or added up is then a whole number modulo 2^64 (``engines/fixed.py``), the same on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from btfl.core.calibration import Calibration
from btfl.core.client import Weights
from btfl.data.federated import FederatedData
from btfl.engines.base import Broadcast, Job, Session
from btfl.engines.faults import FaultSettings, usable
from btfl.engines.fixed import Form, Whole, encode_result, form_of
from btfl.engines.noisy_sums import NoiseShare
from btfl.errors import TooFewClientsError
from btfl.recipes.base import Description, Recipe, Update

Floats = NDArray[np.float64]
Warn = Callable[[Job, str], None]

FEWEST = 3
"""Of two clients, each knows the other's numbers from the sum."""


def threshold_of(members: int) -> int:
    """Return the fewest that can restore a secret: more than half, so that no two halves can learn two sums."""
    return max(members // 2 + 1, FEWEST)


@dataclass(frozen=True, eq=False)
class SecureTotal:
    """A sum, and whose numbers are in it."""

    sums: dict[str, Floats]
    members: tuple[Job, ...]
    private: dict[int, Weights]
    """Private states that the jobs have changed, where clients keep them on this machine."""


@runtime_checkable
class SecureSession(Protocol):
    """A session whose clients mask what they send."""

    def add_up(
        self, broadcast: Broadcast, jobs: Sequence[Job], form: Form, noise: NoiseShare | None, warn: Warn
    ) -> tuple[list[Job], Whole]:
        """Do the jobs; return those that are in the sum, and the sum."""


def add_up(
    session: Session,
    recipe: Recipe,
    broadcast: Broadcast,
    jobs: Sequence[Job],
    form: Form,
    noise: NoiseShare | None,
    faults: FaultSettings,
    check: Callable[[Job, Any], None],
    warn: Warn,
    done: Callable[[Job], None],
) -> SecureTotal:
    """Do the jobs and return the sum of what they come to.

    Parameters
    ----------
    form : how an answer is written in whole numbers
    noise : what each client adds, with privacy
    check : raises an error for an answer that is no use; on Flower, where nobody sees it, the client does that itself
    warn, done : called for each client that failed, and for each that did not
    """
    private: dict[int, Weights] = {}
    if isinstance(session, SecureSession):
        members, total = session.add_up(broadcast, jobs, form, noise, warn)
        for job in members:
            done(job)
    else:
        members, total = [], np.zeros(form.size, np.uint64)
        encoded: dict[int, Whole] = {}

        def check_and_encode(job: Job, result: Any) -> None:
            check(job, result)
            encoded[job.client] = encode(recipe, form, noise, broadcast.shared, job, result)

        kinds: tuple[type[Any], ...] = (Update, Description, Calibration)
        for job, result in usable(session, broadcast, jobs, kinds, check_and_encode, faults, warn):
            total = total + encoded.pop(job.client)
            members.append(job)
            if isinstance(result, Update | Description) and result.private:
                private[job.client] = result.private
            done(job)
    needed = max(threshold_of(len(jobs)), faults.needed(len(jobs)))
    if len(members) < needed:
        raise TooFewClientsError(
            f"only {len(members)} of {len(jobs)} clients are in a secure sum, and {needed} are needed: nothing was "
            "learned from it. Start the run again when more can answer"
        )
    return SecureTotal(form.decode(total), tuple(members), private)


def encode(
    recipe: Recipe,
    form: Form,
    noise: NoiseShare | None,
    shared: Weights,
    job: Job,
    result: Update | Description | Calibration,
) -> Whole:
    """Return what a client adds to a sum: its answer in whole numbers, with its part of the noise if there is any."""
    if noise is None or isinstance(result, Calibration):
        return encode_result(form, result)
    if isinstance(result, Update):
        return form.encode(noise.of_update(recipe, shared, result, job.client, job.round))
    return form.encode(noise.of_summary(recipe, result, job.client))


def make_form(recipe: Recipe, data: FederatedData, task: str, asked: int, noise: NoiseShare | None) -> Form:
    """Return how the answers of so many clients are added up; the same on the server and on every client."""
    pool = data.source.pool if data.embedded is None else data.embedded
    if noise is not None:
        copies = pool.copies is not None or pool.kind != "vectors"
        return noise.form(recipe, task, asked, most_samples(data), copies)
    return form_of(recipe, task, asked, most_samples(data), 0 if task == "train" else recipe.feature_size())


def most_samples(data: FederatedData) -> int:
    """Return a number of samples that no client of a federation has more of, whatever the round."""
    return 2 * max(len(part.train) + len(part.validation) for part in data.partition.parts)
