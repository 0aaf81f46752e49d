"""The steps of BTFL's decision in float32, with fewer and cheaper nodes than in float64.

In single precision onnxruntime makes one node of a product and an activation behind it, and has activations that do
what takes two nodes in double: a straight line so steep that it is 0 up to a bound and 1 beyond it (``HardSigmoid``)
is a comparison and a cast. Its slope is a power of two, so that it is exact but for what floats can hold.
"""

from __future__ import annotations

import numpy as np

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import THRESHOLD
from btfl.export.nodes import Nodes
from btfl.export.steps import COLUMNS, EXPONENT, ONE, Floats, Steps
from btfl.methods.btfl.settings import BtflSettings

_STEEP = 2.0**40  # times what two floats differ by, far above 1
_ENOUGH = 20.0  # a |log tau_hat| beyond which e changes by 1e-7 at most
_ROUNDING = 1e-5  # of a + b, relative: what lies so close above lambda is lambda, and is not pruned
_LEAST = 1e-30  # of what survives a prune: nothing, as floats go


class SingleSteps(Steps):
    """``Steps`` for a graph of floats."""

    def __init__(self, bundle: ClientBundle, settings: BtflSettings) -> None:
        super().__init__(bundle, settings)
        self.longest = settings.prune_above * (1.0 + _ROUNDING)
        self.summed = np.zeros(COLUMNS)  # which columns of the products add up to log tau_hat
        self.summed[EXPONENT] = float(settings.use_characteristic)

    def bits(self, g: Nodes, z: str) -> str:
        """Return (n, d): 1 where a feature is above the threshold, and 0 elsewhere."""
        last = np.float32(THRESHOLD)
        if float(last) > THRESHOLD:  # the last float that is not above it
            last = np.nextafter(last, np.float32(0.0))
        return g("HardSigmoid", z, alpha=_STEEP, beta=-_STEEP * float(last))

    def signs(self, g: Nodes, terms: str, entropies: str, likelihoods: str) -> str:
        """Return (n, 6): 0, one half or 1 for each column that is below, at or above 0."""
        return g("HardSigmoid", g("Gemm", terms, self.summing(g), likelihoods), alpha=_STEEP, beta=0.5)

    @property
    def event(self) -> Floats:
        """What these are multiplied with, (6,), as in double."""
        return _of_halves(super().event)

    @property
    def counts(self) -> Floats:
        """What these are multiplied with, (6, 2), as in double."""
        return _of_halves(super().counts)

    def counted(self, g: Nodes, signs: str) -> str:
        """Return (1, 2): a and b with a sample's event."""
        return g("Add", g("Relu", g("Gemm", signs, g.constant(self.counts))), "state")

    def remembered(self, g: Nodes, raised: str) -> str:
        """Return (1, 2): a and b after a sample: x, or 1 + prune_to x / (a + b); with h = 1 if pruned, h + x / s^h."""
        scale = 1.0 / max(self.settings.prune_to, _LEAST)
        beyond = g.constant([[-_STEEP * self.longest] * 2])
        is_long = g("HardSigmoid", g("Gemm", raised, g.constant(np.full((2, 2), _STEEP)), beyond), alpha=1.0, beta=0.0)
        total = g("MatMul", raised, g.constant(np.full((2, 2), scale)))
        return g("Add", is_long, g("Div", raised, g("Pow", total, is_long)))

    def shares(self, g: Nodes, entropies: str) -> str:
        """Return (n, 6): u / d in two columns; what is in the others is not ``summed``."""
        return g("Exp", g("Clip", entropies, "", g.constant(self.most[EXPONENT][0])))

    def parts(self, g: Nodes, used: str, shares: str, likelihoods: str, alone: bool) -> str:
        """Return (n, points): parts that add up to e; m_hat is a sigmoid, which has limits of its own."""
        terms, every = g("Mul", shares, likelihoods), np.outer(self.summed, -self.grid.ones)
        if self.settings.log_tau_limit < _ENOUGH:
            limit = self.settings.log_tau_limit
            log_tau = g("MatMul", terms, g.constant(self.summed[:, None]))
            terms, every = g("Clip", log_tau, g.constant(-limit), g.constant(limit)), -self.grid.ones[None]
        m_hat = g("Sigmoid", g("Gemm", terms, g.constant(every), g.constant(self.grid.t)))
        return g("Mul", self.density(g, used), m_hat)


def _of_halves(of_signs: Floats) -> Floats:
    """Return what gives the same from 0 and 1 as this does from signs, which are -1 and 1."""
    found = 2.0 * of_signs
    found[ONE] = 2.0 * of_signs[ONE] - of_signs.sum(axis=0)
    return found
