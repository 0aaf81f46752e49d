"""Fuzzed requests, by the OpenAPI schema (schemathesis) and as raw bytes: answered or refused; no 5xx, no hang."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")
pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from fleet import own, save_fleet
from server_process import Server, infer_body, sqlite

SECONDS = 20.0  # a request that takes longer hangs
MOST_GROWTH = 40.0  # MB, over ten thousand requests


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzzed")
    fleet = save_fleet(folder / "fleet", 2)
    with Server(str(fleet), sqlite(folder), "--most-streams", "200", "--largest-body", "100000") as one:
        yield one


def by_schema(server: Server, examples: int) -> Counter[int]:
    """Send requests that follow the schema, and ones that break it, to every operation but the endless one."""
    import requests
    import schemathesis
    from schemathesis import GenerationMode

    schema: Any = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    operations = [one for one in operations if one.path != "/api/events"]
    cases = st.one_of(
        [
            one.as_strategy(generation_mode=mode, **({"path_parameters": path} if path else {}))
            for one in operations
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
            for path in ([None] if "{model}" not in one.path else [None, _known(one.path)])
        ]
    )
    found: Counter[int] = Counter()
    with requests.Session() as session:

        @seed(0)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def send(case: Any) -> None:
            try:
                answer = case.call(base_url=server.url, session=session, timeout=SECONDS)
            except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError):
                return  # the sender's own library does not let it out
            found[answer.status_code] += 1
            assert answer.status_code < 500, (case.as_curl_command(), answer.text[:300])

        send()
    return found


def _known(path: str) -> dict[str, str]:
    return {"model": "client-0", "version": "1"} if "{version}" in path else {"model": "client-0"}


def raw_bytes(server: Server, examples: int) -> Counter[str]:
    """Send bytes: nonsense, and right requests with something cut, doubled or changed."""
    rng, found = random.Random(0), Counter[str]()
    body = infer_body(own(0, 2), "raw", "raw", start=True)
    head = (
        f"POST /v2/models/client-0/infer HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(body)}\r\n"
    )
    right = head.encode() + b"Inference-Header-Content-Length: 10\r\nConnection: close\r\n\r\n" + body
    for _ in range(examples):
        content = bytearray(right)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(max(len(content), 1))
            kind = rng.randrange(5)
            if kind == 0 and content:
                content[place] = rng.randrange(256)
            elif kind == 1:
                del content[place : place + rng.randint(1, 40)]
            elif kind == 2:
                content[place:place] = rng.randbytes(rng.randint(1, 40))
            elif kind == 3:
                content[place:place] = content[place : place + 50]
            else:
                content = content[: max(place, 1)]
        if rng.random() < 0.2:
            content = bytearray(rng.randbytes(rng.randint(1, 300)))
        with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as one:
            one.sendall(content)
            one.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := one.recv(65536):
                    answer += part
            except ConnectionResetError:
                pass
        status = answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/") else "closed"
        found[status] += 1
        assert not status.startswith("5"), (bytes(content), answer[:300])
    return found


@pytest.mark.slow
def test_requests_by_the_schema_and_raw_bytes_are_answered_or_refused(server: Server) -> None:
    assert sum(by_schema(server, 60).values()) > 30
    assert sum(raw_bytes(server, 150).values()) == 150
    assert server.is_ready()


@pytest.mark.slow
def test_ten_thousand_requests_leave_the_server_as_it_was(server: Server) -> None:
    by_schema(server, 500)
    before = server.memory()
    found = by_schema(server, 6000), raw_bytes(server, 4000)
    after = server.memory()
    print(f"by schema {dict(found[0])}, raw {dict(found[1])}; memory {before:.0f} to {after:.0f} MB")
    assert sum(found[0].values()) + sum(found[1].values()) > 9000
    assert after - before < MOST_GROWTH
    assert server.is_ready()


@pytest.mark.slow
def test_the_log_holds_no_traceback(server: Server, tmp_path: Path) -> None:
    assert "Traceback" not in server.read_log()
