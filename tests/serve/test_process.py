"""``btfl serve`` as users start it: from the zoo, with Triton's client and with curl, stopped and asked again."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")

from btfl import Coherent
from btfl.zoo.serving import entry_folder, load_serving
from server_process import Server, infer_body, sqlite

ENTRY = "cifar10-cnn-dir0.1-quick"
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(f"zoo:{ENTRY}", sqlite(tmp_path_factory.mktemp("zoo")), "--workers", "2") as one:
        yield one


def stream(samples: int = 40) -> np.ndarray:
    return np.maximum(np.random.default_rng(0).normal(size=(samples, 64)), 0.0)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_triton_s_client_drives_a_stream_and_gets_the_library_s_answers(server: Server, binary: bool) -> None:
    http: Any = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    utils: Any = pytest.importorskip("tritonclient.utils")
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("client-3")
    assert client.get_model_metadata("client-3")["inputs"][0]["shape"] == [-1, 64]
    features = stream()
    method = Coherent(load_serving(entry_folder(ENTRY)).bundles[3])
    expected = method.predict(features)
    wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in ("probabilities", "e", "all_external")]
    for place in range(0, len(features), 4):
        part = http.InferInput("features", [4, 64], "FP64")
        part.set_data_from_numpy(features[place : place + 4], binary_data=binary)
        answer = client.infer(
            "client-3",
            [part],
            outputs=wanted,
            sequence_id=11 + binary,
            sequence_start=place == 0,
            sequence_end=place == len(features) - 4,
            request_id=f"{place}",
        )
        assert np.abs(answer.as_numpy("probabilities") - expected[place : place + 4]).max() <= 1e-9
        for name in ("e", "all_external"):
            assert np.abs(answer.as_numpy(name) - method.trace[name][place : place + 4]).max() <= 1e-9
    with pytest.raises(utils.InferenceServerException, match="START"):
        client.infer("client-3", [part], sequence_id=11 + binary)
    client.close()


def test_images_give_the_features_that_the_network_gives(server: Server) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    images = np.random.default_rng(0).integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
    told = {"name": "images", "datatype": "UINT8", "shape": list(images.shape), "data": images.ravel().tolist()}
    status, said = server.ask("/v2/models/client-0/infer", json.dumps({"inputs": [told]}).encode())
    assert status == 200
    import onnxruntime

    serving = load_serving(entry_folder(ENTRY))
    (features,) = onnxruntime.InferenceSession(serving.extractor).run(["features"], {"images": images})
    expected = Coherent(serving.bundles[0]).predict(features.astype(np.float64))
    assert np.abs(np.array(json.loads(said)["outputs"][0]["data"]).reshape(2, 10) - expected).max() <= 1e-9


def test_the_line_of_the_readme_works_with_curl(server: Server) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    (command,) = re.findall(r"^(curl .*?/infer .*?'$)", README.read_text(), re.MULTILINE | re.DOTALL)
    words = shlex.split(command.replace("localhost:8000", f"127.0.0.1:{server.port}"))
    done = subprocess.run([curl, "--fail", "--silent", *words[1:]], capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert {one["name"] for one in told["outputs"]} == {"probabilities", "e", "log_tau", "all_external"}
    assert abs(sum(told["outputs"][0]["data"]) - 1) < 1e-9


def test_events_tell_of_a_stream_that_another_worker_served(server: Server) -> None:
    heard: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{server.url}/api/events", timeout=20) as events:

        def listen() -> None:
            for line in events:
                if line.startswith(b"data: "):
                    heard.append(json.loads(line[6:]))
                    if any(row["sequence"] == "heard" and row["version"] == 8 for row in heard[-1]["streams"]):
                        return

        listener = threading.Thread(target=listen)
        listener.start()
        for number in range(8):  # connections go to one worker or the other
            status, _ = server.ask("/v2/models/client-1/infer", infer_body(stream(1), "heard", start=number == 0))
            assert status == 200
        listener.join(20)
        assert not listener.is_alive()


def test_several_workers_share_their_metrics(server: Server) -> None:
    for _ in range(6):
        server.ask("/v2")
    counted = [server.ask("/metrics")[1].decode() for _ in range(4)]
    totals = [
        float(re.findall(r'^btfl_requests_total\{code="200",of="other"\} (\S+)', text, re.MULTILINE)[0])
        for text in counted
    ]
    assert totals == sorted(totals)
    assert totals[-1] >= 6


def test_a_memory_goes_on_after_a_stop_and_open_events_do_not_hold_it_up(tmp_path: Path) -> None:
    features, method = stream(3), Coherent(load_serving(entry_folder(ENTRY)).bundles[0])
    expected = method.predict(features)
    server = Server(f"zoo:{ENTRY}", sqlite(tmp_path)).start()
    server.ask("/v2/models/client-0/infer", infer_body(features[:2], "s", start=True))
    events = urllib.request.urlopen(f"{server.url}/api/events", timeout=30)
    assert events.readline()
    assert server.stop() in (0, -15)  # it ends as it was asked to, by the signal
    assert '"event":"stopped"' in server.read_log()
    events.close()
    assert "NO TOKENS ARE ASKED FOR" in server.read_log()
    with server:
        _, said = server.ask("/v2/models/client-0/infer", infer_body(features[2:], "s"))
    assert np.array(json.loads(said)["outputs"][0]["data"]).tolist() == expected[2].tolist()


def test_serving_needs_no_torch_and_no_pandas(tmp_path: Path) -> None:
    code = (
        "import sys; from btfl.serve.run import check; from btfl.serve.settings import ServeSettings\n"
        f"check('zoo:{ENTRY}', ServeSettings(database={sqlite(tmp_path)!r}, auth=False))\n"
        "print([name for name in ('torch', 'pandas', 'pyarrow', 'sklearn', 'PIL') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"POST /v2/models/client-0/infer HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"]
)
def test_a_connection_that_sends_no_whole_request_is_closed(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=40) as one:
        one.sendall(sent)
        while one.recv(1000):  # ends when the server closes; else the socket's own time limit fails the test
            continue
