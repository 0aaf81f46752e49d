"""Arrays come through Flower's records bit for bit, and what cannot be read is a failure of whoever sent it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from btfl.core.summary import Summary
from btfl.engines.base import Broadcast, Failure, Job, Kept
from btfl.errors import InputError
from btfl.flower.messages import (
    from_record,
    pack_broadcast,
    pack_job,
    pack_result,
    to_record,
    unpack_job,
    unpack_result,
)
from btfl.recipes.base import Description, Update

FLOATS = hnp.arrays(
    st.sampled_from([np.float32, np.float64]), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
)


@given(st.dictionaries(st.text(min_size=1, max_size=12), FLOATS, max_size=4))
def test_arrays_come_through_bit_for_bit(arrays: dict[str, Any]) -> None:
    received = from_record(to_record(arrays))
    assert list(received) == list(arrays)
    for name, array in arrays.items():
        assert received[name].dtype == array.dtype
        assert received[name].shape == array.shape
        assert received[name].tobytes() == array.tobytes()


def test_a_job_comes_through_without_the_private_state() -> None:
    weights = {"w": np.arange(3, dtype=np.float32)}
    total = Summary.of(np.full((3, 2), 0.1), [0, 1, 1], classes=2)
    secret = {"head": np.full(2, 7.0, np.float32)}
    content = pack_job(Job("conclude", 4, 9, secret, since=2), "abc", pack_broadcast(Broadcast(weights, total)))
    broadcast, job, run = unpack_job(content)
    assert (job.task, job.client, job.round, job.private, job.since, run) == ("conclude", 4, 9, {}, 2, "abc")
    assert broadcast.shared["w"].tobytes() == weights["w"].tobytes()
    assert broadcast.everyone is not None
    for name, array in total.arrays.items():
        assert broadcast.everyone.arrays[name].tobytes() == array.tobytes()
    assert list(content.array_records) == ["shared", "everyone"]


def test_an_update_comes_through_without_the_private_state() -> None:
    secret = {"head": np.full(2, 7.0, np.float32)}
    sent = Update({"w": np.arange(3, dtype=np.float32)}, 17, secret, {"loss": 0.1})
    content = pack_result(sent)
    assert list(content.array_records) == ["upload"]
    received = unpack_result("train", content)
    assert isinstance(received, Update)
    assert (received.samples, received.metrics, received.private) == (17, {"loss": 0.1}, {})
    assert received.upload["w"].tobytes() == sent.upload["w"].tobytes()


def test_other_answers_come_through() -> None:
    summary = Summary.of(np.ones((4, 3)), [0, 1, 1, 0], classes=2)
    description = unpack_result("describe", pack_result(Description(summary, {"head": np.ones(1, np.float32)})))
    assert isinstance(description, Description)
    assert all((description.summary.arrays[name] == array).all() for name, array in summary.arrays.items())
    assert not description.private
    assert unpack_result("conclude", pack_result(Kept())) == Kept()
    assert unpack_result("train", pack_result(Failure("tired"))) == Failure("tired")


def packed(**arrays: Array) -> ArrayRecord:
    return ArrayRecord(arrays)


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.ones(2))
    return buffer.getvalue()


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


BOMB = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,)}".ljust(118)


@pytest.mark.parametrize(
    ("stype", "data"),
    [
        ("numpy.ndarray", b""),
        ("numpy.ndarray", b"not an array"),
        (
            "numpy.ndarray",
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,)}",
        ),
        ("numpy.ndarray", npz()),
        ("numpy.ndarray", pickled()),
        ("pickle", b"cos\nsystem\n(S'true'\ntR."),
    ],
)
def test_bytes_that_are_no_array_are_refused(stype: str, data: bytes) -> None:
    with pytest.raises(InputError, match="w "):
        from_record(packed(w=Array("float32", (2,), stype, data)))


FACTS = ConfigRecord({"kind": "update", "samples": 3})
UPLOAD = to_record({"w": np.ones(2, np.float32)})
METRICS = MetricRecord({"loss": 1.0})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"facts": FACTS}),
        RecordDict({"facts": FACTS, "upload": UPLOAD}),
        RecordDict({"facts": ConfigRecord({"kind": "update"}), "upload": UPLOAD, "metrics": METRICS}),
        RecordDict({"facts": ConfigRecord({"kind": "update", "samples": "3"}), "upload": UPLOAD, "metrics": METRICS}),
        RecordDict({"facts": ConfigRecord({"kind": "update", "samples": True}), "upload": UPLOAD, "metrics": METRICS}),
        RecordDict({"facts": ConfigRecord({"kind": "kept"}), "upload": UPLOAD}),
        RecordDict({"facts": METRICS, "upload": UPLOAD, "metrics": METRICS}),
        RecordDict({"facts": FACTS, "upload": packed(w=Array("f", (1,), "?", b"")), "metrics": METRICS}),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_failure(content: RecordDict) -> None:
    assert isinstance(unpack_result("train", content), Failure)
