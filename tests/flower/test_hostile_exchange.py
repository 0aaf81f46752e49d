"""The exchange takes no more from a node than the training does: one door."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from btfl import ClientBundle
from btfl.core.calibration import SHAPES
from btfl.engines.faults import FaultSettings
from btfl.flower.exchange import LocalView, add_btfl, exchange
from btfl.flower.messages import pack_result, to_record, unpack_result
from hostile import CALIBRATIONS
from in_process_grid import InProcessGrid
from variants import one_in

BOMB = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999,)}".ljust(118)


def app(folder: Path, validating: Collection[int] = ()) -> ClientApp:
    """Four clients of six samples; those that are ``validating`` have three more that were not trained on."""
    rng = np.random.default_rng(0)
    features, labels, head = rng.random((4, 6, 4)), np.array([0, 1, 1, 0, 1, 0]), (np.ones((2, 4)), np.zeros(2))
    made = ClientApp()

    def view(arrays: ArrayRecord, context: Context) -> LocalView:
        client = context.node_id - 100
        part = (features[client, :3] * 1.1, labels[:3]) if client in validating else None
        return LocalView(features[client], labels, head, head, validation=part)

    add_btfl(made, view, lambda context: folder / str(context.node_id))
    return made


def of_type(dtype: Any) -> Any:
    return lambda sums: {**sums, "zero_frequencies": np.zeros(4, dtype)}


LIES: dict[str, Any] = {
    **{str(dtype): of_type(dtype) for dtype in ("U5", "S3", "c16", "M8[s]", "V8", "f4", "f2", "i8", ">f8", "?")},
    "long double": lambda sums: {**sums, "class_feature_sums": np.full((2, 4), np.longdouble("1e4000"))},
    "unknown name": lambda sums: {**sums, "more\x1b[31m": np.full(3, np.nan)},
    "1e17 samples": lambda sums: {**sums, "class_counts": np.full(2, 5e16), "samples": np.full(1, 1e17)},
    "scatter of zero": lambda sums: {**sums, "feature_scatter": np.zeros((4, 4))},
    "nothing": lambda sums: {},
}


@pytest.fixture(scope="module")
def without_a_liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of an exchange in which node 102 has no validation part."""
    folder = tmp_path_factory.mktemp("without")
    honest = exchange(InProcessGrid(app(folder, (0, 1, 3)), range(4)), ArrayRecord(), 2, 4)
    assert honest.uncalibrated == {102: "it has no validation part"}
    return folder


@pytest.mark.parametrize("name", one_in(3, [*CALIBRATIONS, "a summary", "no content"]))
def test_a_node_that_lies_has_no_part_in_the_calibration(
    name: str, without_a_liar: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "one sample more than it was dealt":
        pytest.skip("the server of an exchange does not deal the samples: any number up to most_samples may be true")
    grid = InProcessGrid(app(tmp_path, range(4)), range(4))

    def lying(question: Message, reply: Message) -> Message:
        true = unpack_result("calibrate", reply.content)
        if name == "no content":
            empty = Message(RecordDict(), reply_to=question)
            empty.__dict__["_content"] = None  # as it arrives from a node that sent neither content nor error
            return empty
        if name == "a summary":
            return Message(RecordDict({"facts": ConfigRecord({"kind": "description"})}), reply_to=question)
        return Message(pack_result(CALIBRATIONS[name].lie(true)), reply_to=question)

    grid.script["query.btfl_calibrate", "", 2] = lying
    found = exchange(grid, ArrayRecord(), 2, 4, FaultSettings(most_samples=1000))
    assert found.kept == (100, 101, 102, 103)
    assert not found.failed
    assert list(found.uncalibrated) == [102]
    why = found.uncalibrated[102]
    assert why.isprintable()
    assert len(why) < 2000
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in told] == [f"node 102 has no part in the calibration: {why}"]
    assert found.total.calibration is not None
    assert found.total.calibration.samples == 9
    for node in found.kept:
        one, two = (ClientBundle.load(run / str(node)) for run in (tmp_path, without_a_liar))
        assert set(SHAPES) <= set(one.statistics)
        same = [name for name in one.statistics if node != 102 or not name.startswith("validation")]
        assert all((one.statistics[name] == two.statistics[name]).all() for name in same)


def check(folder: Path, content: Any, caplog: pytest.LogCaptureFixture, *, exact: bool = True) -> None:
    grid, reference = InProcessGrid(app(folder / "one"), range(4)), InProcessGrid(app(folder / "two"), [0, 1, 3])
    grid.script["query.btfl_describe", "", 2] = lambda question, reply: Message(content(reply), reply_to=question)
    found = exchange(grid, ArrayRecord(), classes=2, dimensions=4, exact=exact)
    exchange(reference, ArrayRecord(), classes=2, dimensions=4)
    assert found.kept == (100, 101, 103)
    assert list(found.failed) == [102]
    assert "node 102 is left out of the exchange" in caplog.text
    assert found.failed[102].isprintable()
    for node in found.kept:
        one, two = (ClientBundle.load(folder / run / str(node)) for run in ("one", "two"))
        assert all((array == two.statistics[name]).all() for name, array in one.statistics.items())
        assert (one.global_likelihood.frequencies == two.global_likelihood.frequencies).all()


@pytest.mark.parametrize("name", LIES)
def test_a_node_that_lies_is_left_out(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def content(reply: Message) -> RecordDict:
        sums = {key: array.numpy() for key, array in reply.content.array_records["upload"].items()}
        upload = to_record(LIES[name](sums))
        return RecordDict({"facts": ConfigRecord({"kind": "description"}), "upload": upload})

    check(tmp_path, content, caplog)
    if name != "scatter of zero":  # with noise, sums need not fit together
        caplog.clear()
        check(tmp_path / "noise", content, caplog, exact=False)


@pytest.mark.parametrize(
    "content",
    [
        lambda reply: RecordDict(),
        lambda reply: RecordDict({"facts": ConfigRecord({"kind": [1, 2]})}),
        lambda reply: RecordDict({"facts": ConfigRecord({"kind": "failure", "reason": b"\x1b[2J" * 10**5})}),
        lambda reply: RecordDict(
            {
                "facts": ConfigRecord({"kind": "description"}),
                "upload": ArrayRecord({"clients": Array("f8", (9,), "numpy.ndarray", BOMB)}),
            }
        ),
    ],
)
def test_an_answer_that_cannot_be_read_is_left_out(
    content: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, content, caplog)
