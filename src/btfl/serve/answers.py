"""An answer as it is kept for a sender that asks again: the outputs as raw bytes, to the bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import orjson

from btfl.serve.model import Outputs


class Answer(NamedTuple):
    """What is answered."""

    outputs: Outputs
    version: int
    """Requests that changed the stream, this one included."""
    memory: str
    """Which memory it was judged with: ``new``, ``continued``, ``kept`` or ``reset``."""
    alarmed: str
    """Kinds of the alarms that are on after it."""
    began: str
    """Kinds of the alarms that began with it."""

    def parameters(self, sequence: str) -> dict[str, Any]:
        """Return what the answer says beside its outputs."""
        return {
            "sequence_id": sequence,
            "stream_version": self.version,
            "memory": self.memory,
            "alarm": self.alarmed,
            "alarm_began": self.began,
        }


def pack_answer(answer: Answer) -> bytes:
    """Return an answer as bytes: a line of JSON, and the arrays."""
    told = {
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in answer.outputs.items()],
        "rest": [answer.version, answer.memory, answer.alarmed, answer.began],
    }
    return b"".join([orjson.dumps(told), b"\n", *(array.tobytes() for array in answer.outputs.values())])


def unpack_answer(content: bytes) -> Answer:
    """Return what ``pack_answer`` was given."""
    header, _, raw = content.partition(b"\n")
    told, place, outputs = orjson.loads(header), 0, {}
    for name, dtype, shape in told["arrays"]:
        count = int(np.prod(shape))
        outputs[name] = np.frombuffer(raw, np.dtype(dtype), count, place).reshape(shape)
        place += outputs[name].nbytes
    return Answer(outputs, *told["rest"])
