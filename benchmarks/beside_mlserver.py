"""Requests a second of ``btfl serve`` beside MLServer's sklearn runtime, in turns; as a Markdown table.

Run as ``python benchmarks/beside_mlserver.py FOLDER`` on a quiet machine; FOLDER is a virtual environment of its own
with ``pip install mlserver mlserver-sklearn``. MLServer answers with a logistic regression of the same size (64
features, 10 classes), one process, no memory of any stream; the server is SQLite with one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from serving import ENTRY, load

from server_process import Server, free_port, sqlite

MAKE = """
import joblib, numpy as np
from sklearn.linear_model import LogisticRegression
rng = np.random.default_rng(0)
model = LogisticRegression(max_iter=50).fit(rng.normal(size=(500, 64)), rng.integers(10, size=500))
joblib.dump(model, "model.joblib")
"""


@contextmanager
def mlserver(environment: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """Run MLServer with ten models; return its port and its group of processes."""
    subprocess.run([environment / "bin" / "python", "-c", MAKE], cwd=folder, check=True)
    for number in range(10):
        told = {"uri": str(folder / "model.joblib"), "content_type": "np"}
        settings = {"name": f"client-{number}", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": told}
        (folder / f"client-{number}").mkdir()
        (folder / f"client-{number}" / "model-settings.json").write_text(json.dumps(settings))
    ports = {name: free_port() for name in ("http_port", "grpc_port", "metrics_port")}
    (folder / "settings.json").write_text(json.dumps({**ports, "parallel_workers": 0, "host": "127.0.0.1"}))
    path = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    words = [str(environment / "bin" / "mlserver"), "start", str(folder)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        words, env={**os.environ, **path}, stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        waiting = Server("", "", port=ports["http_port"])
        while not waiting.is_ready():
            if process.poll() is not None:
                raise RuntimeError("MLServer ended")
            time.sleep(0.2)
        try:
            yield ports["http_port"], process.pid
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as two,
        mlserver(chosen.environment.resolve(), Path(one)) as other,
        Server(f"zoo:{ENTRY}", sqlite(Path(two))) as server,
    ):
        assert server.process is not None
        print("| batch, JSON | btfl serve, requests/s | p50, p99 ms | MLServer | p50, p99 ms | ratio |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: |")
        for batch in (1, 32):
            ours, theirs = [], []
            for _ in range(chosen.turns):
                theirs.append(load(*other, batch, False, chosen.seconds))
                ours.append(load(server.port, server.process.pid, batch, False, chosen.seconds))
            ratio = statistics.median(a[0] / b[0] for a, b in zip(ours, theirs, strict=True))
            cells = [
                [f"{statistics.median(t[0] for t in found):,.0f}",
                 f"{statistics.median(t[1] for t in found):.1f}, {statistics.median(t[2] for t in found):.1f}"]
                for found in (ours, theirs)
            ]  # fmt: skip
            print(f"| {batch} | {' | '.join(cells[0])} | {' | '.join(cells[1])} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
