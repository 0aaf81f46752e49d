"""The exchange takes no more from a node than the training does: one door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from btfl import ClientBundle
from btfl.flower.exchange import LocalView, add_btfl, exchange
from btfl.flower.messages import to_record
from in_process_grid import InProcessGrid

BOMB = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999,)}".ljust(118)


def app(folder: Path) -> ClientApp:
    rng = np.random.default_rng(0)
    features, labels, head = rng.random((4, 6, 4)), np.array([0, 1, 1, 0, 1, 0]), (np.ones((2, 4)), np.zeros(2))
    made = ClientApp()

    def view(arrays: ArrayRecord, context: Context) -> LocalView:
        return LocalView(features[context.node_id - 100], labels, head, head)

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
