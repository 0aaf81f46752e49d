"""What training settings are written down as: older runs must still be recognised."""

from __future__ import annotations

from typing import Any

import pytest

from btfl.errors import InputError, UnknownNameError
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings

FIRST = {
    "model", "model_options", "rounds", "local_epochs", "personal_epochs", "finetune_epochs", "batch", "optimiser",
    "learning_rate", "momentum", "weight_decay", "augment", "feature_l1", "participation", "seed",
}  # fmt: skip


def test_defaults_are_written_down_as_in_the_first_runs() -> None:
    assert set(TrainingSettings().as_dict()) == FIRST
    assert set(TrainingSettings.for_model("cct4", precision="fp32", compile=False).as_dict()) == FIRST


@pytest.mark.parametrize(
    "change", [{"precision": "bf16"}, {"compile": True}, {"defence": "none"}, {"defence": "screen"}]
)
def test_what_changes_the_weights_is_written_down(change: dict[str, Any]) -> None:
    assert TrainingSettings(**change).as_dict() == {**TrainingSettings().as_dict(), **change}


def test_the_defence_that_is_left_to_btfl_compares_updates_wherever_the_server_sees_them() -> None:
    assert TrainingSettings().defence_in_force == "screen"
    assert TrainingSettings(privacy="summary").defence_in_force == "screen"
    assert TrainingSettings(secure=True).defence_in_force == "none"
    assert TrainingSettings(privacy="full").defence_in_force == "none"
    records = {"privacy": "full", "privacy_unit": "record", "privacy_mechanism": "dp-sgd", "client_samples": 50}
    assert TrainingSettings.make(**records).defence_in_force == "screen"
    assert TrainingSettings(defence="median").defence_in_force == "median"
    with pytest.raises(InputError, match="do not go together"):
        TrainingSettings(secure=True, defence="screen")


def test_left_to_btfl_the_defence_is_for_recipes_whose_updates_lean() -> None:
    """Rates that are learned after training, Gaussians and heads of the clients' own differ by far without a lie."""
    images = TrainingSettings.for_model("mlp")
    found = {name: make_recipe(name, images, (8, 8, 1), 10).defence for name in ("fedavg", "ditto", "atp", "fedrep")}
    assert found == {"fedavg": "screen", "ditto": "screen", "atp": "none", "fedrep": "none"}
    asked = TrainingSettings.for_model("mlp", defence="screen")
    assert make_recipe("atp", asked, (8, 8, 1), 10).defence == "screen"


def test_wrong_values_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="precision of training 'fp16'"):
        TrainingSettings.for_model("cnn", precision="fp16")
    with pytest.raises(InputError, match="precision must be one of 'fp32', 'bf16', not 16"):
        TrainingSettings.for_model("cnn", precision=16)
    with pytest.raises(InputError, match="compile must be true or false, not 'yes'"):
        TrainingSettings.for_model("cnn", compile="yes")
    with pytest.raises(InputError, match="participation must be a number above 0 and of at most 1, not 0"):
        TrainingSettings(participation=0)
    with pytest.raises(UnknownNameError, match="Did you mean rounds"):
        TrainingSettings.for_model("cnn", round=3)
