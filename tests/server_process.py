"""``btfl serve`` as a process of its own, as a user starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A server that can be killed and started again.

    Parameters
    ----------
    source : what it serves
    database : its URL
    words : more of the command line
    """

    def __init__(self, source: str, database: str, *words: str, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        self._words = [sys.executable, "-c", "from btfl.cli import main; main()", "serve", source]
        self._words += ["--port", str(self.port), "--database", database, *words]
        self.process: subprocess.Popen[bytes] | None = None
        self.seconds = 0.0
        self._log = Path(tempfile.mkstemp(prefix="btfl-serve-", suffix=".log")[1])

    def start(self, within: float = 60.0) -> Server:
        """Start it, and wait until it is ready."""
        begun = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._words, stderr=log, env=environment, start_new_session=True)
        while time.monotonic() - begun < within:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.read_log()}")
            if self.is_ready():
                self.seconds = time.monotonic() - begun
                return self
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"the server is not ready after {within:g} s: {self.read_log()}")

    def is_ready(self) -> bool:
        """Return whether it says that it is."""
        try:
            with urllib.request.urlopen(f"{self.url}/v2/health/ready", timeout=5):
                return True
        except OSError:
            return False

    def read_log(self) -> str:
        """Return what it has said until now."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill all of its processes at once, as a power cut would."""
        assert self.process is not None
        os.killpg(self.process.pid, 9)
        self.process.wait(30)

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def memory(self) -> float:
        """Return how much memory it has, with its workers, in MB."""
        assert self.process is not None
        listed = subprocess.run(["ps", "-o", "rss=", "-g", str(self.process.pid)], capture_output=True, text=True)
        return sum(map(int, listed.stdout.split())) / 1024

    def ask(
        self, path: str, content: bytes | None = None, verb: str | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """Ask it; return the status and what it says."""
        request = urllib.request.Request(self.url + path, content, headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self._log.unlink(missing_ok=True)


def infer_body(array: Any, sequence: str, id: str = "", start: bool = False) -> bytes:  # noqa: A002
    """Write a request as JSON."""
    told = {"name": "features", "datatype": "FP64", "shape": list(array.shape), "data": array.ravel().tolist()}
    parameters = {"sequence_id": sequence, "sequence_start": start}
    return json.dumps({"id": id, "inputs": [told], "parameters": parameters}).encode()


def sqlite(folder: Path) -> str:
    """Return the URL of a database in a folder."""
    return f"sqlite:///{folder / 'memory.db'}"
