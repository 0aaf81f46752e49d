"""Requests a second and latency of ``btfl serve``, beside a bare FastAPI endpoint and MLServer; as a Markdown table.

Run as ``python benchmarks/serving.py`` on a quiet machine; ``--quick`` takes a minute. The sender is a process of its
own. The bare endpoint runs as the server does (uvicorn, uvloop, httptools, as many workers), parses the same request to
the same array, and returns the bytes that the server answered to one such request. Every setting is measured in turns
with the bare endpoint, so that a busy machine slows both; the ratio is the median over turns, and beside it stand the
microseconds of processor of a request, and their ratio.
``--soak`` sends a million samples on 10,000 streams (``--streams``, ``--samples``: fewer).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from btfl.serve.tensors import HEADER
from btfl.zoo.serving import entry_folder, load_serving
from postgres import Postgres, why_not
from server_process import Server, free_port, sqlite

ENTRY = "cifar10-cnn-dir0.1-quick"
DIMENSIONS, STREAMS = 64, 16
BARE = """
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from btfl.serve.tensors import read_request

app = FastAPI()
answer, headers = open({answer!r}, "rb").read(), {headers!r}


@app.post("/v2/models/{{model}}/infer")
async def infer(request: Request, model: str) -> Response:
    read_request(await request.body(), request.headers.get("inference-header-content-length"), 1024)
    return Response(answer, headers=headers)


@app.get("/v2/health/ready")
async def ready() -> Response:
    return Response()
"""


def content(features: NDArray[np.float64], sequence: str, start: bool, binary: bool) -> tuple[bytes, bytes]:
    """Write a request; return its headers and its body."""
    told: dict[str, Any] = {"name": "features", "datatype": "FP64", "shape": list(features.shape)}
    asked: dict[str, Any] = {"inputs": [told], "parameters": {"sequence_id": sequence, "sequence_start": start}}
    if not binary:
        told["data"] = features.ravel().tolist()
        return b"Content-Type: application/json\r\n", json.dumps(asked).encode()
    told["parameters"] = {"binary_data_size": features.nbytes}
    asked["parameters"]["binary_data_output"] = True
    head = json.dumps(asked).encode()
    return f"Inference-Header-Content-Length: {len(head)}\r\n".encode(), head + features.tobytes()


def length_in(head: bytes) -> int:
    """Return the length of a body from the headers of an answer."""
    return int(head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])


async def one_connection(port: int, stream: int, batch: int, binary: bool, until: float, times: list[float]) -> None:
    """Send one stream over one connection until a time; note how long each request took, in seconds."""
    rng = np.random.default_rng(stream)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    name, begun = f"{os.getpid()}-{stream}-{time.monotonic_ns()}", True
    prepared = []
    for number in range(9):
        features = np.maximum(rng.normal(size=(batch, DIMENSIONS)), 0.0)
        headers, body = content(features, name, number == 0, binary)
        line = f"POST /v2/models/client-{stream % 10}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        prepared.append(line + headers + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    number = 0
    while time.monotonic() < until:
        sent = time.perf_counter()
        writer.write(prepared[0] if begun else prepared[1 + number % 8])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode() + (await reader.read(300)).decode())
        await reader.readexactly(length_in(head))
        times.append(time.perf_counter() - sent)
        begun, number = False, number + 1
    writer.close()
    await writer.wait_closed()


def sender(port: int, batch: int, binary: bool, seconds: float, connection: Any) -> None:
    """Send from a process of its own; tell the times through a pipe."""

    async def all_of_them() -> list[float]:
        times: list[float] = []
        until = time.monotonic() + seconds
        await asyncio.gather(*(one_connection(port, s, batch, binary, until, times) for s in range(STREAMS)))
        return times

    import uvloop

    connection.send(uvloop.run(all_of_them()))


def processor_seconds(group: int) -> float:
    """Return the processor's time that the processes of a group have had."""
    ticks, found = os.sysconf("SC_CLK_TCK"), 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == group:
            found += (int(fields[11]) + int(fields[12])) / ticks
    return found


def load(port: int, group: int, batch: int, binary: bool, seconds: float) -> tuple[float, float, float, float]:
    """Return requests a second, the median and 99th percentile of their milliseconds, and microseconds of processor."""
    before = processor_seconds(group)
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=sender, args=(port, batch, binary, seconds, theirs))
    process.start()
    theirs.close()  # so that a sender that fails is noticed
    times = mine.recv()
    process.join()
    spent = 1e6 * (processor_seconds(group) - before) / len(times)
    return len(times) / seconds, 1000 * float(np.median(times)), 1000 * float(np.quantile(times, 0.99)), spent


def one_answer(server: Server, batch: int, binary: bool) -> tuple[bytes, dict[str, str]]:
    """Return the bytes that the server answers to a request, and their headers."""
    features = np.maximum(np.random.default_rng(0).normal(size=(batch, DIMENSIONS)), 0.0)
    headers, body = content(features, "one answer", True, binary)
    name, _, value = headers.decode().strip().partition(": ")
    request = urllib.request.Request(f"{server.url}/v2/models/client-0/infer", body, {name: value})
    with urllib.request.urlopen(request) as answer:
        told = {name: answer.headers[name] for name in ("Content-Type", HEADER) if name in answer.headers}
        return answer.read(), told


