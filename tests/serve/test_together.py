"""Requests that are there at once share a transaction: each is in the memory once, and answered after it is there."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="btfl[serve] is not installed")

from btfl import Coherent
from btfl.monitor import MonitorSettings, calibrate, own_features
from btfl.serve.changes import Change, Taken
from btfl.serve.ledger import Ledger
from btfl.serve.model import Model
from btfl.serve.refusal import RefusedError
from btfl.serve.source import Served
from btfl.serve.together import Together
from fleet import asking, make_bundles, own

BUNDLE = make_bundles()[0]
MODEL = Model(
    Served("client-0", BUNDLE, "one", calibrate(Coherent(BUNDLE), own_features(BUNDLE), drawn=4000)),
    "coherent",
    MonitorSettings(),
)
STREAM = own(0, 40)
EXPECTED = Coherent(BUNDLE).predict(STREAM)


class Counting(Ledger):
    """A ledger that notes how many requests each of its transactions holds, and fails when it is told to."""

    def __init__(self, folder: Path, alone: bool = True) -> None:
        super().__init__(f"sqlite:///{folder / 'memory.db'}", alone=alone)
        self.sizes: list[int] = []
        self.fails = False

    def write(self, changes: Sequence[Change]) -> bool:
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        self.sizes.append(len(changes))
        return super().write(changes)


def ask(together: Together, sequence: str, place: int, id: str = "") -> Awaitable[Taken]:  # noqa: A002
    part = STREAM[place : place + 1]
    return together.take(MODEL, "local", asking(part, sequence, id=id, start=place == 0), part, part.tobytes()[:16])


def together(*asked: Awaitable[Taken]) -> list[Taken]:
    """Wait for requests that are there at once."""

    async def all_of_them() -> list[Taken]:
        return list(await asyncio.gather(*asked))

    return asyncio.run(all_of_them())


def refused(*asked: Awaitable[Taken]) -> list[RefusedError]:
    """Wait for requests that are all refused."""

    async def all_of_them() -> list[Taken | BaseException]:
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(all_of_them())
    return [one for one in found if isinstance(one, RefusedError)]


@pytest.mark.parametrize("alone", [True, False])
def test_streams_that_come_at_once_share_a_transaction_and_answer_as_the_library(tmp_path: Path, alone: bool) -> None:
    ledger = Counting(tmp_path, alone)
    group = Together(ledger)
    for place in range(10):
        ledger.sizes.clear()
        answers = together(*(ask(group, f"s{stream}", place) for stream in range(4)))
        assert ledger.sizes == ([4] if place else [1, 1, 1, 1])  # a stream that begins is taken by itself
        for taken in answers:
            assert taken.answer.version == place + 1
            assert (taken.answer.outputs["probabilities"] == EXPECTED[place]).all()
    ledger.close()
    again = Counting(tmp_path)  # what was answered is in the file
    (taken,) = together(ask(Together(again), "s2", 10))
    assert (taken.answer.outputs["probabilities"] == EXPECTED[10]).all()
    again.close()


@pytest.mark.parametrize("alone", [True, False])
def test_requests_of_one_stream_that_come_at_once_follow_each_other(tmp_path: Path, alone: bool) -> None:
    ledger = Counting(tmp_path, alone)
    group = Together(ledger)
    together(ask(group, "s", 0))
    answers = together(*(ask(group, "s", place) for place in range(1, 9)))
    assert ledger.sizes == [1, 8]
    assert [taken.answer.version for taken in answers] == list(range(2, 10))
    for place, taken in enumerate(answers, 1):
        assert (taken.answer.outputs["probabilities"] == EXPECTED[place]).all()
    ledger.close()


def test_an_id_that_comes_twice_at_once_counts_once_and_the_others_are_not_harmed(tmp_path: Path) -> None:
    ledger = Counting(tmp_path)
    group = Together(ledger)
    together(ask(group, "s", 0, "a"), ask(group, "t", 0, "a"))
    first, second, other = together(ask(group, "s", 1, "b"), ask(group, "s", 1, "b"), ask(group, "t", 1, "b"))
    assert [first.answer.version, second.answer.version, other.answer.version] == [2, 2, 2]
    assert (first.answer.outputs["probabilities"] == second.answer.outputs["probabilities"]).all()
    assert [first.step is None, second.step is None] == [False, True]  # the second is the first's answer
    (after,) = together(ask(group, "s", 2, "c"))
    assert (after.answer.outputs["probabilities"] == EXPECTED[2]).all()
    ledger.close()


def test_a_stream_that_another_worker_has_changed_is_computed_again(tmp_path: Path) -> None:
    ledger, other = Counting(tmp_path, alone=False), Ledger(f"sqlite:///{tmp_path / 'memory.db'}")
    group = Together(ledger)
    together(ask(group, "s", 0), ask(group, "t", 0))

    async def meanwhile() -> list[Taken]:
        waiting = [asyncio.ensure_future(one) for one in (ask(group, "s", 2), ask(group, "t", 1))]
        await asyncio.sleep(0)  # both are computed; nothing is written yet
        part = STREAM[1:2]
        other.take(MODEL, "local", asking(part, "s"), part, b"")
        return list(await asyncio.gather(*waiting))

    changed, untouched = asyncio.run(meanwhile())
    assert ledger.sizes[-3:] == [2, 1, 1]  # both at once, which fails; then each by itself
    assert changed.answer.version == 3
    assert (changed.answer.outputs["probabilities"] == EXPECTED[2]).all()
    assert untouched.answer.version == 2
    assert (untouched.answer.outputs["probabilities"] == EXPECTED[1]).all()
    ledger.close()
    other.close()


def test_what_could_not_be_written_is_not_answered_and_can_be_sent_again(tmp_path: Path) -> None:
    ledger = Counting(tmp_path)
    group = Together(ledger)
    together(ask(group, "s", 0), ask(group, "t", 0))
    ledger.fails = True
    errors = refused(ask(group, "s", 1, "x"), ask(group, "t", 1, "y"))
    assert [error.status for error in errors] == [503, 503]
    ledger.fails = False
    for taken in together(ask(group, "s", 1, "x"), ask(group, "t", 1, "y")):
        assert (taken.answer.version, taken.step is None) == (2, False)
        assert (taken.answer.outputs["probabilities"] == EXPECTED[1]).all()
    ledger.close()


def test_samples_that_are_refused_do_not_harm_those_beside_them(tmp_path: Path) -> None:
    ledger = Counting(tmp_path)
    group = Together(ledger)
    together(ask(group, "s", 0), ask(group, "t", 0))
    bad = np.full((1, BUNDLE.dimensions), np.nan)

    async def both() -> list[Taken | BaseException]:
        wrong = group.take(MODEL, "local", asking(bad, "s"), bad, b"")
        return list(await asyncio.gather(wrong, ask(group, "t", 1), return_exceptions=True))

    error, right = asyncio.run(both())
    assert isinstance(error, RefusedError)
    assert isinstance(right, Taken)
    assert (right.answer.outputs["probabilities"] == EXPECTED[1]).all()
    (after,) = together(ask(group, "s", 1))
    assert (after.answer.outputs["probabilities"] == EXPECTED[1]).all()
    ledger.close()
