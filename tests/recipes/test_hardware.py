"""Precision, compiler and device: they change how an extractor is trained, never what is measured of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.engines import LocalEngine
from btfl.errors import InputError, UnknownNameError
from btfl.models import build, load_arrays, to_arrays
from btfl.models.forward import extract
from btfl.recipes import hardware, training
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from small import digits

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def enlarged(start: int, end: int) -> Samples:
    """Digits of twice the size, which the cnn can take."""
    pool = digits().source.pool
    return Samples(pool.values[start:end].repeat(2, axis=1).repeat(2, axis=2), pool.labels[start:end])


def compare(*recipes: str, **change: Any) -> dict[str, dict[str, float]]:
    """One client's round with and without a change: how far weights and loss are apart, for each recipe."""
    data, found = ClientData(0, enlarged(0, 160), enlarged(160, 200)), {}
    for name in recipes:
        updates = []
        for changes in ({}, change):
            settings = TrainingSettings.for_model("cnn", rounds=1, local_epochs=2, **changes)
            recipe = make_recipe(name, settings, (16, 16, 1), 10)
            updates.append(recipe.train(1, recipe.initial(), {}, data))
        # What is uploaded; where nothing is, the network that stays with the client.
        plain, changed = (update.upload or update.private for update in updates)
        first = recipe.initial() or to_arrays(training.first_network(recipe))
        assert all(array.dtype == np.float32 for array in changed.values())
        apart = max(float(np.abs(plain[key] - changed[key]).max()) for key in plain)
        moved = max(float(np.abs(plain[key] - first[key]).max()) for key in plain)
        losses = [update.metrics["loss"] for update in updates]
        found[name] = {"apart": apart / moved, "loss": abs(losses[1] - losses[0]) / losses[0]}
    return found


def features_differ(**change: Any) -> float:
    """The largest difference that a change makes to the features in evaluation mode."""
    settings = TrainingSettings.for_model("cnn", **change)
    recipe = make_recipe("fedavg", settings, (16, 16, 1), 10)
    network, plain = training.workbench(recipe), build("cnn", (16, 16, 1), 10, 0)
    load_arrays(network, to_arrays(plain))
    images = enlarged(0, 64).values
    plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return float(np.abs(extract(network, images) - extract(plain, images)).max())


SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import test_hardware as here
from btfl.recipes.registry import RECIPES
print(json.dumps([here.compare(*RECIPES, precision="bf16"), here.features_differ(precision="bf16")]))
"""


@pytest.mark.slow
def test_bf16_trains_nearly_the_same_weights_in_every_recipe_and_measures_exactly_the_same() -> None:
    # In a process of its own: the processor may not do what it announces, see hardware.check_hardware.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"}
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    command = [sys.executable, "-c", SCRIPT, *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    recipes, features = json.loads(done.stdout)
    for name, found in recipes.items():
        assert 0 < found["apart"] < 0.2, name
        assert found["loss"] < 0.05, name
    assert features == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
def test_compiled_training_gives_nearly_the_same_weights_and_measures_exactly_the_same() -> None:
    try:
        hardware.check_hardware(TrainingSettings(compile=True))
    except InputError as error:
        pytest.skip(str(error))
    counted = torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    found = compare("fedavg", compile=True)["fedavg"]
    after = counted["unique_graphs"]
    assert after > before
    assert found["apart"] < 0.01
    assert found["loss"] < 0.001
    assert features_differ(compile=True) == 0
    assert counted["unique_graphs"] == after


def test_a_processor_that_kills_bf16_is_found_out_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_BF16_TRIAL", DIES)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    settings = TrainingSettings.for_model("mlp", precision="bf16")
    recipe = make_recipe("fedavg", settings, (8, 8, 1), 10)
    with (
        pytest.raises(InputError, match=r"ended with SIGILL.* set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"),
        LocalEngine().open(recipe, digits()),
    ):
        pass
    with pytest.raises(InputError, match="SIGILL"):  # on a Flower client, which no local engine looks after
        training.workbench(recipe)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    with pytest.raises(InputError, match=r"the cause, leave the precision at fp32$"):
        training.workbench(recipe)


def test_a_machine_without_a_compiler_is_found_out_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_COMPILE_TRIAL", "raise RuntimeError('no C++ compiler')")
    with pytest.raises(InputError, match=r"RuntimeError: no C\+\+ compiler.*leave compile at false"):
        hardware.check_hardware(TrainingSettings(compile=True))


def test_defaults_try_nothing_and_leave_the_extractor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_try", lambda script: pytest.fail("a trial was made"))
    recipe = make_recipe("fedavg", TrainingSettings.for_model("mlp"), (8, 8, 1), 10)
    assert "forward" not in vars(training.workbench(recipe).extractor)


def test_devices_by_name() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean cpu"):
        LocalEngine(device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            LocalEngine(device="cuda")
