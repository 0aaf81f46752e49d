"""What a request is refused with: a status and one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from btfl.errors import BtflError


class RefusedError(BtflError):
    """A request that is not answered.

    Parameters
    ----------
    status : of HTTP, 4xx; 503 if the database is away
    said : what is wrong, and what would be right
    headers : more of the answer's headers
    """

    def __init__(self, status: int, said: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(said)
        self.status, self.headers = status, dict(headers or {})
