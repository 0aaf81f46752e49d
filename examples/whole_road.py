"""The whole road of a model: trained on Flower, put on a device, joined by a new device, renewed.

    python examples/whole_road.py FOLDER

1. Flower on loopback (a SuperLink and two SuperNodes) trains a federation of two clients on handwritten digits.
2. One node's client is exported, and a device without torch gives the same answers as torch does, to 1e-6.
3. A device that was never in the federation is enrolled with a handful of labels.
4. Training goes on for two more rounds.
5. Both devices are renewed, and go on with the memory that they have of their streams.

Needed: ``pip install 'btfl[train,flower,onnx]'`` and onnxruntime. It takes some minutes: Flower starts a Python process
for every message.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
APP, RUN = "digits-app", "digits-app-run"
DEVICE = Path(__file__).parent / "device" / "device_loop.py"
FIRST, MORE = 1, 2
ABSENT = ("torch", "pandas", "pydantic", "typer", "rich", "sklearn", "onnx", "flwr")


class Place:
    """A folder in which all of it happens, and the SuperLink's address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        own = {"FLWR_HOME": str(self.folder / "flwr-home"), "FLWR_TELEMETRY_ENABLED": "0"}
        self.environment = {**os.environ, **own, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}"}

    def do(self, *command: str) -> str:
        """Run a command to its end; return what it printed."""
        print("$", " ".join(str(word) for word in command)[:150], flush=True)
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    @contextmanager
    def server(self, name: str, *command: str) -> Iterator[None]:
        """Run a program in a folder of its own until it is not needed any more."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):  # its own session: this ends it and what it has started
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, how)
                    process.wait(10)

    @contextmanager
    def flower(self) -> Iterator[None]:
        """Run a SuperLink and two SuperNodes."""
        address = f"127.0.0.1:{self.port}"
        with ExitStack() as stack:
            stack.enter_context(
                self.server(
                    "server",
                    "flower-superlink",
                    "--insecure",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(self.port),
                    "--database",
                    "superlink.db",
                    "--disable-runtime-dependency-installation",
                )
            )
            deadline = time.monotonic() + 120
            while not _listens(self.port):
                if time.monotonic() > deadline:
                    raise SystemExit((self.folder / "server" / "log").read_text())
                time.sleep(0.5)
            for client in (0, 1):
                config = f"partition-id={client} num-partitions=2"
                stack.enter_context(
                    self.server(
                        f"node-{client}",
                        "flower-supernode",
                        "--insecure",
                        "--superlink",
                        address,
                        "--port",
                        str(_free_port()),
                        "--node-config",
                        config,
                    )
                )
            yield

    def train(self, rounds: int) -> None:
        """Have Flower train until there have been so many rounds."""
        settings = f"experiment.training.rounds={rounds}"
        said = self.do("flwr", "run", APP, "loopback", "--stream", "--run-config", settings)
        if f"round {rounds} of {rounds}" not in said:
            raise SystemExit(f"Flower did not come to round {rounds}:\n{said}")

    def btfl(self, *words: str) -> str:
        """Run a command of btfl's."""
        return self.do("btfl", *words)

    def device(self, name: str, camera: str) -> list[dict[str, object]]:
        """Let a device answer what its camera shows, without torch; return all its answers so far."""
        block = f"import runpy, sys; sys.modules.update(dict.fromkeys({ABSENT!r})); sys.argv.pop(0)\n"
        code = block + "runpy.run_path(sys.argv[0], run_name='__main__')"
        words = ["--extractor", f"{name}.onnx", "--bundle", f"{name}-bundle", "--images", camera, "--folder", name]
        self.do(sys.executable, "-c", code, str(DEVICE), *words, "--method", "coherent")
        return [json.loads(line) for line in (self.folder / name / "answers.jsonl").read_text().splitlines()]

    def export(self, rounds: int) -> None:
        """Put the model of this round on both devices: node 0's client, and the new device's bundle beside it."""
        client, final = f"node-0/{RUN}/clients/client-000000", f"server/{RUN}/final"
        self.btfl("export", client, "--federation", final, "--onnx", "seen.onnx", "--extractor-only")
        self.btfl("enrol", final, "--data", "own.npz", "--out", "new-bundle")
        (self.folder / "new.onnx").write_bytes((self.folder / "seen.onnx").read_bytes())
        for name in ("seen", "new"):
            told = json.loads((self.folder / f"{name}-bundle" / "bundle.json").read_text())
            found = told["fields"]["metadata"]["provenance"]["round"]
            assert found == rounds, f"{name} is of round {found}, not {rounds}"


def main() -> None:
    """Go the whole road."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where everything is kept; made if there is none")
    place = Place(parser.parse_args().folder)
    (place.folder / "flwr-home").mkdir(exist_ok=True)
    link = f'[superlink.loopback]\naddress = "127.0.0.1:{place.port}"\ninsecure = true\n'
    (place.folder / "flwr-home" / "config.toml").write_text(link)
    place.btfl("flower", "new", APP, "--preset", "demo", "--clients", "3", "--held-out", "0.34", "--rounds", str(FIRST))
    write_cameras(place.folder)

    with place.flower():
        place.train(FIRST)
    place.export(FIRST)
    agrees(place.folder, place.device("seen", "first.npz"))
    place.device("new", "first.npz")
    memories = {name: json.loads((place.folder / name / "state.json").read_text()) for name in ("seen", "new")}

    with place.flower():
        place.train(FIRST + MORE)
    place.export(FIRST + MORE)
    for name, before in memories.items():
        answers = place.device(name, "both.npz")  # begins with the images that it has seen already
        after = json.loads((place.folder / name / "state.json").read_text())
        seen, more = before["adapter"]["seen"], len(answers)
        assert after["adapter"]["seen"] == more > seen, "it has not gone on"
        assert after["provenance"]["round"] == FIRST + MORE
        print(f"{name}: renewed after {seen} images, has answered {more} with one memory", flush=True)
    print("the whole road: done")


def write_cameras(folder: Path) -> None:
    """Write what the devices see, and what the new one has labels of: samples of a client that was held out."""
    import numpy as np

    from btfl.experiments.experiment import make_experiment
    from btfl.experiments.files import read_preset
    from btfl.experiments.load import load_data

    data = load_data(make_experiment({**read_preset("demo"), "clients": 3, "held_out": 0.34}))
    pool, part = data.source.pool, data.partition.parts[-1]
    np.savez(folder / "first.npz", x=pool.values[part.test[:30]])
    np.savez(folder / "both.npz", x=pool.values[part.test[:60]])
    few = part.train[:20]
    np.savez(folder / "own.npz", x=pool.values[few], y=pool.labels[few], classes=np.array(data.source.classes))


def agrees(folder: Path, answers: list[dict[str, object]]) -> None:
    """Compare a device's answers with those of torch on the same images and the same bundle."""
    import numpy as np

    from btfl import ClientBundle, Coherent
    from btfl.export.enrolling import find_server

    with np.load(folder / "first.npz") as file:
        images = file["x"]
    features = find_server(str(folder / "server" / RUN / "final")).extract(images)
    method = Coherent(ClientBundle.load(folder / f"node-0/{RUN}/clients/client-000000"))
    by_torch = [float(method.predict(row[None])[0].max()) for row in features]
    difference = max(
        abs(float(str(answer["probability"])) - torch) for answer, torch in zip(answers, by_torch, strict=True)
    )
    assert difference < 1e-6, f"the device's answers differ from torch's by {difference:g}"
    print(f"without torch the answers are the same to {difference:.1g}", flush=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
