"""What travels between server and clients: arrays and plain values in Flower's records, never pickle.

Arrays go as they are, every bit of them. What comes from the other side is not trusted: whatever cannot be read ends in
an ``InputError``.
"""

from __future__ import annotations

import io
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.core.calibration import Calibration
from btfl.core.summary import Summary
from btfl.engines.base import Broadcast, Failure, Job, Kept, Result
from btfl.errors import InputError
from btfl.recipes.base import Description, Update

INTRODUCE, TRAIN = "query.introduce", "train"
DESCRIBE, CALIBRATE, CONCLUDE = "query.describe", "query.calibrate", "query.conclude"
TYPES: Mapping[str, str] = {"train": TRAIN, "describe": DESCRIBE, "calibrate": CALIBRATE, "conclude": CONCLUDE}
"""Task of a job -> type of its message."""

_NUMPY = "numpy.ndarray"


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Wrap arrays for sending."""
    return ArrayRecord(OrderedDict((name, Array(np.asarray(array, order="C"))) for name, array in arrays.items()))


def from_record(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Unwrap arrays that were received."""
    return {name: _array(name, array) for name, array in record.items()}


def _array(name: str, array: Array) -> NDArray[Any]:
    if array.stype != _NUMPY:
        raise InputError(f"{printable(name, 80)} is packed as {printable(array.stype, 80)!r}, not as {_NUMPY!r}")
    try:
        _check_length(array.data)
        # Not numpy.load, which would also open an archive that someone sends instead of an array.
        return np.lib.format.read_array(io.BytesIO(array.data), allow_pickle=False)
    except Exception as error:  # whatever a stranger's bytes may cause
        raise InputError(f"{printable(name, 80)} cannot be read as an array: {printable(error, 200)}") from None


def _check_length(data: bytes) -> None:
    """Refuse a header that promises more than there is, before memory is asked for."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise InputError("its header does not fit its length")


def pack_broadcast(broadcast: Broadcast) -> dict[str, ArrayRecord]:
    """Return the records that every message of a round carries."""
    records = {"shared": to_record(broadcast.shared)}
    if broadcast.everyone is not None:
        records["everyone"] = to_record(broadcast.everyone.to_arrays())
    return records


def pack_job(job: Job, run: str, broadcast: Mapping[str, ArrayRecord]) -> RecordDict:
    """Return one client's message; its private state is not in it, since the client has it."""
    facts = ConfigRecord({"run": run, "task": job.task, "client": job.client, "round": job.round, "since": job.since})
    return RecordDict({**broadcast, "job": facts})


def unpack_job(content: RecordDict) -> tuple[Broadcast, Job, str]:
    """Read what the server sent: the broadcast, the job, and which run it belongs to."""
    facts = content.config_records["job"]
    arrays = {name: from_record(record) for name, record in content.array_records.items()}
    since = _whole(facts.get("since", 0))
    job = Job(cast("Any", facts["task"]), _whole(facts["client"]), _whole(facts["round"]), {}, since)
    everyone = Summary.from_arrays(arrays["everyone"]) if "everyone" in arrays else None
    return Broadcast(arrays["shared"], everyone), job, str(facts["run"])


def pack_result(result: Update | Description | Calibration | Kept | Failure) -> RecordDict:
    """Return the answer of a client; what is private is not in it."""
    if isinstance(result, Failure):
        return RecordDict({"facts": ConfigRecord({"kind": "failure", "reason": result.reason})})
    if isinstance(result, Kept):
        return RecordDict({"facts": ConfigRecord({"kind": "kept"})})
    if isinstance(result, Description):
        upload = to_record(result.summary.to_arrays())
        return RecordDict({"facts": ConfigRecord({"kind": "description"}), "upload": upload})
    if isinstance(result, Calibration):
        upload = to_record(result.to_arrays())
        return RecordDict({"facts": ConfigRecord({"kind": "calibration"}), "upload": upload})
    return RecordDict(
        {
            "facts": ConfigRecord({"kind": "update", "samples": int(result.samples)}),
            "upload": to_record(result.upload),
            "metrics": MetricRecord({name: float(value) for name, value in result.metrics.items()}),
        }
    )


def unpack_result(task: str, content: RecordDict) -> Result | Failure:
    """Read a client's answer to a task; one of the wrong kind, or not to be read at all, is a failure."""
    try:
        facts = content.config_records["facts"]
        kind = facts["kind"]
        if kind == "failure":
            return Failure(str(facts["reason"]))
        if (task, kind) == ("conclude", "kept"):
            return Kept()
        if (task, kind) == ("describe", "description"):
            return Description(Summary.from_arrays(from_record(content.array_records["upload"])))
        if (task, kind) == ("calibrate", "calibration"):
            return Calibration.from_arrays(from_record(content.array_records["upload"]))
        if (task, kind) == ("train", "update"):
            metrics = cast("Mapping[str, float]", dict(content.metric_records["metrics"]))
            upload = from_record(content.array_records["upload"])
            return Update(upload, _whole(facts["samples"]), metrics=metrics)
    except KeyError as error:
        return Failure(f"its answer lacks {error}")
    except InputError as error:
        return Failure(f"its answer was refused: {error}")
    except Exception as error:  # whatever a stranger's records may cause
        return Failure(f"its answer cannot be read: {type(error).__name__}: {error}")
    return Failure(f"it answered {task} with {kind!r}")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"a whole number is expected, not {printable(repr(value), 40)}")
    return value
