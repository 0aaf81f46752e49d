"""Workers end when they should, and never leave their parent waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from btfl.engines.pool import WorkerPool
from btfl.errors import BtflError, InputError

LARGE = 2_000_000

SCRIPT = """
import numpy as np
from btfl.engines.pool import WorkerPool
from btfl.errors import InputError

def large(item):
    return np.zeros(2_000_000)

if __name__ == "__main__":
    with WorkerPool(2, large) as pool:
        for number, _ in enumerate(pool.map(range(100_000))):
            if number == 0:
                print("begun", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sends a signal to a whole process group")
@pytest.mark.parametrize(
    "after", [pytest.param(0.1, marks=pytest.mark.slow), 0.2, pytest.param(0.3, marks=pytest.mark.slow)]
)
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


def _large(item: int) -> tuple[int, int, np.ndarray]:
    if item < 0:
        raise InputError(f"{item} is negative")
    return item, os.getpid(), np.full(LARGE, item)


@pytest.mark.skipif(sys.platform != "linux", reason="kills a process")
def test_a_worker_killed_while_it_hands_over_a_large_result_is_replaced() -> None:
    """While nobody reads its pipe it cannot get further than the middle of what it writes there."""
    found, workers = list[tuple[int, int]](), set[int]()
    with WorkerPool[int, tuple[int, int, np.ndarray]](2, _large) as pool:
        for item, worker, array in pool.map(range(10)):
            if not found:
                time.sleep(0.5)
                os.kill(worker, signal.SIGKILL)
            workers.add(worker)
            found.append((item, int(array[-1])))
    assert found == [(item, item) for item in range(10)]
    assert len(workers) == 3


def test_what_a_worker_raises_is_raised_here_and_says_where() -> None:
    with WorkerPool[int, tuple[int, int, np.ndarray]](2, _large) as pool:
        with pytest.raises(InputError, match="-2 is negative") as raised:
            list(pool.map([1, -2, 3]))
        assert "_large" in raised.value.__notes__[0]
        assert [item for item, _, _ in pool.map([4, 5])] == [4, 5], "and the pool can still be used"


def test_a_pool_that_was_left_early_begins_anew() -> None:
    with WorkerPool[int, tuple[int, int, np.ndarray]](2, _large) as pool:
        results = pool.map(range(100))
        assert next(results)[0] == 0
        results.close()  # type: ignore[attr-defined]
        assert [item for item, _, _ in pool.map([7, 8, 9])] == [7, 8, 9]


class TwoPartsError(RuntimeError):
    """Cannot be made again from its arguments, of which it keeps one."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def _odd(item: int) -> object:
    if item == 1:
        raise TwoPartsError("it", "\x1b[31m")
    return (lambda: item) if item == 2 else item


def test_what_a_worker_sends_and_nobody_can_read_is_one_sentence() -> None:
    with WorkerPool[int, object](2, _odd) as pool, pytest.raises(BtflError, match=r"cannot be read \(TypeError: .*why"):
        list(pool.map([0, 1]))


def test_what_a_worker_cannot_send_is_its_error() -> None:
    with WorkerPool[int, object](2, _odd) as pool, pytest.raises(Exception, match="pickle"):
        list(pool.map([0, 2]))
