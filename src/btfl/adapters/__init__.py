"""Test-time methods: each is built from a client's bundle, fed a stream, and holds a state it can reset.

Importing this package imports no torch; the adapters that change a network live in files that do.
"""

from btfl.adapters.bayesian import BayesianAdapter, Trace

__all__ = ["BayesianAdapter", "Trace"]
