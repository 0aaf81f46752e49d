"""What all tests share."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: timings and sums do not depend on the machine's cores
os.environ.setdefault("BTFL_KEPT_LIMIT", "0")  # tests make what they look at; those of ``data/kept.py`` set another

import pytest
from hypothesis import HealthCheck, settings

from btfl import ClientBundle
from making import make_bundle

settings.register_profile(
    "btfl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("btfl")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts what runs in the background with Ctrl-C ignored, and the programs under test would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def bundle() -> ClientBundle:
    return make_bundle()