@contextmanager
def bare(workers: int, answer: bytes, headers: dict[str, str], folder: Path) -> Iterator[tuple[int, int]]:
    """Run the bare endpoint; return its port and its group of processes."""
    (folder / "answer").write_bytes(answer)
    (folder / "bare_endpoint.py").write_text(BARE.format(answer=str(folder / "answer"), headers=headers))
    port = free_port()
    words = [sys.executable, "-m", "uvicorn", "bare_endpoint:app", "--port", str(port), "--workers", str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    quiet = ["--log-level", "critical", "--no-access-log", "--no-server-header", "--no-proxy-headers"]
    with subprocess.Popen([*words, *quiet], cwd=folder, env=environment, start_new_session=True) as process:
        waiting = Server("", "", port=port)
        while not waiting.is_ready():
            if process.poll() is not None:
                raise RuntimeError("the bare endpoint ended")
            time.sleep(0.05)
        try:
            yield port, process.pid
        finally:
            process.terminate()


def measure(database: str, kind: str, workers: int, seconds: float, turns: int) -> Iterator[list[str]]:
    """Measure every batch size and form, in turns with the bare endpoint."""
    with Server(f"zoo:{ENTRY}", database, "--workers", str(workers)) as server, tempfile.TemporaryDirectory() as folder:
        assert server.process is not None
        group = server.process.pid
        for batch, binary in ((1, False), (1, True), (32, False), (32, True)):
            with bare(workers, *one_answer(server, batch, binary), Path(folder)) as other:
                ours, theirs = [], []
                for _ in range(turns):
                    theirs.append(load(*other, batch, binary, seconds))
                    ours.append(load(server.port, group, batch, binary, seconds))
            ratio = statistics.median(a[0] / b[0] for a, b in zip(ours, theirs, strict=True))
            rate, middle, late = (statistics.median(one[i] for one in ours) for i in range(3))
            form = "binary" if binary else "JSON"
            row = [kind, str(workers), str(batch), form, f"{rate:,.0f}", f"{middle:.1f}", f"{late:.1f}"]
            spent = statistics.median(b[3] / a[3] for a, b in zip(ours, theirs, strict=True))
            bare_rate, mine, others = (
                statistics.median(one[i] for one in o) for o, i in ((theirs, 0), (ours, 3), (theirs, 3))
            )
            yield [*row, f"{bare_rate:,.0f}", f"{ratio:.2f}", f"{mine:.0f}", f"{others:.0f}", f"{spent:.2f}"]


def soak(streams: int, samples: int, batch: int) -> None:
    """Send samples on many streams; print the server's memory as it goes on."""
    with tempfile.TemporaryDirectory() as folder:
        with Server(f"zoo:{ENTRY}", sqlite(Path(folder)), "--history", "16") as server:
            asyncio.run(_soak(server, streams, samples // streams // batch, batch))
        size = (Path(folder) / "memory.db").stat().st_size / 1e6
        print(f"database {size:.0f} MB")


async def _soak(server: Server, streams: int, rounds: int, batch: int) -> None:
    rng, begun, answered = np.random.default_rng(0), time.monotonic(), 0
    parts = [np.maximum(rng.normal(size=(batch, DIMENSIONS)), 0.0) for _ in range(16)]
    connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(STREAMS)]

    async def ask(which: int, stream: int, first: bool, number: int) -> None:
        reader, writer = connections[which]
        headers, body = content(parts[number % 16], f"s{stream}", first, True)
        line = f"POST /v2/models/client-{stream % 10}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        writer.write(line + headers + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readexactly(length_in(head))

    async def share(which: int, first: bool, round_: int) -> None:
        for stream in range(which, streams, STREAMS):
            await ask(which, stream, first, stream + round_)

    for round_ in range(rounds):
        await asyncio.gather(*(share(which, round_ == 0, round_) for which in range(STREAMS)))
        answered += streams * batch
        if round_ % max(rounds // 10, 1) == 0 or round_ == rounds - 1:
            seconds = time.monotonic() - begun
            print(f"{answered:>9,} samples  {seconds:6.0f} s  server {server.memory():.0f} MB", flush=True)
    for _, writer in connections:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one worker, SQLite, short turns")
    parser.add_argument("--soak", action="store_true", help="10,000 streams, a million samples")
    parser.add_argument("--streams", type=int, default=10_000, help="of --soak")
    parser.add_argument("--samples", type=int, default=1_000_000, help="of --soak, ten in a request")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one turn")
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args()
    load_serving(entry_folder(ENTRY))  # fails here, and not in the server, if the entry is damaged
    if chosen.soak:
        soak(chosen.streams, chosen.samples, 10)
        return
    print("| database | workers | batch | form | requests/s | p50 ms | p99 ms | bare | ratio | µs | bare | ratio |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for workers in (1,) if chosen.quick else (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(sqlite(Path(folder)), "SQLite", workers, chosen.seconds, chosen.turns):
                print("| " + " | ".join(row) + " |", flush=True)
        if chosen.quick or why_not() is not None:
            continue
        postgres = Postgres()
        try:
            for row in measure(postgres.url, "PostgreSQL", workers, chosen.seconds, chosen.turns):
                print("| " + " | ".join(row) + " |", flush=True)
        finally:
            postgres.close()


if __name__ == "__main__":
    main()
