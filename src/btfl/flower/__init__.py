"""Recipes on Flower: the same rounds, the same weights, with the clients in Flower's simulation or on its network.

``pip install 'btfl[flower]'``. Importing this package imports no Flower yet; its modules do.
"""

from __future__ import annotations

import importlib.util
import os

from btfl.errors import BtflError

# They are read when flwr and ray are first imported, so they are set here, before any module of this package does that.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # ray asks for this in a warning


def need_flower() -> None:
    """Say how to install Flower if it is not here."""
    if importlib.util.find_spec("flwr") is None:
        raise BtflError("Flower is not installed; get it with: pip install 'btfl[flower]'")
