"""What the server makes of a round's updates: their mean, with the defence that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from btfl.core.client import Weights
from btfl.engines.aggregate import Averaged, Mean, RunningSum
from btfl.engines.robust import COORDINATEWISE, WEIGHTINGS
from btfl.engines.rows import Rows
from btfl.engines.screening import GROUP, screen, smaller_camp
from btfl.randomness import generator
from btfl.recipes.base import Update
from btfl.recipes.settings import TrainingSettings
from btfl.runs.standing import MANY, Standing


class Averaging:
    """Takes the updates of one round, one at a time in the order of the clients.

    Parameters
    ----------
    shared : weights that the clients began with
    settings : which defence, against what share of liars, and the seed
    round_ : which round
    standing : what is known of the clients from the rounds before
    """

    def __init__(self, shared: Weights, settings: TrainingSettings, round_: int, standing: Standing) -> None:
        self._shared, self._settings, self._round, self._standing = shared, settings, round_, standing
        self._sum, self._rows = RunningSum(), Rows()
        self._clients: list[int] = []
        self._samples: list[int] = []

    def add(self, client: int, update: Update) -> None:
        """Take one client's update, which has been checked."""
        self._sum.add(update.upload, update.samples)
        self._clients.append(client)
        self._samples.append(int(update.samples))
        if self._settings.defence != "none" and update.upload:
            self._rows.add(update.upload)

    def result(self) -> Averaged:
        """Return the weights to go on with, and who was left out."""
        defence = self._settings.defence
        if defence == "none" or not len(self._rows):
            return Averaged(self._sum.mean(), standing=self._standing)
        if defence == "screen":
            return self._screened()
        return Averaged(self._robust(defence), standing=self._standing)

    def _screened(self) -> Averaged:
        standing = self._standing.after(self._clients, self._rows.cosines(self._shared))
        if self._round == 1 and len(self._rows) <= GROUP:
            camp = smaller_camp(self._rows.gram(range(len(self._rows)), self._shared))
            standing = standing.suspecting(self._clients[place] for place in camp)
        turned = standing.turned(self._clients)
        found: dict[int, str] = {}
        for group in self._groups():
            suspects = [place for place, member in enumerate(group) if self._clients[member] in turned]
            named = screen(self._rows.gram(group, self._shared), suspects)
            found |= {group[place]: why for place, why in named.items()}
        if not found:
            return Averaged(self._sum.mean(), standing=standing)
        restart = not standing.restarted and self._round > 1 and len(turned) >= MANY * len(self._rows)
        if restart:
            standing = Standing(suspects=frozenset(turned), restarted=True)
        kept = RunningSum()
        for place, samples in enumerate(self._samples):
            if place not in found:
                kept.add(self._rows.arrays(place), samples)
        left_out = {self._clients[place]: why for place, why in sorted(found.items())}
        return Averaged(kept.mean(), left_out, standing, restart)

    def _groups(self) -> list[Sequence[int]]:
        count = len(self._rows)
        if count <= GROUP:
            return [range(count)]
        order = generator(self._settings.seed, "screening", self._round).permutation(count)
        return [sorted(part.tolist()) for part in np.array_split(order, -(-count // GROUP))]

    def _robust(self, defence: str) -> Mean:
        places, liars = range(len(self._rows)), self._settings.liars
        weights: Any = None
        if defence in WEIGHTINGS:
            samples = np.array(self._samples, dtype=np.float64)
            weights = WEIGHTINGS[defence](self._rows.gram(places, self._shared), samples, liars)
        parts = [
            COORDINATEWISE[defence](block, liars) if weights is None else (weights[:, None] * block).sum(axis=0)
            for block in self._rows.blocks(places, self._shared)
        ]
        steps = self._rows.unravel(np.concatenate(parts))
        return {name: (self._shared.get(name, np.float64(0)) + step).astype(np.float32) for name, step in steps.items()}
