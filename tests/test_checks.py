"""Arrays that would lose something on the way to float64 are refused, not converted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from btfl import Btfl, ClientBundle, Coherent
from btfl.checks import as_features, finite_array
from btfl.errors import InputError
from making import make_bundle, make_client, make_stream

ROWS = np.arange(6.0).reshape(2, 3)
WRONG: dict[str, Any] = {
    "complex": ROWS + 1j,
    "masked": np.ma.masked_array(ROWS, ROWS > 3),
    "strings": ROWS.astype(str),
    "dates": ROWS.astype("datetime64[s]"),
    "void": np.zeros((2, 3), "V8"),
    "too long": np.full((2, 3), np.longdouble("1e4000")),
    "objects": np.full((2, 3), object()),
    "too large": [[10**400] * 3] * 2,
    "uneven": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_plain_array_of_numbers_is_refused(case: str) -> None:
    with pytest.raises(InputError):
        finite_array("it", WRONG[case])
    with pytest.raises(InputError):
        as_features(WRONG[case])


@pytest.mark.parametrize(
    "value",
    [ROWS, ROWS.tolist(), ROWS.astype("f4"), ROWS.astype("u1"), ROWS > 1, ROWS.astype(">f8"), [[Fraction(1, 2)] * 3]],
)  # fmt: skip
def test_numbers_of_any_kind_are_taken(value: Any) -> None:
    expected = np.array(value, dtype=np.float64)
    np.testing.assert_array_equal(finite_array("it", value, ndim=2), expected)
    np.testing.assert_array_equal(as_features(value, 3), expected)


@pytest.mark.parametrize("change", [lambda x: x + 1j, lambda x: np.ma.masked_array(x, x > 0), lambda x: x.astype(str)])
def test_a_single_sample_is_checked_like_a_batch(change: Any) -> None:
    client = make_client()
    for method in (Btfl(client.bundle), Coherent(client.bundle)):
        for samples in (1, 3):
            with pytest.raises(InputError, match="features must be an array of numbers"):
                method.predict(change(make_stream(client.bundle, samples)))


def test_heads_of_a_mask_or_beyond_the_limit_are_refused() -> None:
    bundle = make_bundle(6, 3)
    rest = bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood, 0.4, 0.6
    with pytest.raises(InputError, match="without a mask"):
        ClientBundle(np.ma.masked_array(np.ones((3, 6)), np.eye(3, 6) > 0), *rest)
    with pytest.raises(InputError, match="the limit is"):
        ClientBundle(np.full((3, 6), 1e308), *rest)
