"""The paper's printed numbers, and whether a run may be compared with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from btfl.pixels.corruptions import CORRUPTIONS
from btfl.runs.saved import SavedRun

METHODS: Mapping[str, str] = {
    "fedavg": "FedAvg",
    "fedavg-ft": "FedAvg+FT",
    "fedrep": "FedRep",
    "fedrod": "FedRoD",
    "knn-per": "kNN-Per",
    "fedthe": "FedTHE",
    "fedthe-release": "FedTHE",
    "ttt": "TTT",
    "ttt-release": "TTT",
    "memo": "MEMO",
    "btfl": "BTFL",
    "btfl-release": "BTFL",
}
"""Our methods by the paper's names; a release variant is compared with the same row."""

MISPRINTS: Mapping[tuple[str, float, str, str], str] = {
    ("imagenet32", 1.0, "FedAvg", "synthetical"): "printed as 40.54, but the row's average needs 47.55",
}
"""Printed cells that do not add up, by dataset, Dirichlet, method and stream."""


@dataclass(frozen=True)
class Setup:
    """What the paper ran a dataset with."""

    shift: str
    clients: int
    rounds: int
    batch: int = 32


SETUPS: Mapping[str, Setup] = {
    "cifar10": Setup("CIFAR-10.1", 20, 130),
    "officehome": Setup("the fourth domain", 10, 50),
    "imagenet32": Setup("ImageNet-R", 10, 100, 128),
}


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it."""

    accuracy: float
    std: float | None
    misprint: str | None = None


@cache
def accuracy_table() -> pd.DataFrame:
    """Return the paper's accuracy in %, by dataset, model, heterogeneity, method and stream."""
    with (resources.files("btfl.report") / "printed" / "tables.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@cache
def sha256() -> str:
    """Return the sha256 of the table of accuracies."""
    return hashlib.sha256((resources.files("btfl.report") / "printed" / "tables.csv").read_bytes()).hexdigest()


@cache
def speed_table() -> pd.DataFrame:
    """Return the paper's seconds for 1,000 samples at batch 1, by model and method."""
    with (resources.files("btfl.report") / "printed" / "speed.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def printed(dataset: str, model: str, alpha: float, method: str) -> dict[str, Printed]:
    """Return a row of the paper's tables by stream; empty where it printed none."""
    table = accuracy_table()
    rows = table[
        (table["dataset"] == dataset)
        & (table["model"] == model)
        & (table["dirichlet"] == alpha)
        & (table["method"] == method)
    ]
    return {
        stream: Printed(
            float(accuracy),
            None if pd.isna(std) else float(std),
            MISPRINTS.get((dataset, alpha, method, stream)),
        )
        for stream, accuracy, std in zip(rows["distribution"], rows["accuracy"], rows["std"], strict=True)
    }


def paper_row(run: SavedRun, method: str, test_batch: int) -> dict[str, Printed]:
    """Return the paper's row for a method of a run, by dataset, model, heterogeneity and batch; empty if none."""
    experiment = run.experiment
    name = METHODS.get(method.split("[")[0])
    if name is None or experiment["partition"] != "dirichlet" or not _settings_are_test_batch(method):
        return {}
    model = paper_model(experiment)
    dataset, alpha = str(run.record["data"]["source"]), float(experiment["alpha"])
    if test_batch == 1:
        model = f"{model}@batch1"
    return printed(dataset, model, alpha, name)


def paper_model(experiment: Mapping[str, Any]) -> str:
    """Return the paper's name for a model."""
    width = experiment["model_options"].get("width", 1)
    if experiment["model"] == "resnet20":
        return f"resnet20-gn-w{width}" if width != 1 else "resnet20-gn"
    return str(experiment["model"])


def differences(run: SavedRun) -> list[str]:
    """Return, as phrases, in what a run differs from the paper's own."""
    setup = SETUPS.get(str(run.record["data"]["source"]))
    if setup is None:
        return []
    experiment, training, data = run.experiment, run.record["training"], run.record["data"]
    found = []
    for what, ours, theirs in (
        ("clients", experiment["clients"], setup.clients),
        ("rounds", training["rounds"], setup.rounds),
        ("training batch", training["batch"], setup.batch),
        ("local epochs", training["local_epochs"], 5),
        ("severity", experiment["severity"], 5),
    ):
        if ours != theirs:
            found.append(f"{what} {ours}, not {theirs}")
    if experiment.get("samples"):
        found.append(f"{data['images']:,} images instead of the whole dataset")
    if experiment.get("longest_stream"):
        found.append(f"streams cut to {experiment['longest_stream']:,} samples")
    if len(experiment["corruptions"]) != len(CORRUPTIONS):
        found.append(f"{len(experiment['corruptions'])} kinds of corruption, not {len(CORRUPTIONS)}")
    if data["shift"] is None:
        found.append(f"no other domain in B and D, where the paper has {setup.shift}")
    elif not str(data["shift"]).lower().startswith(setup.shift.lower()) and setup.shift[0].isupper():
        found.append(f"the other domain is {data['shift']}, not {setup.shift}")
    if experiment["split"] == "honest":
        found.append("honest split; the published procedure also trains on images it tests on")
    return found


def _settings_are_test_batch(method: str) -> bool:
    """Whether a variant changes nothing but the test batch: any other change is another method."""
    inner = method.partition("[")[2].rstrip("]")
    return all(part.split("=")[0].strip() == "test_batch" for part in inner.split(",") if part)
