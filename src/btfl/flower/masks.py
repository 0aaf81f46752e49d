"""Secure aggregation (Bonawitz et al., 2017): the server learns the sum of the clients' vectors, and no single one.

Each client adds to its vector a mask of its own, and one for each other client, which that one subtracts; so the latter
cancel in the sum. Every client's secrets are shared among all, any ``threshold`` of whom can restore one: the own mask
of a client that has answered, or the key of the pairwise masks of one that has not. Never both.

Key agreement, encryption and secret sharing are Flower's (those of its SecAgg+). Its generator of masks is not used: it
folds a key of 256 bits into 32, which a server can try out one by one. Here a mask is the key stream of ChaCha20.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, generate_key_pairs, public_key_to_bytes
from numpy.typing import NDArray

from btfl.engines.secure import FEWEST, threshold_of
from btfl.errors import InputError, TooFewClientsError

Whole = NDArray[np.uint64]
_KEY_BYTES, _SEED_BYTES = 48, 32


@dataclass(frozen=True)
class Public:
    """What everyone may know of a client: two public keys."""

    masks: bytes
    shares: bytes


@dataclass(frozen=True)
class Secret:
    """What a client keeps to itself until the sum is known."""

    masks: bytes
    """Private key for pairwise masks, as a number."""
    shares: bytes
    """Private key that shares are encrypted with, as a number."""
    seed: bytes
    """Of its own mask."""


def make_secret() -> tuple[Secret, Public]:
    """Return fresh keys and a fresh seed: for one sum, and never for another."""
    (masks, public_masks), (shares, public_shares) = generate_key_pairs(), generate_key_pairs()
    secret = Secret(_to_bytes(masks), _to_bytes(shares), os.urandom(_SEED_BYTES))
    return secret, Public(public_key_to_bytes(public_masks), public_key_to_bytes(public_shares))


def share_secret(own: int, secret: Secret, members: Mapping[int, Public], threshold: int) -> dict[int, bytes]:
    """Return for every member, this one included, an encrypted share of the own seed and key."""
    _check_members(own, members, threshold)
    seeds = create_shares(secret.seed, threshold, len(members))
    keys = create_shares(secret.masks, threshold, len(members))
    return {
        member: encrypt(
            _shared(secret.shares, members[member].shares),
            share_keys_plaintext_concat(own, member, seed, key),
        )
        for member, seed, key in zip(sorted(members), seeds, keys, strict=True)
    }


def mask(own: int, secret: Secret, members: Mapping[int, Public], threshold: int, vector: Whole) -> Whole:
    """Return the vector with its own mask, and with those that it shares with each other member."""
    _check_members(own, members, threshold)
    masked = vector + _stream(secret.seed, len(vector))
    for member, public in members.items():
        if member != own:
            pairwise = _stream(_raw(_shared(secret.masks, public.masks)), len(vector))
            masked = masked + pairwise if own < member else masked - pairwise
    return masked


def reveal(
    own: int,
    secret: Secret,
    members: Mapping[int, Public],
    threshold: int,
    received: Mapping[int, bytes],
    answered: Sequence[int],
) -> dict[int, bytes]:
    """Return a share for every member: of the seed of one that has answered, of the key of one that has not."""
    alive = set(answered)
    if not alive <= set(members) or len(alive) < threshold or own not in alive:
        raise InputError(f"{len(alive)} of {len(members)} clients have answered, and {threshold} are needed")
    found = {}
    for member, ciphertext in received.items():
        plain = decrypt(_shared(secret.shares, members[member].shares), ciphertext)
        source, target, seed, key = share_keys_plaintext_separate(plain)
        if (source, target) != (member, own):
            raise InputError(f"the share of client {member} is for another client, or from another one")
        found[member] = seed if member in alive else key
    return found


def unmask(
    total: Whole,
    members: Mapping[int, Public],
    threshold: int,
    answered: Sequence[int],
    shares: Mapping[int, Sequence[bytes]],
) -> Whole:
    """Return the sum of the vectors of those that have answered.

    Parameters
    ----------
    total : the sum of what they sent
    members : everyone who has shared secrets
    answered : whose vectors are in the sum
    shares : for each member, the shares that were revealed: of a seed, or of a key
    """
    alive = set(answered)
    for member in members:
        if len(shares.get(member, ())) < threshold:
            raise TooFewClientsError(
                f"only {len(shares.get(member, ()))} shares of client {member}'s secret were revealed, and {threshold} "
                "are needed: the sum cannot be unmasked, and nothing was learned"
            )
    for member in sorted(members):
        restored = combine_shares(list(shares[member][:threshold]))
        if member in alive:
            total = total - _stream(restored, len(total))
            continue
        for other in sorted(alive):  # the masks that others have shared with it did not cancel
            pairwise = _stream(_raw(_shared(restored, members[other].masks)), len(total))
            total = total - pairwise if other < member else total + pairwise
    return total


def _check_members(own: int, members: Mapping[int, Public], threshold: int) -> None:
    """Refuse a group in which the own vector could be told: too small, or restored by too few."""
    if own not in members or len(members) < FEWEST or threshold < threshold_of(len(members)):
        raise InputError(
            f"a secure sum needs at least {FEWEST} clients, this one among them, and more than half to restore a "
            f"secret; not {len(members)} with a threshold of {threshold}"
        )
    if len({public.masks for public in members.values()}) < len(members):
        raise InputError("two clients of a secure sum have the same key")


def _to_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(_KEY_BYTES, "big")


def _shared(own: bytes, public: bytes) -> bytes:
    private = ec.derive_private_key(int.from_bytes(own, "big"), ec.SECP384R1())
    return bytes(generate_shared_key(private, bytes_to_public_key(public)))


def _raw(key: bytes) -> bytes:
    return base64.urlsafe_b64decode(key)


def _stream(key: bytes, size: int) -> Whole:
    """Return so many uniform numbers that follow from a key of 32 bytes, each key being used once."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), dtype="<u8").astype(np.uint64)
