"""What the server makes of a round's updates: their mean, with the defence that the settings name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.client import Weights
from btfl.engines.aggregate import Averaged, Mean, RunningSum
from btfl.engines.camps import moves_of, other_camp
from btfl.engines.naming import few_enough, misnamed
from btfl.engines.robust import COORDINATEWISE, WEIGHTINGS
from btfl.engines.rows import Rows
from btfl.engines.screening import GROUP, MOST_PAIRS, SIZE, only_too_long, screen, smaller_camp
from btfl.recipes.base import Update
from btfl.recipes.settings import TrainingSettings
from btfl.runs.standing import MANY, ROUNDS, Standing

Floats = NDArray[np.float64]

HEAD = "head.weight"
"""The rows of the classes, where a recipe uploads a head."""


class Averaging:
    """Takes the updates of one round, one at a time in the order of the clients.

    Parameters
    ----------
    shared : weights that the clients began with
    settings : which defence, and against what share of liars
    round_ : which round
    standing : what is known of the clients from the rounds before
    leans : whether an honest update has a positive product with ``shared`` (``Recipe.grows_surer``)
    untrained : whether the first round began with weights that nobody has trained: clients may agree there
    """

    def __init__(
        self,
        shared: Weights,
        settings: TrainingSettings,
        round_: int,
        standing: Standing,
        *,
        leans: bool = True,
        untrained: bool = True,
    ) -> None:
        self._shared, self._settings, self._round, self._standing = shared, settings, round_, standing
        self._leans, self._untrained, self._defence = leans, untrained, settings.defence_in_force
        self._sum, self._rows = RunningSum(), Rows()
        self._clients: list[int] = []
        self._samples: list[int] = []
        self._names: tuple[str, ...] = ()
        self._seen, self._turned = 0, 0
        self._left_out: dict[int, str] = {}
        self._cut: dict[int, str] = {}

    def add(self, client: int, update: Update) -> None:
        """Take one client's update, which has been checked."""
        if self._defence == "none" or not update.upload:
            self._sum.add(update.upload, update.samples)
            return
        self._names = self._names or tuple(update.upload)
        self._clients.append(client)
        self._samples.append(int(update.samples))
        self._rows.add(update.upload)
        if self._defence == "screen" and len(self._rows) == GROUP:
            self._screen()

    def result(self) -> Averaged:
        """Return the weights to go on with, and who was left out."""
        if self._defence in ("none", "screen"):
            if len(self._rows):
                self._screen()
            mean, standing = self._sum.mean(), self._standing
            many = self._leans and self._round > 1 and self._turned >= MANY * self._seen
            early = 2 * self._round <= self._settings.rounds  # as many rounds must be left as are given up
            restart = bool(self._left_out) and not standing.restarted and many and early
            if restart:
                turned = standing.turned(list(standing.rounds))
                standing = replace(standing, usual=0.0, suspects=frozenset(turned), restarted=self._round)
            return Averaged(mean, self._left_out, self._cut, standing, restart)
        if not len(self._rows):
            return Averaged(self._sum.mean(), standing=self._standing)
        return Averaged(self._robust(self._defence), standing=self._standing)

    def _screen(self) -> None:
        """Compare the updates that are waiting with each other, and add those of honest clients to the sum."""
        along, lengths = self._rows.paths(self._shared)
        standing = self._standing.measuring(float(np.median(lengths)))
        turned, too_long = set[int](), dict[int, str]()
        if self._leans:
            too_long = self._shorten(along, lengths, standing.usual)
            standing = standing.after(self._clients, along, lengths)
            if self._untrained and self._round == 1 and self._seen == 0:
                standing = self._first_look(standing)
            turned = standing.turned(self._clients)
            if self._seen == 0 and len(turned - standing.misnamed) < MANY * len(self._clients):
                standing = self._compare_names(standing, turned)
        suspects = [place for place, client in enumerate(self._clients) if client in turned]
        named = [place for place, client in enumerate(self._clients) if client in standing.misnamed]
        found = screen(along, lengths, standing.usual, self._rows.near, suspects, named)
        for place, samples in enumerate(self._samples):
            if place not in found:
                arrays = self._rows.arrays(place)
                self._sum.add({name: arrays[name] for name in self._names}, samples)
                if place in too_long:
                    self._cut[self._clients[place]] = too_long[place]
        self._left_out |= {self._clients[place]: why for place, why in sorted(found.items())}
        # who was not left out from the first round
        self._turned += len(turned - standing.suspects - standing.misnamed)
        self._turned += len(standing.misnamed - self._standing.misnamed)
        self._standing, self._seen = standing, self._seen + len(self._rows)
        self._rows, self._clients, self._samples = Rows(), [], []

    def _shorten(self, along: Floats, lengths: Floats, usual: float) -> dict[int, str]:
        """Cut updates that are only too long to what is usual in this round, and say which and why.

        Across the weights by one factor for all, so that the median of them is as wide as that of the others: who
        learned more than another still does. None is wider than the widest of the others. Both arrays are brought up
        to date.
        """
        places, said = only_too_long(along, lengths, usual), dict[int, str]()
        if not places:
            return said
        others = lengths <= SIZE * usual
        aside = np.sqrt(np.maximum(lengths**2 - along**2, 0.0))
        most, usually = float(np.median(np.abs(along[others]))), float(np.median(aside[others]))
        factor = usually / max(float(np.median(aside[places])), np.finfo(np.float64).tiny)
        widths = np.minimum(factor * aside, aside[others].max())
        for place in places:
            said[place] = f"is {lengths[place] / usual:.3g} times as long as the usual one"
            self._rows.cut(place, self._shared, most, float(widths[place]))
            along[place] = np.sign(along[place]) * min(most, abs(float(along[place])))
            lengths[place] = np.hypot(along[place], min(widths[place], aside[place]))
        return said

    def _first_look(self, standing: Standing) -> Standing:
        """Return the standing with those under suspicion who are against the majority in the very first round."""
        places = range(len(self._rows))
        if len(places) <= MOST_PAIRS:
            camp = smaller_camp(self._rows.gram(places, self._shared))
            standing = standing.suspecting(self._clients[place] for place in camp)
        if self._has_head:
            found = misnamed(self._head_steps())
            standing = standing.naming(self._clients[place] for place in found)
        return standing

    def _compare_names(self, standing: Standing, turned: set[int]) -> Standing:
        """Return the standing with one more round of what clients call the classes, and with who is a camp apart.

        Not asked where many more are turned round: their rows are, too, and where they have led training nothing is
        sure.
        """
        if not self._has_head or not few_enough(len(self._rows), len(self._shared[HEAD])):
            return standing
        moves = moves_of(self._head_steps())
        if moves is None:
            return standing
        standing = standing.meeting(self._clients, moves.products, moves.sizes)
        if standing.compared < ROUNDS:
            return standing
        found = {self._clients[place] for place in other_camp(*standing.agreement(self._clients), moves.rows)}
        return standing.naming(found) if 2 * len(found | turned) < len(self._clients) else standing

    @property
    def _has_head(self) -> bool:
        return HEAD in self._names and HEAD in self._shared

    def _head_steps(self) -> Floats:
        """Return (clients, K, d) how far each client has moved the rows of the head."""
        places = range(len(self._rows))
        steps = np.stack([self._rows.arrays(place)[HEAD] - self._shared[HEAD] for place in places])
        return steps.astype(np.float64)

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
