"""An npz, tree, tar and bundle from a stranger, each trying to execute code or write elsewhere: nothing happens."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from safetensors.numpy import save as safetensors

from btfl.benchmark.run import run_bench
from btfl.experiments.experiment import make_experiment
from btfl.storage import read_json, sealed

Said = Callable[..., str]
Attempt = Callable[[Path, Path], str]
"""(path of what is read, path of what must not be written) -> the sentence that the command says."""


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.marker,)


def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, "png")
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


IMAGES, LABELS = npy(np.zeros((4, 8, 8, 3), np.uint8)), npy(np.arange(4) % 2)


def npz(path: Path, **entries: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)


def a_pickle_as_npz(path: Path, marker: Path) -> str:
    path.write_bytes(pickle.dumps(Evil(marker)))
    return "is not an npz file"


def a_pickle_as_array(path: Path, marker: Path) -> str:
    npz(path, **{"x.npy": IMAGES, "y.npy": npy(np.array([Evil(marker)] * 4, dtype=object))})
    return "'y' is an object array, that is a pickle, which btfl does not open"


def a_name_that_leads_out(path: Path, marker: Path) -> str:
    npz(path, **{"x.npy": IMAGES, f"../../{marker.name}": b"", os.fspath(marker): b""})
    return "without labels|no array 'y'"


def code_in_a_header(path: Path, marker: Path) -> str:
    header = f"{{'descr': __import__('pathlib').Path({os.fspath(marker)!r}).touch(), 'shape': (4,)}}".ljust(245) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    npz(path, **{"x.npy": IMAGES, "y.npy": content})
    return "'y' is damaged"


def a_tree(path: Path, content: bytes, name: str = "2.png") -> None:
    (path / "ink" / "cat").mkdir(parents=True)
    (path / "ink" / "cat" / "1.png").write_bytes(picture())
    (path / "ink" / "cat" / name).write_bytes(content)


def postscript_in_a_tree(path: Path, marker: Path) -> str:
    program = f"({marker}) (w) file closefile\n".encode()
    a_tree(path, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n" + program + b"showpage\n%%EOF\n")
    return "ink/cat/2.png is broken or no image"


def a_pickle_in_a_tree(path: Path, marker: Path) -> str:
    a_tree(path, pickle.dumps(Evil(marker)))
    return "ink/cat/2.png is broken or no image"


def a_pipe_in_a_tree(path: Path, marker: Path) -> str:
    a_tree(path, b"")
    (path / "ink" / "cat" / "2.png").unlink()
    os.mkfifo(path / "ink" / "cat" / "2.png")
    return "2.png is not a regular file"


def modules_in_a_tree(path: Path, marker: Path) -> str:
    a_tree(path, b"no picture")
    for name in ("torch.py", "sitecustomize.py", "PIL.py", "__init__.py", "conftest.py"):
        (path / name).write_text(f"open({os.fspath(marker)!r}, 'w')")
    return "ink/cat/2.png is broken or no image"


def a_tar(path: Path, *members: tuple[str, bytes, str]) -> None:
    """Members by name, type and, for a link, where it leads; others are pictures."""
    with tarfile.open(path, "w") as tar:
        for name, kind, target in (("ink/cat/1.png", tarfile.REGTYPE, ""), *members):
            member, content = tarfile.TarInfo(name), picture() if kind == tarfile.REGTYPE else b""
            member.type, member.linkname, member.size = kind, target, len(content)
            tar.addfile(member, io.BytesIO(content))


def a_tar_that_climbs(path: Path, marker: Path) -> str:
    a_tar(path, (f"ink/cat/../../../{marker.name}", tarfile.REGTYPE, ""))
    return "which points outside of it; it was not opened"


def a_tar_with_a_path_from_the_root(path: Path, marker: Path) -> str:
    a_tar(path, (os.fspath(marker), tarfile.REGTYPE, ""))
    return "which points outside of it; it was not opened"


def a_tar_that_writes_through_its_link(path: Path, marker: Path) -> str:
    link = ("ink/dog", tarfile.SYMTYPE, os.fspath(marker.parent))
    a_tar(path, link, (f"ink/dog/{marker.name}", tarfile.REGTYPE, ""))
    return "which points outside of it; it was not opened"


NPZ = (a_pickle_as_npz, a_pickle_as_array, a_name_that_leads_out, code_in_a_header)
TREE = (postscript_in_a_tree, a_pickle_in_a_tree, a_pipe_in_a_tree, modules_in_a_tree)
TAR = (a_tar_that_climbs, a_tar_with_a_path_from_the_root, a_tar_that_writes_through_its_link)


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def check(attempt: Attempt, name: str, dataset: str, tmp_path: Path, btfl: Said) -> None:
    path, marker = tmp_path / "got" / name, tmp_path / "elsewhere" / "marker.png"
    path.parent.mkdir()
    marker.parent.mkdir()
    sentence = attempt(path, marker)
    before = everything(tmp_path)
    words = ("--dataset", dataset, "--root", os.fspath(path), "--shift", "none", "--workers", "1")
    said = btfl("bench", "demo", *words, ok=False)
    assert any(part in " ".join(said.split()) for part in sentence.split("|")), said
    assert everything(tmp_path) == before
    assert os.fspath(path) not in sys.path


@pytest.mark.parametrize("attempt", NPZ, ids=lambda one: one.__name__)
def test_an_npz(attempt: Attempt, tmp_path: Path, btfl: Said) -> None:
    check(attempt, "mine.npz", "arrays", tmp_path, btfl)


@pytest.mark.skipif(os.name == "nt", reason="needs pipes in the file system")
@pytest.mark.parametrize("attempt", TREE, ids=lambda one: one.__name__)
def test_a_tree(attempt: Attempt, tmp_path: Path, btfl: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **named: started.append(given))
    check(attempt, "tree", "folder", tmp_path, btfl)
    assert not started


@pytest.mark.parametrize("attempt", TAR, ids=lambda one: one.__name__)
def test_a_tar(attempt: Attempt, tmp_path: Path, btfl: Said) -> None:
    check(attempt, "mine.tar", "folder", tmp_path, btfl)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"model": "mlp", "clients": 2, "samples": 200, "methods": ("btfl",), "training": {"rounds": 0}}
    return run_bench(make_experiment(values), tmp_path_factory.mktemp("bundles") / "run").folder


def change(path: Path, **changes: object) -> None:
    """Change what a bundle's record says, with a hash that is right."""
    record = {key: value for key, value in read_json(path).items() if key != "record_sha256"}
    path.write_text(json.dumps(sealed({**record, **changes})))


