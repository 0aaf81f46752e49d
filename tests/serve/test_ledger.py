"""The memory of streams in SQLite and in PostgreSQL: what is acknowledged is there once, whoever writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="btfl[serve] is not installed")

from btfl import Btfl, Coherent
from btfl.monitor import MonitorSettings, calibrate, own_features
from btfl.serve.answers import Answer
from btfl.serve.ledger import Ledger
from btfl.serve.model import Model
from btfl.serve.refusal import RefusedError
from btfl.serve.source import Served
from fleet import asking, foreign, make_bundles, own

BUNDLE = make_bundles()[0]


def make_model(method: str = "coherent", sha: str = "one") -> Model:
    built = {"coherent": Coherent, "btfl": Btfl}[method](BUNDLE)
    levels = calibrate(built, own_features(BUNDLE), drawn=4000)
    return Model(Served("client-0", BUNDLE, sha, levels), method, MonitorSettings())


MODEL = make_model()
STREAM = np.concatenate([own(0, 60), foreign(0, 20)])


@pytest.fixture(params=[True, False], ids=["alone", "shared"])
def ledger(request: pytest.FixtureRequest, database: str) -> Iterator[Ledger]:
    one = Ledger(database, alone=request.param, history=64)
    yield one
    one.close()


def take(ledger: Ledger, place: int, model: Model = MODEL, count: int = 1, **told: object) -> Answer:
    part = STREAM[place : place + count]
    asked = asking(part, start=place == 0)._replace(**told)  # type: ignore[arg-type]
    return ledger.take(model, "local", asked, part, part.tobytes()[:16]).answer


def test_a_stream_in_pieces_is_the_library_s_to_the_bit(ledger: Ledger) -> None:
    whole = Coherent(BUNDLE)
    expected = whole.predict(STREAM)
    cuts = [0, 1, 2, 9, 41, 42, 80]
    for begin, end in pairwise(cuts):
        answer = take(ledger, begin, count=end - begin)
        assert (answer.outputs["probabilities"] == expected[begin:end]).all()
        for name, column in whole.trace.items():
            assert (answer.outputs[name] == column[begin:end]).all()


def test_an_alarm_begins_after_the_stream_turned_and_not_before(ledger: Ledger) -> None:
    answers = [take(ledger, place) for place in range(len(STREAM))]
    began = [place for place, answer in enumerate(answers) if answer.began]
    assert len(began) == 1
    assert began[0] >= 60
    assert answers[-1].alarmed == "external"


def test_a_retried_request_counts_once_and_gets_the_same_answer(ledger: Ledger) -> None:
    take(ledger, 0, id="a")
    first = take(ledger, 1, id="b")
    again = take(ledger, 1, id="b")
    assert again.version == first.version == 2
    assert all((again.outputs[name] == first.outputs[name]).all() for name in first.outputs)
    assert (again.memory, again.alarmed, again.began) == (first.memory, first.alarmed, first.began)
    assert take(ledger, 2, id="c").version == 3


def test_a_retried_start_does_not_begin_again(ledger: Ledger) -> None:
    take(ledger, 0, id="a")
    take(ledger, 1, id="b")
    assert take(ledger, 0, id="a").version == 1
    assert take(ledger, 2, id="c").version == 3


def test_a_retried_end_is_answered_though_the_stream_has_ended(ledger: Ledger) -> None:
    take(ledger, 0, id="a")
    ended = take(ledger, 1, id="b", end=True)
    assert take(ledger, 1, id="b", end=True).version == ended.version
    with pytest.raises(RefusedError, match="START"):
        take(ledger, 2, id="c")


def test_an_id_that_was_used_for_other_samples_is_refused(ledger: Ledger) -> None:
    take(ledger, 0, id="a")
    take(ledger, 1, id="b")
    with pytest.raises(RefusedError) as refused:
        take(ledger, 2, id="b")
    assert refused.value.status == 409
    assert take(ledger, 2, id="c").version == 3


def test_a_stream_that_was_not_begun_is_refused_as_triton_does(ledger: Ledger) -> None:
    with pytest.raises(RefusedError, match="must specify the START flag") as refused:
        take(ledger, 1)
    assert refused.value.status == 400


def test_a_second_start_forgets_the_stream(ledger: Ledger) -> None:
    fresh = Coherent(BUNDLE).predict(STREAM[:1])
    take(ledger, 0, count=30)
    answer = take(ledger, 0)
    assert (answer.outputs["probabilities"] == fresh).all()
    assert (answer.memory, answer.version) == ("new", 2)


def test_refused_samples_leave_the_memory_as_it_was(ledger: Ledger) -> None:
    expected = Coherent(BUNDLE).predict(STREAM[:2])
    take(ledger, 0)
    bad = np.full((1, BUNDLE.dimensions), np.nan)
    with pytest.raises(RefusedError, match="NaN"):
        ledger.take(MODEL, "local", asking(bad), bad, b"")
    assert (take(ledger, 1).outputs["probabilities"] == expected[1]).all()


def test_streams_of_two_tenants_with_one_name_are_two(ledger: Ledger) -> None:
    part = STREAM[:1]
    for tenant in ("one", "two"):
        assert ledger.take(MODEL, tenant, asking(part, start=True), part, b"").answer.version == 1


def test_a_renewed_bundle_keeps_the_memory_of_the_same_method_and_resets_another(ledger: Ledger) -> None:
    expected = Coherent(BUNDLE).predict(STREAM[:12])
    take(ledger, 0, count=10)
    kept = take(ledger, 10, model=make_model(sha="two"))
    assert kept.memory == "kept"
    assert (kept.outputs["probabilities"] == expected[10]).all()
    reset = take(ledger, 11, model=make_model("btfl", "two"))
    assert reset.memory == "reset"
    assert (reset.outputs["probabilities"] == Btfl(BUNDLE).predict(STREAM[11:12])).all()


def test_a_memory_survives_the_server(database: str) -> None:
    expected = Coherent(BUNDLE).predict(STREAM)
    for place in range(0, 80, 20):
        ledger = Ledger(database, alone=True)
        assert (take(ledger, place, count=20).outputs["probabilities"] == expected[place : place + 20]).all()
        ledger.close()


def test_more_streams_than_allowed_are_refused(database: str) -> None:
    ledger, part = Ledger(database, most_streams=3), STREAM[:1]
    for number in range(3):
        ledger.take(MODEL, "local", asking(part, f"{number}", start=True), part, b"")
    with pytest.raises(RefusedError, match="no more are allowed"):
        ledger.take(MODEL, "local", asking(part, "3", start=True), part, b"")
    ledger.close()


def test_eight_writers_on_one_stream_lose_and_repeat_nothing(database: str) -> None:
    """Each sample is the same, so the memory after 8 x 10 of them does not depend on who came first."""
    sample, each = STREAM[:1], 10
    model = make_model()
    first = Ledger(database)
    first.take(model, "local", asking(sample, start=True), sample, b"")
    versions: list[int] = []
    failures: list[Exception] = []

    def write(writer: int) -> None:
        ledger = Ledger(database)
        try:
            for number in range(each):
                asked = asking(sample, id=f"{writer}-{number}")
                for _ in range(2):  # everything is sent twice
                    version = ledger.take(model, "local", asked, sample, b"same").answer.version
                versions.append(version)
        except Exception as error:
            failures.append(error)
        finally:
            ledger.close()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    assert sorted(versions) == list(range(2, 2 + 8 * each))
    undisturbed = Coherent(BUNDLE)
    expected = undisturbed.predict(np.repeat(sample, 2 + 8 * each, axis=0))
    last = first.take(model, "local", asking(sample, id="last"), sample, b"")
    assert (last.answer.outputs["probabilities"] == expected[-1]).all()
    assert last.answer.version == 2 + 8 * each
    first.close()


def test_old_requests_are_forgotten_and_the_latest_are_not(ledger: Ledger) -> None:
    import sqlalchemy as sa

    from btfl.serve.schema import requests

    sample = STREAM[:1]
    for number in range(300):
        ledger.take(MODEL, "local", asking(sample, id=f"{number}", start=number == 0), sample, b"")
    with ledger.engine.connect() as connection:
        versions = connection.execute(sa.select(requests.c.version).order_by(requests.c.version)).scalars().all()
    assert versions[-1] == 300
    assert 64 <= len(versions) <= 64 + 64
    assert versions == list(range(versions[0], 301))
