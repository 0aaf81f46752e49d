"""What tests of the server share: a database of each kind, bundles to serve, requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres import Postgres, why_not


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    server = Postgres(fsync=False)  # a killed process loses nothing that the kernel has
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memory.db'}"
    import sqlalchemy as sa

    from btfl.serve.schema import metadata

    url: str = request.getfixturevalue("postgres").url
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    metadata.drop_all(engine)
    engine.dispose()
    return url
