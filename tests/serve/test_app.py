"""The app behind its door: the protocol, who may do what, what people see."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")

from asgi import Client
from btfl import Coherent
from btfl.serve.app import create_app
from btfl.serve.settings import ServeSettings
from btfl.serve.state import Serving
from fleet import DIMENSIONS, foreign, make_bundles, own, save_fleet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_fleet(tmp_path_factory.mktemp("fleet"))


@contextmanager
def serve(folder: Path, database: str, **changes: Any) -> Iterator[tuple[Serving, Client]]:
    settings = ServeSettings.make(**{"auth": False, "database": database, **changes})
    serving = Serving(str(folder), settings)
    client = Client(create_app(serving))
    try:
        yield serving, client
    finally:
        client.close()
        serving.close()


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def client(folder: Path, database: str) -> Iterator[Client]:
    with serve(folder, database) as (_, client):
        yield client


def body(array: np.ndarray, sequence: object = 7, **more: Any) -> dict[str, Any]:
    flags: dict[str, Any] = {k: more.pop(k) for k in ("sequence_start", "sequence_end") if k in more}
    parameters: dict[str, Any] = {"sequence_id": sequence, **flags}
    told = {"name": "features", "datatype": "FP64", "shape": list(array.shape), "data": array.ravel().tolist()}
    return {"inputs": [told], "parameters": parameters, **more}


def infer(client: Client, model: str, told: dict[str, Any], **headers: str) -> Any:
    return client.post(f"/v2/models/{model}/infer", content=json.dumps(told), headers=headers)


def output(answer: Any, name: str) -> np.ndarray:
    (found,) = (one for one in answer.json()["outputs"] if one["name"] == name)
    return np.array(found["data"]).reshape(found["shape"])


def test_answers_are_the_library_s(client: Client) -> None:
    stream = np.concatenate([own(1, 30), foreign(1, 10)])
    method = Coherent(make_bundles()[1])
    expected = method.predict(stream)
    for begin in (0, 8, 16, 24, 32):
        answer = infer(client, "client-1", body(stream[begin : begin + 8], sequence_start=begin == 0))
        assert answer.status_code == 200
        assert (output(answer, "probabilities") == expected[begin : begin + 8]).all()
        assert (output(answer, "all_external") == method.trace["all_external"][begin : begin + 8]).all()


def test_samples_without_a_sequence_are_judged_alone_and_not_remembered(client: Client) -> None:
    sample = own(0, 1)
    expected = Coherent(make_bundles()[0]).predict(sample)
    for _ in range(2):
        answer = infer(client, "client-0", body(sample, sequence=0))
        assert (output(answer, "probabilities") == expected).all()
        assert answer.json()["parameters"] == {"memory": "none"}
    assert client.get("/api/fleet").json()["totals"]["streams"] == 0


def test_outputs_can_be_chosen_and_unknown_ones_change_nothing(client: Client) -> None:
    answer = infer(client, "client-0", body(own(0, 1), sequence_start=True, outputs=[{"name": "e"}]))
    assert [one["name"] for one in answer.json()["outputs"]] == ["e"]
    refused = infer(client, "client-0", body(own(0, 1), outputs=[{"name": "f"}]))
    assert refused.status_code == 400
    assert infer(client, "client-0", body(own(0, 1))).json()["parameters"]["stream_version"] == 2


def test_the_protocol_s_other_questions(client: Client) -> None:
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").status_code == 200
    assert client.get("/v2").json()["name"] == "btfl"
    assert client.get("/v2/models/client-2/ready").status_code == 200
    assert client.get("/v2/models/client-2/versions/1").json()["inputs"][0]["shape"] == [-1, DIMENSIONS]
    assert client.get("/v2/models/client-2/versions/2").status_code == 404
    assert client.get("/v2/models/client-9").status_code == 404
    assert [one["name"] for one in client.post("/v2/repository/index").json()] == ["client-0", "client-1", "client-2"]
    assert infer(client, "client-9", body(own(0, 1))).status_code == 404


@pytest.mark.parametrize("name", ["../client-0", "%2e%2e%2fclient-0", "client-0%00", "os:system", "client-000000"])
def test_no_name_in_a_request_reaches_a_path_or_a_module(client: Client, name: str) -> None:
    assert infer(client, name, body(own(0, 1))).status_code in (404, 405)


def test_a_wrong_width_is_the_sender_s_mistake(client: Client) -> None:
    answer = infer(client, "client-0", body(np.ones((1, DIMENSIONS + 1))))
    assert answer.status_code == 400


def test_images_are_refused_where_there_is_no_extractor(client: Client) -> None:
    image = {"name": "images", "datatype": "UINT8", "shape": [1, 1, 1, 1], "data": [0]}
    assert infer(client, "client-0", {"inputs": [image]}).status_code == 400


def test_a_body_that_is_too_large_is_refused(folder: Path, database: str) -> None:
    with serve(folder, database, largest_body=2000, most_samples=5) as (_, client):
        assert client.post("/v2/models/client-0/infer", content=b" " * 2001).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b" " * 1000

        assert client.post("/v2/models/client-0/infer", content=chunks()).status_code == 413
        assert infer(client, "client-0", body(np.ones((6, 1)))).status_code == 413
        assert (
            client.post("/v2/models/client-0/infer", content=b"{}", headers={"Content-Encoding": "gzip"}).status_code
            == 415
        )


def test_without_tokens_another_page_cannot_use_the_browser_of_this_machine(client: Client) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "127.0.0.1.evil.example"}):
        assert client.get("/v2", headers=headers).status_code == 403
    assert client.get("/v2", headers={"Host": "127.0.0.1:8000", "Origin": "http://localhost:8000"}).status_code == 200


def test_the_fleet_shows_who_turned(client: Client) -> None:
    for number in range(40):
        infer(client, "client-0", body(own(0, 1, number), "calm", sequence_start=number == 0))
        infer(client, "client-1", body(own(1, 1, number), "turns", sequence_start=number == 0))
    for number in range(20):
        infer(client, "client-1", body(foreign(1, 1, number), "turns"))
    told = client.get("/api/fleet").json()
    assert told["totals"] == {"streams": 2, "alarmed": 1, "samples": 100}
    assert [(row["sequence"], row["alarmed"]) for row in told["streams"]] == [("turns", "external"), ("calm", "")]
    assert [row["sequence"] for row in client.get("/api/fleet?find=CALM").json()["streams"]] == ["calm"]
    assert client.get("/api/fleet?find=%25").json()["streams"] == []
    number = told["streams"][0]["id"]
    history = client.get(f"/api/streams/{number}").json()["history"]
    assert len(history) == 60
    (began,) = (point["seen"] for point in history if point["began"])
    assert 40 < began <= 60
    text = client.get("/metrics").text
    assert "btfl_alarmed_streams 1\n" in text
    assert 'btfl_alarms_total{kind="external"} 1.0' in text
    assert "client-1" not in text
    assert client.delete(f"/api/streams/{number}").status_code == 204
    assert client.get(f"/api/streams/{number}").status_code == 404


def test_models_are_named_in_metrics_if_that_is_asked_for(folder: Path, database: str) -> None:
    with serve(folder, database, label_models=True) as (_, client):
        infer(client, "client-0", body(own(0, 3), sequence_start=True))
        assert 'btfl_samples_total{model="client-0"} 3.0' in client.get("/metrics").text


def test_the_page_needs_nothing_from_elsewhere(client: Client) -> None:
    for path in ("/", "/page.css", "/page.js", "/favicon.svg"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "http://" not in answer.text.replace("http://www.w3.org", "")
        assert "https://" not in answer.text
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


def test_a_webhook_hears_of_an_alarm(folder: Path, database: str) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    heard: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Hook) as hook:
        Thread(target=hook.serve_forever, daemon=True).start()
        with serve(folder, database, webhook=f"http://127.0.0.1:{hook.server_port}/alarm") as (_, client):
            infer(client, "client-0", body(np.concatenate([own(0, 40), foreign(0, 20)]), sequence_start=True))
        hook.shutdown()
    (alarm,) = heard
    assert (alarm["model"], alarm["kind"], alarm["begins"]) == ("client-0", "external", True)
    assert 40 <= alarm["sample"] < 60


# Who may do what.


@pytest.fixture
def guarded(folder: Path, database: str) -> Iterator[tuple[Serving, Client]]:
    with serve(folder, database, auth=True) as both:
        yield both


def bearer(serving: Serving, *may: str, **told: Any) -> dict[str, str]:
    return {"Authorization": "Bearer " + serving.book.new(told.pop("name", "one"), may, **told)[0]}


GUARDED = [
    ("GET", "/v2"),
    ("GET", "/v2/models/client-0"),
    ("GET", "/v2/models/client-0/ready"),
    ("POST", "/v2/models/client-0/infer"),
    ("POST", "/v2/repository/index"),
    ("GET", "/api/fleet"),
    ("GET", "/api/streams/1"),
    ("DELETE", "/api/streams/1"),
    ("GET", "/api/events"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("verb", "path"), GUARDED)
def test_without_a_right_token_nothing_is_answered(guarded: tuple[Serving, Client], verb: str, path: str) -> None:
    serving, client = guarded
    right = bearer(serving, "read", "infer")["Authorization"]
    other = "A" if right[-1] != "A" else "B"
    wrong = [
        "",
        "Bearer",
        "Bearer x",
        "Basic x",
        right.replace("Bearer", "Basic"),
        right[:-1],
        right[:-1] + other,
        right + "x",
    ]
    for header in wrong:
        answer = client.request(verb, path, headers={"Authorization": header} if header else {})
        assert answer.status_code == 401
        assert set(answer.json()) == {"error"}


def test_a_token_may_do_what_it_says_and_no_more(guarded: tuple[Serving, Client]) -> None:
    serving, client = guarded
    reads, infers, rules = (bearer(serving, may) for may in ("read", "infer", "admin"))
    told = body(own(0, 1), sequence_start=True)
    assert infer(client, "client-0", told, **reads).status_code == 403
    assert infer(client, "client-0", told, **infers).status_code == 200
    assert client.get("/api/fleet", headers=infers).status_code == 403
    (row,) = client.get("/api/fleet", headers=reads).json()["streams"]
    assert client.delete(f"/api/streams/{row['id']}", headers=reads).status_code == 403
    assert client.delete(f"/api/streams/{row['id']}", headers=rules).status_code == 204


def test_one_token_cannot_see_another_s(guarded: tuple[Serving, Client]) -> None:
    serving, client = guarded
    one, two = (
        bearer(serving, "infer", "read", name=name, models=[model])
        for name, model in (("a", "client-0"), ("b", "client-[1-2]".replace("[1-2]", "*")))
    )
    assert infer(client, "client-0", body(own(0, 1), "s", sequence_start=True), **one).status_code == 200
    assert infer(client, "client-1", body(own(0, 1), "s"), **one).status_code == 404
    assert [each["name"] for each in client.post("/v2/repository/index", headers=one).json()] == ["client-0"]
    refused = infer(client, "client-0", body(own(0, 1), "s"), **two)  # the same model and name: another stream
    assert refused.status_code == 400
    assert "START" in refused.json()["error"]
    assert client.get("/api/fleet", headers=two).json()["streams"] == []
    assert client.get("/api/fleet", headers=two).json()["totals"]["samples"] == 0
    (mine,) = client.get("/api/fleet", headers=one).json()["streams"]
    assert client.get(f"/api/streams/{mine['id']}", headers=two).status_code == 404
    assert client.get(f"/api/events?stream={mine['id']}", headers=two).status_code == 404
    everyone = bearer(serving, "read", name="wall", tenant="*")
    assert len(client.get("/api/fleet", headers=everyone).json()["streams"]) == 1


def test_tokens_are_stored_as_hashes_alone(guarded: tuple[Serving, Client], tmp_path: Path) -> None:
    serving, client = guarded
    secret = bearer(serving, "read")["Authorization"][-43:]  # 32 random bytes; they may hold a "_" themselves
    assert client.get("/api/fleet", headers={"Authorization": "Bearer x"}).status_code == 401
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in stored


def test_a_revoked_or_expired_token_is_none(guarded: tuple[Serving, Client]) -> None:
    serving, client = guarded
    headers = bearer(serving, "read", name="gone")
    assert client.get("/api/fleet", headers=headers).status_code == 200
    (token,) = serving.book.all()
    serving.book.revoke(token.id)
    serving.book._known.clear()  # what would be believed for three seconds more
    assert client.get("/api/fleet", headers=headers).status_code == 401
    old = bearer(serving, "read", days=0.0)
    time.sleep(0.01)
    assert client.get("/api/fleet", headers=old).status_code == 401


def test_a_token_has_so_many_requests_a_second(folder: Path, database: str) -> None:
    with serve(folder, database, auth=True, requests_per_second=0.001, burst=3) as (serving, client):
        one, two = (bearer(serving, "read", name=name) for name in "ab")
        assert [client.get("/v2", headers=one).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        assert client.get("/v2", headers=two).status_code == 200


def test_readiness_follows_the_database(guarded: tuple[Serving, Client]) -> None:
    import sqlalchemy as sa

    serving, client = guarded
    assert client.get("/v2/health/ready").status_code == 200
    with serving.ledger.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE btfl_streams RENAME TO away"))
    serving._ready = (0.0, True)  # what would be believed for half a second more
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200
    with serving.ledger.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE away RENAME TO btfl_streams"))
    serving._ready = (0.0, False)
    assert client.get("/v2/health/ready").status_code == 200


def test_levels_that_did_not_come_with_a_bundle_are_found_once(tmp_path: Path, database: str) -> None:
    folder = save_fleet(tmp_path / "fleet", 1)
    (folder / "client-000000" / "monitor.json").unlink()
    with serve(folder, database) as (serving, _):
        (found,) = serving.models.values()
        assert found.found_levels
    with serve(folder, database) as (serving, _):
        (again,) = serving.models.values()
        assert not again.found_levels
        assert again.calibration == found.calibration
