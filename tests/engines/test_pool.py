"""Workers end when they should, and never leave their parent waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import numpy as np
from btfl.engines.pool import WorkerPool

def large(item):
    return np.zeros(2_000_000)

if __name__ == "__main__":
    with WorkerPool(2, large) as pool:
        for number, _ in enumerate(pool.map(range(100_000))):
            if number == 0:
                print("begun", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sends a signal to a whole process group")
@pytest.mark.parametrize("after", [0.1, 0.2, 0.3])
def test_ctrl_c_while_a_large_result_is_handed_over_ends_everything(after: float) -> None:
    """Handing over is nearly all these workers do, so the signal comes in the midst of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "KeyboardInterrupt" in said
    assert process.returncode in (1, -signal.SIGINT, 130)
