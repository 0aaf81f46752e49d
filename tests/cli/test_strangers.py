"""A TOML file, run folder and zoo entry from a stranger: none of them runs code or writes outside its folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from btfl.benchmark.run import run_bench
from btfl.experiments.experiment import make_experiment
from btfl.storage import load_record, read_json, save_record, sealed, write_json
from btfl.zoo import start

Said = Callable[..., str]
MODULE = "evil_of_a_stranger"
CODE = f"{MODULE}:Thing"
REFUSED = "is not run because a file says so"
SMALL: dict[str, Any] = {
    "name": "small", "model": "mlp", "clients": 2, "samples": 200, "methods": ("btfl",), "training": {"rounds": 1},
}  # fmt: skip
SETTINGS = "".join(f"{key} = {json.dumps(SMALL[key])}\n" for key in ("model", "clients", "samples"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_bench(make_experiment(SMALL), tmp_path_factory.mktemp("strangers") / "run").folder


@pytest.fixture(autouse=True)
def marker(tmp_path: Path) -> Iterator[Path]:
    """The file that the stranger's module writes when it is imported: it stands in the working folder."""
    written = tmp_path / "marker"
    (tmp_path / f"{MODULE}.py").write_text(
        f"from pathlib import Path\nPath({str(written)!r}).touch()\ndef Thing(*args, **options): raise ValueError\n"
    )
    yield written
    sys.modules.pop(MODULE, None)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "got" / "run"))


def change_experiment(run: Path, **changes: Any) -> None:
    """Change the experiment a run names, with a hash that is right: a stranger can compute it, too."""
    record = {name: value for name, value in read_json(run / "run.json").items() if name != "record_sha256"}
    write_json(run / "run.json", sealed({**record, "experiment": {**record["experiment"], **changes}}))


def change_model(run: Path, model: str) -> None:
    """Name another model in the trained federation, with a hash that is right."""
    folder = run / "training" / "fedavg" / "final"
    fields, arrays = load_record(folder, "federation", *_kind(folder / "federation.json"))
    fields["spec"]["settings"]["model"] = model
    save_record(folder, "federation", *_kind(folder / "federation.json"), fields, arrays)


def _kind(path: Path) -> tuple[str, int]:
    record = read_json(path)
    return record["kind"], record["version"]


@pytest.mark.parametrize("named", [f'model = "{CODE}"', f'methods = ["{CODE}"]', f'methods = ["btfl", "{CODE}[k=3]"]'])
@pytest.mark.parametrize("command", [("bench",), ("train",), ("flower", "new", "app"), ("reproduce",)])
def test_a_file_that_names_code(named: str, command: tuple[str, ...], tmp_path: Path, btfl: Said, marker: Path) -> None:
    (tmp_path / "got.toml").write_text("clients = 2\n" + named)
    said = btfl(*command, "got.toml", ok=False)
    assert "got.toml names the" in said
    assert REFUSED in said
    assert "--trust-code" in said
    assert not marker.exists()


@pytest.mark.parametrize("changes", [{"model": CODE}, {"methods": [CODE]}, {"methods": ["btfl", f"{CODE}[a=1]"]}])
def test_a_run_that_names_code_is_no_start(
    changes: dict[str, Any], run: Path, tmp_path: Path, btfl: Said, marker: Path
) -> None:
    change_experiment(run, **changes)
    assert REFUSED in btfl("bench", "--from", str(run), ok=False)
    shutil.copytree(run, tmp_path / "entry")
    entry = {"kind": start.KIND, "version": 1, "name": "x", "recipes": {"fedavg": {"rounds": 1, "sha256": ""}}}
    write_json(tmp_path / "entry" / start.CARD, {**entry, "experiment": {**SMALL, **changes}})
    said = btfl("bench", "--from", "entry", ok=False)
    assert "entry names the" in said
    assert REFUSED in said
    assert not marker.exists()


@pytest.mark.parametrize("command", [("scenarios",), ("drift",)])
def test_a_run_that_names_a_model_is_not_studied(command: tuple[str, ...], run: Path, btfl: Said, marker: Path) -> None:
    change_experiment(run, model=CODE)
    assert REFUSED in btfl(*command, str(run), ok=False)
    assert not marker.exists()


