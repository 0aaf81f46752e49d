"""Runs combine where they are alike but for the seed, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from btfl.errors import InputError, StorageError
from btfl.report.accuracy import by_client
from btfl.report.groups import group_runs, load_runs
from btfl.report.tables import accuracy_notes
from btfl.storage import read_json, write_json
from drawn_runs import make_run

FEW: dict[str, Any] = {"methods": ("fedavg", "btfl"), "length": 8}


def test_seeds_combine_and_other_settings_stand_apart(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "a0", seed=0, alpha=0.1, **FEW),
        make_run(tmp_path / "a1", seed=1, alpha=0.1, **FEW),
        make_run(tmp_path / "b0", seed=0, alpha=1.0, **FEW),
        make_run(tmp_path / "c0", seed=0, alpha=0.1, model="resnet20", **FEW),
        make_run(tmp_path / "d0", seed=0, alpha=0.1, **{**FEW, "training": {"rounds": 9}}),
    ]
    groups = group_runs(load_runs(folders))
    assert [group.seeds for group in groups] == [[0, 1], [0], [0], [0]]
    assert [group.label for group in groups] == [
        "digits, mlp, Dir(0.1), rounds 2",
        "digits, mlp, Dir(1), rounds 2",
        "digits, resnet20, Dir(0.1)",
        "digits, mlp, Dir(0.1), rounds 9",
    ]
    assert len({group.slug for group in groups}) == 4


def test_a_run_from_before_there_was_a_defence_combines_with_undefended_ones_alone(tmp_path: Path) -> None:
    trainings: list[dict[str, Any]] = [{"rounds": 2}, *({"rounds": 2, "defence": name} for name in ("none", "screen"))]
    folders = [
        make_run(tmp_path / str(seed), seed=seed, **FEW, training=training) for seed, training in enumerate(trainings)
    ]
    assert "defence" not in read_json(folders[0] / "run.json")["training"]
    groups = group_runs(load_runs(folders))
    assert [group.seeds for group in groups] == [[0, 1], [2]]
    assert [group.label.rpartition(", ")[2] for group in groups] == ["defence none", "defence screen"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"split": "redrawn"}, "split is 'honest' in the one and 'redrawn' in the other"),
        ({"severity": 2}, "severity is '5' in the one and '2'"),
        ({"corruptions": ("fog", "snow")}, "corruptions is 'gaussian_noise"),
        ({"shift": "none"}, "other domain is 'printed digits' in the one and 'none'"),
        ({"partition": "equal"}, "partition is 'dirichlet' in the one and 'equal'"),
    ],
)
def test_streams_of_another_kind_are_refused_with_the_difference_named(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    folders = [make_run(tmp_path / "one", **FEW), make_run(tmp_path / "other", seed=1, **FEW, **change)]
    with pytest.raises(InputError, match=named) as caught:
        group_runs(load_runs(folders))
    assert "--apart" in str(caught.value)
    assert len(group_runs(load_runs(folders), apart=True)) == 2


def test_one_result_twice_is_refused_but_methods_of_one_seed_join(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name, seed=0, **FEW) for name in ("one", "again")]
    with pytest.raises(InputError, match="one result twice"):
        group_runs(load_runs(folders))
    other = make_run(tmp_path / "other", seed=0, length=8, methods=("personal",))
    (group,) = group_runs(load_runs([folders[0], other]))
    assert list(group.titles) == ["fedavg", "btfl", "personal"]
    assert group.seeds == [0]


def test_draws_of_the_streams_are_averaged_client_by_client(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(draw), draw=draw, **FEW) for draw in (0, 1)]
    apart = [group_runs(load_runs([folder]))[0] for folder in folders]
    assert apart[0].first.manifest_hash != apart[1].first.manifest_hash
    (group,) = group_runs(load_runs(folders))
    assert (group.seeds, group.draws) == ([0], 2)
    tables = [by_client(each.rows) for each in (group, *apart)]
    assert_frame_equal(tables[0], (tables[1] + tables[2]) / 2)
    assert any("mean over 2 draws" in line for line in accuracy_notes(group))
    assert not any("draws" in line for line in accuracy_notes(apart[0]))
    assert not any("sets of streams" in line for line in accuracy_notes(group))
    once = make_run(tmp_path / "once", length=8, methods=("personal",))
    (more,) = group_runs(load_runs([*folders, once]))
    assert any("Personal head was run on 1 of 2 sets of streams" in line for line in accuracy_notes(more))


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a finished run"):
        load_runs([tmp_path])
    run = make_run(tmp_path / "run", **FEW)
    (run / "results.parquet").write_bytes(b"torn")
    with pytest.raises(StorageError, match="damaged"):
        load_runs([run])
    (run / "run.json").write_text('{"kind": "btfl run", "version": 1}')
    with pytest.raises(StorageError, match="lacks run, experiment"):
        load_runs([run])
    (run / "run.json").write_text("{}")
    with pytest.raises(StorageError, match="is not a btfl run"):
        load_runs([run])


def test_methods_of_ones_own_and_of_older_runs_that_are_trained_after_loading_are_named(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run") / "run.json"
    record = read_json(path)
    record["notes"].append("Trained weights are those of zoo:small.")
    for method in record["methods"]:
        if method["name"] == "personal":
            method["steps_after_rounds"] = True  # as if it were somebody's own that says so
        else:
            del method["steps_after_rounds"]  # btfl 0.1 and 0.2 did not save it
    write_json(path, record)
    (group,) = group_runs(load_runs([path.parent]))
    assert group.may_differ == ["fedavg-ft", "personal"]