def tensors_are_a_pickle(record: Path, marker: Path) -> str:
    content = pickle.dumps(Evil(marker))
    (record.parent / "x.safetensors").write_bytes(content)
    change(record, tensors="x.safetensors", sha256=hashlib.sha256(content).hexdigest())
    return "cannot be read as safetensors"


def tensors_are_elsewhere(record: Path, marker: Path) -> str:
    content = safetensors({"w": np.zeros(1)})
    (marker.parent / "x.safetensors").write_bytes(content)
    up = os.path.relpath(marker.parent, record.parent)
    change(record, tensors=f"{up}/x.safetensors", sha256=hashlib.sha256(content).hexdigest())
    return "does not name its tensors"


def tensors_are_code(record: Path, marker: Path) -> str:
    (record.parent / "x.py").write_text(f"open({os.fspath(marker)!r}, 'w')")
    change(record, tensors="x.py")
    return "does not name its tensors"


def fields_are_code(record: Path, marker: Path) -> str:
    evil = f"__import__('pathlib').Path({os.fspath(marker)!r}).touch()"
    change(record, fields={"local_entropy": evil, "metadata": {"__reduce__": evil, "model": "os:system"}})
    return "does not fit together|incomplete"


BUNDLE = (tensors_are_a_pickle, tensors_are_elsewhere, tensors_are_code, fields_are_code)


@pytest.mark.parametrize("attempt", BUNDLE, ids=lambda one: one.__name__)
def test_a_bundle(attempt: Attempt, finished: Path, tmp_path: Path, btfl: Said) -> None:
    run, marker = tmp_path / "got", tmp_path / "elsewhere" / "marker"
    shutil.copytree(finished, run)
    marker.parent.mkdir()
    [record, *_] = sorted((run / "training" / "fedavg" / "final").rglob("bundle.json"))
    sentence = attempt(record, marker)
    before = everything(tmp_path)
    for command in (("scenarios",), ("drift", "--draws", "1")):
        said = " ".join(btfl(*command, os.fspath(run), ok=False).split())
        assert any(words in said for words in sentence.split("|")), said
    assert everything(tmp_path) == before


def test_there_are_three_attempts_of_each_kind() -> None:
    kinds: Mapping[str, tuple[Attempt, ...]] = {"npz": NPZ, "tree": TREE, "tar": TAR, "bundle": BUNDLE}
    assert all(len(attempts) >= 3 for attempts in kinds.values())
