"""Wrong command lines, drawn from a seed: each ends in a sentence and an exit code, never in a stack trace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from btfl.benchmark.run import run_bench
from btfl.cli import main
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.methods.registry import METHODS
from btfl.recipes.settings import TrainingSettings

LINES, SAMPLE = 300, 25
NOT_A_NUMBER = (
    "abc",
    "[1]",
    "{a=1}",
    "true",
    "nan",
    "-inf",
    "''",
    "1970-01-01",
    "0x",
    "1 2",
    "\udcff",
    "9" * 5000 + "x",
)
NOT_A_BOOL = ("yes", "no", "True", "FALSE", "on", "1", "0", "'true'", "[]", "maybe")
ODD = ("", " ", "\u2028", "☃", "\udcff\udcfe", "-", "--", "%s", "{}", "\x1b[31m", "../..", "/", "a" * 5000, "nul\tl")
TOMLS: tuple[bytes, ...] = (
    bytes(range(256)),
    "clients = 4".encode("utf-16"),
    'name = "Zürich"'.encode("latin-1"),
    b"\x00" * 50,
    b"x = " + b"[" * 5000,
    b"clients = " + b"9" * 5000,
    b"[training]\nseed = 3",
    b"[training]\nmodel = 'cnn'",
    b"training = 3",
    b"[training]\nrounds = 'many'",
    b"[training]\nbatch = [1]",
    b"seeds = ['a']",
    b"seeds = 3",
    b"runs = 3",
    b"[[runs]]\n[[runs.x]]\ny = 1",
    b"name = 3",
    b"name = '../../x'",
    b"name = ''",
    b"name = '/tmp/x'",
    b"name = 'a\\b'",
    b"name = '..'",
    b"methods = 'btfl'\nmodel = 3",
    b"methods = [1, 2]",
    b"methods = ['evil:Method']",
    b"methods = ['btfl[']",
    b"model = 'os:system'",
    b"model = '../../x'",
    b"dataset = '../x'",
    b"dataset = []",
    b"clients = true",
    b"switching = 'yes'",
    b"[model_options]\nseed = 3",
    b"model = 'mlp'\n[model_options]\nhidden = 'x'",
    b"[dataset_options]\nroot = 3",
    b"[dataset_options]\ncolour = 3",
    b"alpha = nan",
    b"alpha = 1979-05-27",
    b"clients = 1e400",
    b"= 3",
    b"drawing = true",
)


class Lines:
    """Draws wrong command lines; ``run`` is a finished run, and all else is made in ``folder``."""

    def __init__(self, seed: int, folder: Path, run: Path) -> None:
        self._rng, self._folder, self._run = Random(seed), folder, run
        (folder / "a-file").write_text("not a folder")
        (folder / "a-folder").mkdir(exist_ok=True)
        (folder / "a-folder.toml").mkdir(exist_ok=True)
        for number, content in enumerate(TOMLS):
            (folder / f"wrong-{number}.toml").write_bytes(content)
        self._kinds = (self._setting, self._option, self._method, self._toml, self._place, self._name, self._study)

    def __iter__(self) -> Iterator[list[str]]:
        while True:
            for kind in self._kinds:
                yield kind()

    def _setting(self) -> list[str]:
        knobs = [(each.name, each) for each in Experiment.knobs()]
        knobs += [(f"training.{each.name}", each) for each in TrainingSettings.knobs()]
        name, knob = self._rng.choice([(name, each) for name, each in knobs if each.type not in (str, Path)])
        value = self._rng.choice(NOT_A_BOOL if knob.type is bool else NOT_A_NUMBER)
        if knob.choices or knob.type in (dict, tuple):
            value = self._rng.choice(("3", "1.5", "true", "nan"))
        return [self._command(), "demo", "--set", f"{name}={value}"]

    def _option(self) -> list[str]:
        knobs = [each for each in Experiment.knobs() if each.type in (int, float) and not each.choices]
        flag = f"--{self._rng.choice(knobs).name.replace('_', '-')}"
        other = [["--set", "x"], ["--set", "=3"], ["--set", "training.rounds.x=3"], ["--set", "seed.x=1"], ["--set"]]
        wrong = self._rng.choice(["abc", "", "-5", "nan", "☃", "1e3x", "\udcff"])
        return [self._command(), "demo", *self._rng.choice([[flag, wrong], [flag, "5", flag, "6"], *other])]

    def _method(self) -> list[str]:
        method = self._rng.choice([name for name, one in METHODS.items() if one.method.knobs()])
        knob = self._rng.choice(METHODS[method].method.knobs())
        pool = ("abc", "[1]", "nan", "-1e999", "x=y", "☃", "1.5.2")
        text = self._rng.choice(
            [f"{method}[{knob.name}={self._rng.choice(pool)}]" if knob.type is not str else f"{method}[{knob.name}]",
             f"{method}[test_batch={self._rng.choice(('0', 'true', 'x', '1.5'))}]", f"{method}[global_head=3]",
             f"{method}[{knob.name}x=1]", f"{method}[", f"{method}]", f"[{method}]", "nowhere:Thing", "json:dumps",
             "btfl.cli:main", ":", "a:", "../x:Y", *ODD]
        )  # fmt: skip
        return ["bench", "demo", "--rounds", "0", "--method", text]

    def _toml(self) -> list[str]:
        number = self._rng.randrange(len(TOMLS))
        return [self._rng.choice(("bench", "train", "reproduce")), f"wrong-{number}.toml"]

    def _place(self) -> list[str]:
        place = self._rng.choice(["a-file", "a-file/x", "/proc/x", "/dev/null/x", "y" * 300, f"z/{'y' * 300}"])
        demo = ["demo", "--clients", "2", "--rounds", "0", "--method", "fedavg", "--workers", "1"]
        return self._rng.choice(
            [["bench", *demo, "--out", place], ["report", str(self._run), "--out", place],
             ["flower", "new", place, "demo"], ["zoo", "pack", str(self._run), "x", "--into", place],
             ["bench", "demo", "--dataset", "arrays", "--model", "mlp", "--root", place],
             ["bench", "demo", "--dataset", "folder", "--model", "mlp", "--root", place],
             ["bench", "a-folder.toml"], ["train", *demo[:-4], "--workers", "1", "--out", place]]
        )  # fmt: skip

    def _name(self) -> list[str]:
        odd = self._rng.choice(ODD)
        return self._rng.choice(
            [["bench", odd or "x"], ["bench", "--preset", odd], ["bench", "demo", "--dataset", odd or "x"],
             ["bench", "demo", "--model", odd or "x"], ["bench", "--from", f"zoo:{odd}"],
             ["bench", "--from", odd or "x"],
             ["train", "demo", "--recipe", odd], ["train", "demo", "--device", odd], ["methods", odd or "x"],
             ["data", "get", odd], ["data", "check", odd or "x"], ["reproduce", odd or "x"], ["reproduce", "figure2"],
             ["reproduce", "table2", "--scale", self._rng.choice(("0", "-1", "nan", "2", "x"))],
             ["speed", "--models", odd or "x"], ["speed", "--methods", odd or "x"], ["bnech"], ["bench", "--colour"],
             ["zoo", "pack", str(self._run), self._rng.choice(("../x", "/x", "", "..", "a/b", "x" * 300))],
             ["bench", "demo", "--name", self._rng.choice(("../x", "/x", " ", "..", "a/b", "x" * 300, "\udcff"))]]
        )  # fmt: skip

    def _study(self) -> list[str]:
        wrong = self._rng.choice(["a-file", "a-folder", "nowhere", "\udcff", "wrong-1.toml"])
        run = str(self._run)
        return self._rng.choice(
            [["scenarios", wrong], ["drift", wrong], ["report", wrong], ["export", wrong, "--onnx", "x.onnx"],
             ["scenarios", run, "--scenario", "x"], ["scenarios", run, "--method", "memo"],
             ["scenarios", run, "--length", "0"],
             ["drift", run, "--detector", "x"], ["export", run, "--onnx", "x.onnx", "--client", "99"],
             ["export", run, "--onnx", "x.onnx", "--recipe", "../x"], ["export", run],
             ["export", run, "--onnx", "a-folder"],
             ["export", run, "--onnx", "x.onnx", "--method", "tent"], ["zoo", "pack", wrong, "x"],
             ["bench", "--from", wrong],
             ["bench", "--from", run, "--seed", "3"], ["bench", "--from", run, "--out", run], ["report"]]
        )  # fmt: skip

    def _command(self) -> str:
        return self._rng.choice(("bench", "train"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"model": "mlp", "clients": 2, "samples": 200, "methods": ("fedavg",), "training": {"rounds": 0}}
    return run_bench(make_experiment(values), tmp_path_factory.mktemp("fuzz") / "run").folder


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a wrong command line; return what is wrong with how it ended, which should be nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))

    def say(words: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", ["btfl", *words])
        try:
            main()
        except SystemExit as stopped:
            said = capfd.readouterr()
            good = stopped.code in (1, 2) and "Traceback" not in said.out + said.err and said.err.strip()
            return "" if good else f"{words} ended with {stopped.code}: {(said.out + said.err)[-300:]}"
        except BaseException as error:
            return f"{words} raised {error!r}"
        return f"{words} did not end"

    return say


@pytest.mark.parametrize("count", [SAMPLE, pytest.param(LINES, marks=pytest.mark.slow)])
def test_a_wrong_command_line_is_a_sentence(count: int, attempt: Callable[..., str], tmp_path: Path, run: Path) -> None:
    lines = [line for line, _ in zip(Lines(count, tmp_path, run), range(count), strict=False)]
    wrong = list(filter(None, map(attempt, lines)))
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("run.json"))
    print(f"{count} wrong command lines, {len(wrong)} without a sentence of their own")
    assert not wrong, "\n".join(wrong)
