"""Real servers on loopback: a SuperLink and two SuperNodes train what one process does, to the bit.

Slow: Flower starts a Python process for every message, so each round takes 10 to 30 seconds on two cores.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from btfl.engines import FaultSettings, LocalEngine, train_federation
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.flower.task import FlowerTask
from btfl.runs.layout import client_name
from btfl.runs.trained import TrainedFederation, load_outcome

pytestmark = pytest.mark.slow
PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Place:
    """A folder with everything a deployment needs, and the address of its SuperLink."""

    folder: Path
    address: str
    tls: tuple[str, ...] = ()
    """How a server proves who it is; empty: it does not."""

    @property
    def environment(self) -> dict[str, str]:
        own = {"FLWR_HOME": str(self.folder / "flwr-home"), "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
        return {**os.environ, **own, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

    def do(self, *command: str, timeout: float = 600) -> str:
        """Run a command to its end; give what it printed."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def server(self, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program in a folder of its own, its output in a log there, until it is not needed any more."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield process
        finally:
            # The session is the process's own, so this ends it and what it has started, and nothing else.
            for how in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, how)
                    process.wait(10)

    @contextmanager
    def superlink(self, *options: str) -> Iterator[None]:
        host, port = self.address.split(":")
        common = ["--host", host, "--port", port, "--database", "superlink.db", *(self.tls or ["--insecure"])]
        with self.server(
            "server", "flower-superlink", *common, "--disable-runtime-dependency-installation", *options
        ) as process:
            deadline = time.monotonic() + 120
            while not _listens(self.address):
                assert process.poll() is None, (self.folder / "server" / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.5)
            yield

    def supernode(self, name: str, client: int, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        config = f"partition-id={client} num-partitions=2"
        return self.server(
            name, "flower-supernode", "--superlink", self.address, "--port", str(_free_port()), "--node-config", config,
            *(self.tls or ["--insecure"]), *options,
        )  # fmt: skip

    def collected(self, nodes: list[str]) -> TrainedFederation:
        """Bring together what the server and the nodes have been left with."""
        run = "digits-app-run"
        places = [self.folder / node / run / "clients" / client_name(client) for client, node in enumerate(nodes)]
        on_server = TrainedFederation.load(self.folder / "server" / run / "final")
        assert on_server.outcomes == (None, None)
        return replace(on_server, outcomes=tuple(load_outcome(place) for place in places))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def local_digest(rounds: int) -> str:
    experiment = make_experiment({**read_preset("demo"), "clients": 2, "training": {"rounds": rounds}})
    task = FlowerTask.of(experiment, "fedavg", "run", FaultSettings())
    return train_federation(*task.make(), LocalEngine()).digest()


def write_app(place: Place, rounds: int, connection: str, *options: str, clients: int = 2) -> None:
    (place.folder / "flwr-home").mkdir()
    text = f'[superlink.loopback]\naddress = "{place.address}"\n{connection}\n'
    (place.folder / "flwr-home" / "config.toml").write_text(text)
    new = ("btfl", "flower", "new", "digits-app", "--preset", "demo")
    place.do(*new, "--clients", str(clients), "--rounds", str(rounds), *options)


def test_a_superlink_and_two_supernodes_train_the_same_to_the_bit(tmp_path: Path) -> None:
    place = Place(tmp_path, f"127.0.0.1:{_free_port()}")
    write_app(place, 3, "insecure = true")
    with place.superlink(), place.supernode("node-0", 0), place.supernode("node-1", 1):
        said = place.do("flwr", "run", "digits-app", "loopback", "--stream")
        assert "round 3 of 3" in said
    assert place.collected(["node-0", "node-1"]).digest() == local_digest(3)


def test_a_run_that_lost_a_node_stops_and_goes_on_with_the_same_outcome(tmp_path: Path) -> None:
    place = Place(tmp_path, f"127.0.0.1:{_free_port()}")
    write_app(place, 3, "insecure = true", "--min-share", "1", "--time-limit", "120")
    app, log = str(tmp_path / "digits-app"), tmp_path / "run" / "log"
    run = ("flwr", "run", app, "loopback", "--stream")
    with place.superlink(), place.supernode("node-0", 0):
        with place.supernode("node-1", 1) as lost, place.server("run", *run):
            _wait_for("round 1 of 3", log)
            os.killpg(lost.pid, signal.SIGKILL)
            _wait_for("min_share = 1", log)
        said = log.read_text()
        assert "client 1 is left out of round 2" in said
        assert "round 2 of 3" not in said
        with place.supernode("node-1", 1):
            said = place.do(*run)
    assert "round 1 of 3" not in said
    assert "round 3 of 3" in said
    assert place.collected(["node-0", "node-1"]).digest() == local_digest(3)


def _wait_for(words: str, log: Path, limit: float = 300) -> None:
    deadline = time.monotonic() + limit
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)