@pytest.mark.parametrize("model", [CODE, "os:system", "subprocess:Popen"])
@pytest.mark.parametrize("command", [("scenarios", "--length", "4"), ("drift", "--draws", "1")])
def test_a_federation_that_names_a_model(
    model: str, command: tuple[str, ...], run: Path, btfl: Said, marker: Path
) -> None:
    change_model(run, model)
    said = btfl(*command, str(run), ok=False)
    assert f"names the model '{model}'" in said
    assert not marker.exists()


def test_a_federation_that_names_a_model_is_not_exported(run: Path, btfl: Said, marker: Path) -> None:
    pytest.importorskip("onnx")
    change_model(run, CODE)
    said = btfl("export", str(run), "--onnx", "x.onnx", ok=False)
    assert REFUSED in said
    assert "--trust-code" in said
    assert not marker.exists()


def test_modules_beside_the_files_are_not_found_in_place_of_installed_ones(tmp_path: Path, btfl: Said) -> None:
    for name in ("river", "pandas", "tensorboard", "onnx"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} ran')")
    (tmp_path / "got.toml").write_text("methods = ['btfl'")
    assert " ran" not in btfl("bench", "got.toml", ok=False)
    assert str(tmp_path) not in sys.path


def test_what_is_typed_or_trusted_is_imported(tmp_path: Path, btfl: Said, marker: Path) -> None:
    (tmp_path / "got.toml").write_text(f'model = "{CODE}"\nclients = 2\n')
    for words in (["--model", CODE], ["--set", f"model={CODE}"], ["--trust-code"]):
        said = btfl("train", "got.toml", "--workers", "1", *words, ok=False)
        assert REFUSED not in said
        assert marker.exists(), words
        assert str(tmp_path) not in sys.path
        marker.unlink()
        del sys.modules[MODULE]
    assert REFUSED in btfl("train", "got.toml", "--method", CODE.replace("Thing", "Other"), ok=False)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../../x", "/x", "..", "a/../../x", "a\\\\b", "", "x\\u0000y", "x" * 300])
@pytest.mark.parametrize("command", [("bench",), ("train",), ("flower", "new", "app")])
def test_a_name_stays_in_its_folder(name: str, command: tuple[str, ...], tmp_path: Path, btfl: Said) -> None:
    (tmp_path / "inside").mkdir()
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "got.toml").write_text(f'name = "{name}"\n{SETTINGS}')
    assert "name is a word for a folder" in btfl(*command, "got.toml", ok=False)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "got.toml"])


@pytest.mark.parametrize(
    "changes", [{"name": "../../x"}, {"recipes": {"../../x": {}}}, {"recipes": ["fedavg"]}, {"experiment": 3}]
)
def test_a_card_names_nothing_outside_its_entry(changes: dict[str, Any], tmp_path: Path, btfl: Said) -> None:
    card = {"kind": start.KIND, "version": 1, "name": "x", "experiment": SMALL, "recipes": {}}
    write_json(tmp_path / "entry" / start.CARD, {**card, **changes})
    assert "entry/card.json" in btfl("bench", "--from", "entry", ok=False)


def test_an_entry_is_packed_under_a_plain_name(run: Path, btfl: Said) -> None:
    assert "the name of an entry is a word" in btfl("zoo", "pack", str(run), "../x", "--into", "zoo", ok=False)


def test_nothing_is_written_through_links_in_a_run(run: Path, tmp_path: Path, btfl: Said) -> None:
    elsewhere, mine = tmp_path / "elsewhere", tmp_path / "mine.txt"
    elsewhere.mkdir()
    mine.write_text("not cut: it has no end of line")
    (run / "figures").symlink_to(elsewhere)
    assert "a link that leads out of" in btfl("report", str(run), ok=False)
    log = run / "training" / "fedavg" / "log.jsonl"
    log.unlink()
    log.symlink_to(mine)
    (tmp_path / "got.toml").write_text(f'name = "small"\nmethods = ["fedavg"]\n{SETTINGS}[training]\nrounds = 1\n')
    for command in ("bench", "train"):
        assert "a link that leads out of" in btfl(command, "got.toml", "--out", str(run), ok=False)
    assert mine.read_text() == "not cut: it has no end of line"
    assert not list(elsewhere.iterdir())
