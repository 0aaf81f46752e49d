"""An experiment: its settings are those of the parts it is made of, and what is wrong is said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from btfl.data.partition import PartitionSettings
from btfl.data.streams import StreamSettings
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.knobs import Knob, Settings
from btfl.recipes.settings import TrainingSettings

KNOBS = {knob.name: knob for knob in Experiment.knobs()}
SHARED: list[tuple[str, type[Settings], str]] = [
    ("seed", TrainingSettings, "seed"),
    ("clients", PartitionSettings, "clients"),
    ("partition", PartitionSettings, "kind"),
    ("alpha", PartitionSettings, "alpha"),
    ("shards", PartitionSettings, "shards"),
    ("split", PartitionSettings, "split"),
    ("severity", StreamSettings, "severity"),
    ("corruptions", StreamSettings, "corruptions"),
    ("longest_stream", StreamSettings, "longest"),
    ("model", TrainingSettings, "model"),
    ("model_options", TrainingSettings, "model_options"),
]


def what_is_said(knob: Knob) -> tuple[Any, ...]:
    return knob.type, knob.default, knob.help, knob.optional, knob.choices, knob.range


@pytest.mark.parametrize(("name", "settings", "there"), SHARED)
def test_a_setting_of_a_part_is_the_same_in_an_experiment(name: str, settings: type[Settings], there: str) -> None:
    (knob,) = (each for each in settings.knobs() if each.name == there)
    assert what_is_said(KNOBS[name]) == what_is_said(knob)


def test_every_setting_says_what_it_means() -> None:
    for settings in (Experiment, PartitionSettings, StreamSettings, TrainingSettings):
        for knob in settings.knobs():
            assert knob.help.endswith((".", "...")), knob.name


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"clients": 1}, "clients must be a whole number of at least 2, or none, not 1"),
        ({"clients": "many"}, "clients must be a whole number of at least 2, or none, not 'many'"),
        ({"alpha": 0}, "alpha must be a number above 0, not 0"),
        ({"severity": 6}, "severity must be a whole number from 1 to 5, not 6"),
        ({"longest_stream": 3}, "longest_stream must be a whole number of at least 4, or none, not 3"),
        ({"split": "honst"}, "Did you mean honest"),
        ({"methods": "btfl"}, "methods must be a list, not 'btfl'"),
        ({"methods": ["btlf"]}, "Did you mean btfl"),
        ({"corruptions": ["frst"]}, "or frost or"),
        ({"clinets": 3}, "unknown setting of an experiment 'clinets'. Did you mean clients"),
        ({"training": {"rounds": -1}}, "training: rounds must be a whole number of at least 0, not -1"),
        ({"training": {"round": 1}}, "unknown setting of training 'round'. Did you mean rounds"),
        ({"dataset_options": 3}, "dataset_options must be a table, not 3"),
        ({"switching": "yes"}, "switching must be true or false, not 'yes'"),
        ({"switching": 1}, "switching must be true or false, not 1"),
        ({"clients": True}, "clients must be a whole number of at least 2, or none, not True"),
        ({"training": {"seed": 1}}, "training: seed is a setting of the experiment itself"),
        ({"training": {"batch": 10**400}}, "training: batch must be a whole number of at least 1"),
        ({"model_options": {"seed": 1}}, "model_options: seed follows from"),
        ({"dataset": "digts"}, "Did you mean digits"),
        ({"model": "cnm"}, "Did you mean cnn"),
        ({"methods": ["btfl[test_batch=true]"]}, "test_batch is a number of samples"),
        ({"name": "../../x"}, "name is a word for a folder"),
    ],
)
def test_a_mistake_says_what_would_be_right(values: dict[str, Any], expected: str) -> None:
    with pytest.raises((InputError, UnknownNameError)) as raised:
        make_experiment(values)
    assert expected in str(raised.value)


def test_it_is_turned_into_the_settings_of_its_parts() -> None:
    experiment = make_experiment({"clients": 4, "alpha": 1, "severity": 3, "longest_stream": 9, "seed": 2, "draw": 1})
    assert experiment.partition_settings() == PartitionSettings(4, "dirichlet", 1.0, 2, "honest")
    assert experiment.stream_settings() == StreamSettings(3, longest=9)
    assert experiment.training_settings() == TrainingSettings(seed=2)
    assert experiment.stream_seed not in (2, make_experiment({"seed": 3}).stream_seed)