def test_with_tls_and_node_authentication_a_node_without_a_registered_key_is_turned_away(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    tls = [f"--ssl-{option}=../certificates/{name}" for option, name in TLS_FILES.items()]
    place = Place(tmp_path, f"127.0.0.1:{_free_port()}", tuple(tls))
    write_app(place, 1, f'root-certificates = "{tmp_path / "certificates" / "ca.crt"}"')
    for name in ("node-0", "node-1", "stranger"):
        place.do("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", name + ".key")
    trust = ["--root-certificates", "../certificates/ca.crt"]

    def key(name: str) -> list[str]:
        return [*trust, "--auth-supernode-private-key", f"../{name}.key"]

    with place.superlink("--enable-supernode-auth"):
        for name in ("node-0", "node-1"):
            place.do("flwr", "supernode", "register", f"{name}.key.pub", "loopback")
        with place.supernode("stranger", 0, *key("stranger")) as with_a_key_of_its_own:
            assert with_a_key_of_its_own.wait(60) != 0
        with place.supernode("keyless", 0, *trust) as without_a_key:
            assert without_a_key.wait(60) != 0
        assert "Failed to activate SuperNode" in (tmp_path / "stranger" / "log").read_text()
        assert "All SuperNodes must be registered" in (tmp_path / "keyless" / "log").read_text()
        with place.supernode("node-0", 0, *key("node-0")), place.supernode("node-1", 1, *key("node-1")):
            place.do("flwr", "run", "digits-app", "loopback", "--stream")
    assert place.collected(["node-0", "node-1"]).digest() == local_digest(1)


TLS_FILES = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}


def make_certificates(folder: Path) -> None:
    """Make a certificate authority and a certificate for 127.0.0.1, as docs/flower.md does."""
    certificates = folder / "certificates"
    certificates.mkdir()
    (certificates / "server.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    new = "openssl req -newkey rsa:3072 -nodes"
    for command in (
        f"{new} -x509 -days 365 -subj /CN=btfl-authority -keyout ca.key -out ca.crt",
        f"{new} -subj /CN=127.0.0.1 -keyout server.key -out server.csr",
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 "
        "-extfile server.ext -out server.crt",
    ):
        subprocess.run(command.split(), cwd=certificates, check=True, capture_output=True)


def test_a_secure_sum_survives_a_node_that_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path, f"127.0.0.1:{_free_port()}")
    secure = ("--set", "training.secure=true", "--time-limit", "300")
    write_app(place, 2, "insecure = true", *secure, clients=4)
    run, log = ("flwr", "run", str(tmp_path / "digits-app"), "loopback", "--stream"), tmp_path / "run" / "log"
    with ExitStack() as stack:
        stack.enter_context(place.superlink())
        nodes = [stack.enter_context(place.supernode(f"node-{client}", client)) for client in range(4)]
        stack.enter_context(place.server("run", *run))
        _wait_for("round 1 of 2", log, 900)
        os.killpg(nodes[3].pid, signal.SIGKILL)
        _wait_for("btfl: describe", log, 1800)  # the sum after the last round, without the fourth
    said = log.read_text()
    assert "client 3 is left out of a secure sum" in said
    assert "round 2 of 2" in said
