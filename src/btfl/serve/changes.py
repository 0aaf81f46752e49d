"""What a request changes: computed on a memory as it was read, before anything is written."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from numpy.typing import NDArray

from btfl.checks import printable
from btfl.serve.answers import Answer, pack_answer
from btfl.serve.model import Model, Step
from btfl.serve.refusal import RefusedError
from btfl.serve.schema import SIGNAL_COLUMNS
from btfl.serve.statements import Row
from btfl.serve.tensors import InferRequest

_TOLD_EVERY = 0.25  # seconds between two changes of a stream's time: less than watchers look back (``watching.py``)

Key = tuple[str, str, str]
"""Of a stream: tenant, model, sequence."""


class Change(NamedTuple):
    """What a request changes, computed and not yet written."""

    key: Key
    row: Row | None
    """The stream as it was read; None: it begins."""
    statement: str
    """How the stream is written: ``begin``, ``update``, or ``go on`` where only its memory and signals change."""
    values: dict[str, Any]
    note: dict[str, Any]
    """For the history."""
    answer: Answer
    step: Step

    def after(self, stream: int) -> Row:
        """Return the stream as it is once this is written."""
        told = self.values
        return Row(
            stream, self.answer.version, told["identity"], told["bundle"], told["state"], told["ended"], told["updated"]
        )


class Taken(NamedTuple):
    """What became of a request."""

    answer: Answer
    step: Step | None
    """None: it had been answered before, and this is the same answer."""
    conflicts: int
    """How often somebody else changed the stream in between."""


def judge(
    key: Key, row: Row | None, model: Model, asked: InferRequest, features: NDArray[Any], digest: bytes
) -> Change:
    """Judge the samples of a request, and return what that changes; ``row``: the stream as it was read."""
    state, memory = _memory_for(model, asked, row)
    step = model.step(features, state, asked.images)
    now, began = time.time(), ""
    if step.alarms:
        began = ",".join(dict.fromkeys(alarm.kind for alarm in step.alarms if alarm.begins))
    answer = Answer(step.outputs, 1 if row is None else row.version + 1, memory, step.alarmed, began)
    signals = {name: step.means.get(name) for name in SIGNAL_COLUMNS}
    values: dict[str, Any] = {
        "identity": model.identity,
        "bundle": model.sha256,
        "state": step.state,
        "ended": asked.end,
        "samples": step.seen,
        "alarmed": step.alarmed,
        "updated": now,
        **signals,
    }
    note: dict[str, Any] = {
        "stream": None if row is None else row.id,
        "version": answer.version,
        "request": asked.id or None,
        "digest": digest if asked.id else None,
        "answer": pack_answer(answer) if asked.id else None,
        "time": now,
        "samples": step.samples,
        "seen": step.seen,
        "alarmed": step.alarmed,
        "began": began,
        **signals,
    }
    if row is not None:
        values["of"], values["before"] = row.id, row.version
        if memory == "continued" and not step.alarms and not asked.end and now - row.updated < _TOLD_EVERY:
            values["updated"] = row.updated
            return Change(key, row, "go on", values, note, answer, step)
    values["began_now"] = sum(alarm.begins for alarm in step.alarms)
    values["turned"] = now if step.alarms else None
    values["started"] = now if asked.start or row is None else None
    if row is None:
        values |= zip(("tenant", "model", "sequence"), key, strict=True)
    return Change(key, row, "begin" if row is None else "update", values, note, answer, step)


def _memory_for(model: Model, asked: InferRequest, row: Row | None) -> tuple[bytes, str]:
    """Return the memory that a request is judged with, and what that is: new, continued, kept or reset.

    ``kept`` and ``reset`` tell of a bundle that was renewed: the memory is kept if the method, its settings and the
    number of classes are the same and it takes the memory back, else the stream begins again.
    """
    if asked.start:
        return model.fresh, "new"
    if row is None or row.ended:
        raise RefusedError(
            400,
            f"inference request for sequence {printable(asked.sequence, 40)} to model '{model.name}' must specify the "
            "START flag on the first request of the sequence (sequence_start)",
        )
    if row.identity != model.identity:
        return model.fresh, "reset"
    if row.bundle == model.sha256:
        return row.state, "continued"
    return (row.state, "kept") if model.can_restore(row.state) else (model.fresh, "reset")
