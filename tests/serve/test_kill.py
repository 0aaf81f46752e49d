"""Nothing lost: the server, and PostgreSQL, are killed at random moments; what was acknowledged is there once.

Several streams are sent to a server that is killed while it works. A sender that got no answer sends the same request
again, with the same id, until it does. Then every answer, and the memory, must be those of an undisturbed run, to the
bit.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")

from btfl import Coherent
from fleet import foreign, make_bundles, own, save_fleet
from postgres import Postgres, why_not
from server_process import Server, infer_body, sqlite

STREAMS = 6


class Sender(threading.Thread):
    """Sends one stream, sample by sample, and sends again what was not answered, until it is told to stop."""

    def __init__(self, number: int, port: int, stop: threading.Event) -> None:
        super().__init__()
        rng = np.random.default_rng(number)
        self.client, self.number, self._port, self._ended = number % 3, number, port, stop
        kinds = [own(self.client, 40, number), foreign(self.client, 40, number)]
        self.samples = np.concatenate(kinds)[rng.permutation(80)]
        self.answers: list[list[float]] = []
        self.retried = 0
        self.refused: list[tuple[int, bytes]] = []

    def sample(self, place: int) -> np.ndarray:
        return np.asarray(self.samples[place % len(self.samples)][None])

    def run(self) -> None:
        place = 0
        while not self._ended.is_set():
            body = infer_body(self.sample(place), f"s{self.number}", f"{self.number}-{place}", place == 0)
            answer = self._until_answered(body)
            if answer is not None:
                self.answers.append(answer["outputs"][0]["data"])
                place += 1

    def _until_answered(self, body: bytes) -> Any:
        path = f"/v2/models/client-{self.client}/infer"
        for attempt in range(100_000):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            try:
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                if answer.status == 200:
                    self.retried += attempt > 0
                    return json.loads(content)
                if answer.status != 503:
                    self.refused.append((answer.status, content))
                    return None
            except (OSError, http.client.HTTPException):
                pass  # killed before the answer: whether it counted, the next try will say
            finally:
                connection.close()
            if self._ended.is_set() and attempt > 2000:
                return None
            time.sleep(0.01)
        return None


def check(senders: list[Sender], server: Server) -> int:
    """Compare every answer, and the memory after them, with an undisturbed run; return how many samples there were."""
    bundles = make_bundles()
    total = 0
    for sender in senders:
        assert not sender.refused, sender.refused[:2]
        count = len(sender.answers)
        assert count > 0
        method = Coherent(bundles[sender.client])
        expected = method.predict(np.concatenate([sender.sample(place) for place in range(count + 1)]))
        assert np.array(sender.answers).tolist() == expected[:-1].tolist()
        status, said = server.ask(
            f"/v2/models/client-{sender.client}/infer", infer_body(sender.sample(count), f"s{sender.number}", "last")
        )
        assert status == 200
        told = json.loads(said)
        assert told["parameters"]["stream_version"] == count + 1
        assert told["outputs"][0]["data"] == expected[-1].tolist()
        total += count
    return total


def kill_and_check(folder: Path, database: str, kills: int, postgres: Postgres | None, workers: int) -> tuple[int, int]:
    rng = random.Random(0)
    fleet = save_fleet(folder / "fleet")
    server = Server(str(fleet), database, "--workers", str(workers)).start()
    stop = threading.Event()
    senders = [Sender(number, server.port, stop) for number in range(STREAMS)]
    for sender in senders:
        sender.start()
    try:
        for number in range(kills):
            time.sleep(rng.uniform(0.02, 0.4))
            if postgres is not None and number % 2:
                postgres.kill()
                time.sleep(rng.uniform(0.0, 0.1))
                postgres.start()
            else:
                server.kill()
                server.start()
        time.sleep(0.5)
    finally:
        stop.set()
        for sender in senders:
            sender.join()
    try:
        return check(senders, server), sum(sender.retried for sender in senders)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_killed_server_loses_and_repeats_nothing(tmp_path: Path) -> None:
    samples, retried = kill_and_check(tmp_path, sqlite(tmp_path), 2, None, 1)
    assert samples > 0
    assert retried > 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_sqlite_at_fifty_random_moments(tmp_path: Path, workers: int) -> None:
    samples, retried = kill_and_check(tmp_path, sqlite(tmp_path), 50, None, workers)
    print(f"SQLite, {workers} workers: 50 kills, {samples} samples, {retried} requests sent again")
    assert retried > 10


@pytest.mark.slow
def test_postgresql_and_the_server_at_fifty_random_moments(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    postgres = Postgres()
    try:
        samples, retried = kill_and_check(tmp_path, postgres.url, 50, postgres, 2)
    finally:
        postgres.close()
    print(f"PostgreSQL: 25 kills of it and 25 of the server, {samples} samples, {retried} requests sent again")
    assert retried > 10
