"""What operators are given: files that name each other rightly. No image is built here: that needs a Docker engine."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile: a word, and what follows it on its own and continued lines."""
    text = "\n".join(line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    whole = re.sub(r"\\\n\s*", " ", text)
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in whole.splitlines() if line.strip()]


def test_every_instruction_is_one_that_docker_knows_and_a_stage_begins_first() -> None:
    words = [word for word, _ in instructions()]
    known = "FROM WORKDIR COPY RUN ARG USER VOLUME EXPOSE ENV HEALTHCHECK ENTRYPOINT CMD"
    assert words[0] == "FROM"
    assert set(words) <= set(known.split())


def test_everything_that_is_copied_is_in_the_repository_or_in_an_earlier_stage() -> None:
    stages: list[str] = []
    for word, rest in instructions():
        if word == "FROM":
            stages += re.findall(r" AS (\w+)", rest)
        if word != "COPY":
            continue
        *sources, _ = [each for each in shlex.split(rest) if not each.startswith("--")]
        stage = re.match(r"--from=(\w+)", rest)
        if stage:
            assert stage.group(1) in stages
        else:
            assert all((ROOT / source).exists() for source in sources), rest


def test_what_the_wheel_is_built_from_is_copied_before_it_is_built() -> None:
    told = instructions()
    build = [word for word, _ in told].index("RUN")
    copied = " ".join(rest for word, rest in told[:build] if word == "COPY")
    project = (ROOT / "pyproject.toml").read_text()
    (readme,) = re.findall(r'^readme = "(.*)"', project, re.MULTILINE)
    assert {"pyproject.toml", "hatch_build.py", "src", readme} <= set(copied.split())
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in ("serve", "postgres"))


def test_the_image_does_not_run_as_root_and_starts_the_server() -> None:
    told = instructions()
    last = dict(told)
    assert last["USER"] not in ("root", "0")
    assert [word for word, _ in told].index("USER") < [word for word, _ in told].index("ENTRYPOINT")
    assert json.loads(last["ENTRYPOINT"])[:2] == ["btfl", "serve"]
    (source,) = json.loads(last["CMD"])
    assert (ROOT / "src/btfl/zoo" / source.removeprefix("zoo:") / "serving.json").is_file()


def test_files_that_the_compose_file_names_are_there() -> None:
    told: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert (DEPLOY / told["services"]["serve"]["build"]["dockerfile"].removeprefix("deploy/")).is_file()
    for name, service in told["services"].items():
        for volume in service.get("volumes", []):
            place = volume.partition(":")[0]
            assert (DEPLOY / place).exists() if place.startswith("./") else place in told["volumes"], (name, place)
        assert set(service.get("secrets", [])) <= set(told["secrets"])
        assert set(service.get("depends_on", {})) <= set(told["services"])


def test_words_of_the_systemd_unit_are_options_of_the_command() -> None:
    from typer.testing import CliRunner

    from btfl.cli.app import app

    unit = re.sub(r"\\\n\s*", " ", (DEPLOY / "btfl-serve.service").read_text())
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    options = [word for word in command.split() if word.startswith("--")]
    told = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    assert options
    assert all(option in told for option in options)
