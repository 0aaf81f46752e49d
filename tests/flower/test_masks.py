"""Secure sums: exact, blind to single vectors, and restored after any dropout that leaves enough clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from btfl.engines.fixed import Field, Form
from btfl.engines.secure import threshold_of
from btfl.errors import InputError, TooFewClientsError
from btfl.flower import masks
from btfl.flower.masks import Public, Secret


class Group:
    """Clients that have shared their secrets with each other."""

    def __init__(self, clients: Iterable[int], threshold: int | None = None) -> None:
        made = {client: masks.make_secret() for client in clients}
        self.secrets: dict[int, Secret] = {client: secret for client, (secret, _) in made.items()}
        self.members: dict[int, Public] = {client: public for client, (_, public) in made.items()}
        self.threshold = threshold or threshold_of(len(made))
        sent = {
            one: masks.share_secret(one, secret, self.members, self.threshold) for one, secret in self.secrets.items()
        }
        self.received = {one: {source: sent[source][one] for source in sent} for one in sent}

    def masked(self, client: int, vector: np.ndarray) -> np.ndarray:
        return masks.mask(client, self.secrets[client], self.members, self.threshold, vector)

    def total(self, vectors: dict[int, np.ndarray], answered: Sequence[int], revealing: Sequence[int]) -> np.ndarray:
        summed = np.zeros_like(vectors[answered[0]])
        for one in answered:
            summed = summed + self.masked(one, vectors[one])
        shares: dict[int, list[bytes]] = {}
        for one in revealing:
            found = masks.reveal(one, self.secrets[one], self.members, self.threshold, self.received[one], answered)
            for member, share in found.items():
                shares.setdefault(member, []).append(share)
        return masks.unmask(summed, self.members, self.threshold, answered, shares)


def vectors(clients: Iterable[int], size: int = 50) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {one: rng.integers(-(2**40), 2**40, size).astype(np.int64).view(np.uint64) for one in clients}


CLIENTS = (2, 3, 5, 8, 11)
SENT = vectors(CLIENTS)


@pytest.fixture(scope="module")
def group() -> Group:
    return Group(CLIENTS)


def test_every_dropout_pattern_down_to_the_threshold_is_restored(group: Group) -> None:
    assert group.threshold == 3
    for size in range(3, 6):
        for answered in combinations(CLIENTS, size):
            expected = np.sum([SENT[one] for one in answered], axis=0, dtype=np.uint64)
            for revealing in {answered, answered[:3], answered[-3:]}:  # some are gone by the time of unmasking
                assert np.array_equal(group.total(SENT, answered, revealing), expected)


def test_below_the_threshold_nothing_is_revealed(group: Group) -> None:
    with pytest.raises(InputError, match="3 are needed"):
        group.total(SENT, CLIENTS[:2], CLIENTS[:2])
    with pytest.raises(TooFewClientsError, match="3 are needed"):
        group.total(SENT, CLIENTS, CLIENTS[:2])


def test_a_client_refuses_groups_in_which_it_could_be_told(group: Group) -> None:
    two = {one: group.members[one] for one in CLIENTS[:2]}
    with pytest.raises(InputError, match="at least 3 clients"):
        masks.share_secret(2, group.secrets[2], two, 2)
    with pytest.raises(InputError, match="more than half"):
        masks.mask(2, group.secrets[2], group.members, 2, SENT[2])
    same = {**group.members, 11: group.members[8]}
    with pytest.raises(InputError, match="same key"):
        masks.mask(2, group.secrets[2], same, 3, SENT[2])


def test_one_masked_vector_is_noise_to_the_server() -> None:
    size = 40_000
    plain = np.arange(size, dtype=np.uint64) * np.uint64(2**44)
    sent = Group((0, 1, 2)).masked(0, plain)
    uniform = sent.astype(np.float64) / 2.0**64
    spread = 4.5 / np.sqrt(size)  # a false alarm in 150,000 runs
    assert abs(np.corrcoef(uniform, plain.astype(np.float64))[0, 1]) < spread
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < spread
    assert abs(uniform.mean() - 0.5) < spread * np.sqrt(1 / 12)
    bits = np.unpackbits(sent.view(np.uint8)).mean()
    assert abs(bits - 0.5) < 4.5 * 0.5 / np.sqrt(64 * size)
    counts = np.bincount((uniform * 64).astype(int), minlength=64)
    assert ((counts - size / 64) ** 2 / (size / 64)).sum() < 63 + 5 * np.sqrt(2 * 63)


def test_two_sums_of_the_same_vector_share_no_mask() -> None:
    plain = np.zeros(1000, np.uint64)
    one, other = (Group((0, 1, 2)).masked(0, plain) for _ in range(2))
    assert (one == other).sum() == 0


@pytest.mark.parametrize("clients", [1, 7, 3000])
def test_a_sum_is_exact_to_the_last_place_and_cannot_overflow(clients: int) -> None:
    form = Form([Field("a", (3,), 5.0), Field("b", (2, 2), 1e6)], clients)
    rng = np.random.default_rng(1)
    rows = [{"a": rng.uniform(-5, 5, 3), "b": rng.uniform(-1e6, 1e6, (2, 2))} for _ in range(min(clients, 7))]
    rows += [{"a": np.full(3, 5.0), "b": np.full((2, 2), -1e6)}] * (clients - len(rows))  # as large as they may be
    total = np.zeros(form.size, np.uint64)
    exact = [0] * form.size
    for row in rows:
        encoded = form.encode(row)
        total = total + encoded
        exact = [known + int(number) for known, number in zip(exact, encoded.view(np.int64), strict=True)]
    assert [int(number) for number in total.view(np.int64)] == exact
    for name, array in form.decode(total).items():
        np.testing.assert_allclose(array, sum(row[name] for row in rows), rtol=1e-10, atol=1e-9)


def test_a_number_beyond_its_limit_is_an_error_and_never_cut() -> None:
    form = Form([Field("a", (2,), 5.0)], 10)
    with pytest.raises(InputError, match="out of range for a secure sum"):
        form.encode({"a": np.array([0.0, 5.01])})
    with pytest.raises(InputError, match="64 bits"):
        Form([Field("a", (2,), 1e16)], 10_000)
