"""The example of a device: killed at any moment it goes on as if nothing had been, and it notices a foreign stream."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from btfl import Btfl, ClientBundle, Coherent
from btfl.monitor import Looks
from btfl.pixels.types import Images
from small import digits, train_small

ort = pytest.importorskip("onnxruntime", reason="the device loop needs `pip install onnxruntime`")
pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")

from btfl.export.write import export_split  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "examples" / "device" / "device_loop.py"
ABSENT = ["torch", "pandas", "pydantic", "typer", "rich", "sklearn", "onnx"]
CLIENT, OWN, FOREIGN = 1, 90, 110


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported client, and a camera that sees its own digits first and then others'."""
    folder = tmp_path_factory.mktemp("device")
    export_split(train_small("fedavg", rounds=5).client(CLIENT), folder / "extractor.onnx")
    np.savez(folder / "camera.npz", x=camera())
    return folder


def camera() -> Images:
    data = digits()
    parts = [data.partition.part_at(client, 0).test for client in range(4)]
    others = np.concatenate([part for client, part in enumerate(parts) if client != CLIENT])
    chosen = np.concatenate([parts[CLIENT][:OWN], np.random.default_rng(0).permutation(others)[:FOREIGN]])
    return np.asarray(data.source.pool.values[chosen])


def start(place: Path, folder: str, *more: str) -> subprocess.Popen[str]:
    blocked = f"import runpy, sys; sys.modules.update(dict.fromkeys({ABSENT})); sys.argv.pop(0)\n"
    code = blocked + "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = ["--extractor", "extractor.onnx", "--bundle", "extractor-bundle", "--folder", folder, *more]
    return subprocess.Popen(
        [sys.executable, "-c", code, str(SCRIPT), *words],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    return said


def answers(place: Path, folder: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / folder / "answers.jsonl").read_text().splitlines()]


def test_killed_and_restarted_it_gives_the_same_answers(place: Path) -> None:
    finish(start(place, "whole", "--images", "camera.npz"))
    for least in (20, 110):  # once among its own images, once among the others
        process = start(place, "broken", "--images", "camera.npz", "--pause", "0.02")
        file = place / "broken" / "answers.jsonl"
        while process.poll() is None and not (file.exists() and len(file.read_text().splitlines()) >= least):
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert len(file.read_text().splitlines()) < OWN + FOREIGN  # it was in the middle of its work
    with file.open("a") as torn:
        torn.write('{"sample": 9')  # as when the power goes while an answer is written
    assert "going on after" in finish(start(place, "broken", "--images", "camera.npz"))
    assert answers(place, "broken") == answers(place, "whole")
    states = [(place / name / "state.json").read_bytes() for name in ("broken", "whole")]
    assert states[0] == states[1]


@pytest.mark.parametrize("method", ["btfl", "coherent"])
def test_the_answers_are_the_librarys_and_the_flag_goes_up(place: Path, method: str) -> None:
    said = finish(start(place, f"flag-{method}", "--images", "camera.npz", "--method", method))
    session = ort.InferenceSession(str(place / "extractor.onnx"), providers=["CPUExecutionProvider"])
    features = np.concatenate([session.run(None, {"images": image[None]})[0] for image in camera()])
    bundle = ClientBundle.load(place / "extractor-bundle")
    adapter = Btfl(bundle) if method == "btfl" else Coherent(bundle)
    expected = adapter.predict(features)
    found = answers(place, f"flag-{method}")
    assert [answer["class"] for answer in found] == expected.argmax(axis=1).tolist()
    assert [answer["e"] for answer in found] == adapter.trace.e.tolist()
    up = [answer["external"] for answer in found]
    assert not any(up[:OWN])
    assert up.index(True) < OWN + 60
    assert up[-1]
    assert "the stream has turned external" in said
    assert "the flag is up" in said


def test_a_folder_of_pictures_is_a_stream_too(place: Path) -> None:
    picture = pytest.importorskip("PIL.Image")
    (place / "pictures").mkdir()
    for number, image in enumerate(camera()[:12]):
        picture.fromarray(image[..., 0]).save(place / "pictures" / f"{number:03d}.png")
    finish(start(place, "of pictures", "--images", "pictures"))
    finish(start(place, "of arrays", "--images", "camera.npz"))
    assert answers(place, "of pictures") == answers(place, "of arrays")[:12]


def test_what_does_not_fit_is_said(place: Path) -> None:
    np.savez(place / "large.npz", x=np.zeros((2, 32, 32, 3), np.uint8))
    (place / "empty").mkdir()
    for images, words, more in (
        ("large.npz", "the extractor takes uint8 (8, 8, 1)", ()),
        ("empty", "no pictures", ()),
        ("nowhere", "No such file or directory: 'nowhere'", ()),
        ("large.npz", "no btfl client bundle in nowhere", ("--bundle", "nowhere")),
        ("large.npz", "there is no extractor nowhere", ("--extractor", "nowhere")),
    ):
        process = start(place, "wrong", "--images", images, *more)
        _, wrong = process.communicate(timeout=300)
        assert process.returncode != 0
        assert words in wrong
        assert "Traceback" not in wrong


def test_a_camera_that_fails_is_an_alarm_at_its_first_frame(place: Path) -> None:
    data = digits()
    part, pool = data.partition.part_at(CLIENT, 0), data.source.pool.values
    looks = Looks.of(pool[part.train], pool[part.validation])
    looks.carried_by(ClientBundle.load(place / "extractor-bundle")).save(place / "with-looks")
    own = camera()[:40]
    failed = np.zeros((10, *own.shape[1:]), np.uint8)
    np.savez(place / "failing.npz", x=np.concatenate([own, failed, own]))
    said = finish(start(place, "failing", "--images", "failing.npz", "--bundle", "with-looks"))
    strange = [answer["strange"] for answer in answers(place, "failing")]
    assert strange.index(True) == 40
    assert all(strange[40:50])
    assert not strange[-1]
    assert "image 40: unlike all that this device has seen" in said
    assert "images look as usual again" in said
    process = start(place, "promised", "--images", "failing.npz", "--bundle", "with-looks", "--false-alarms", "2000")
    _, wrong = process.communicate(timeout=300)
    assert "rate must be" in wrong
    assert "Traceback" not in wrong
    finish(start(place, "as before", "--images", "failing.npz"))
    without = answers(place, "as before")  # the answers themselves are the same, and nothing is said of looks
    assert [answer["e"] for answer in without] == [answer["e"] for answer in answers(place, "failing")]
    assert not any("strange" in answer for answer in without)
