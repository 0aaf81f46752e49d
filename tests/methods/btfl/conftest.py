"""What is true of the method is true of its compiled steps and of numpy's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from steps import steps_by


@pytest.fixture(autouse=True, scope="module", params=["compiled", "numpy"])
def steps(request: pytest.FixtureRequest) -> Iterator[None]:
    with steps_by(request.param):
        yield
