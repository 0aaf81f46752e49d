"""Who may do what: tokens, of which the database holds hashes alone."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import sqlalchemy as sa

from btfl.errors import InputError, UnknownNameError
from btfl.serve.schema import tokens, writing

READ, INFER, ADMIN = "read", "infer", "admin"
MAY = (READ, INFER, ADMIN)
EVERYONE = "*"
_FORM = re.compile(r"btfl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_KEPT_FOR, _KEPT = 3.0, 2048  # seconds that an answer of the database is believed, and how many of them
_NOBODY = hashlib.sha256(b"").digest()


@dataclass(frozen=True)
class Token:
    """What the bearer of a token may do."""

    id: str
    name: str
    tenant: str
    """Whose streams it sees; ``*``: everyone's."""
    may: tuple[str, ...]
    models: tuple[str, ...] = (EVERYONE,)
    """Patterns of the models it sees."""
    expires: float | None = None

    def can(self, what: str) -> bool:
        """Return whether it allows this; ``admin`` allows everything."""
        return what in self.may or ADMIN in self.may

    def sees_model(self, name: str) -> bool:
        """Return whether it sees a model."""
        return any(pattern == EVERYONE or fnmatchcase(name, pattern) for pattern in self.models)


LOCAL = Token("local", "loopback", "local", (ADMIN,))
"""Who sends requests to a server that asks for no tokens."""


def _hash(secret: str) -> bytes:
    # 256 random bits: there is nothing to guess that a slow hash would make slower
    return hashlib.sha256(secret.encode()).digest()


class TokenBook:
    """The tokens in a database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[float, bytes, Token | None]] = OrderedDict()

    def new(
        self,
        name: str,
        may: Sequence[str],
        tenant: str | None = None,
        models: Sequence[str] = (EVERYONE,),
        days: float | None = None,
    ) -> tuple[str, Token]:
        """Make a token; return its text, which is stored nowhere, and what it allows."""
        for each in may:
            if each not in MAY:
                raise UnknownNameError("right of a token", each, MAY)
        tenant = name if tenant is None else tenant
        if not may:
            raise InputError(f"a token needs at least one right: {', '.join(MAY)}")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", name) or not re.fullmatch(r"[A-Za-z0-9._-]{1,60}|\*", tenant):
            raise InputError("names of tokens and tenants are of A-Z a-z 0-9 . _ -, at most 60 of them")
        if tenant == EVERYONE and INFER in may:
            raise InputError("a token for the streams of every tenant may read or administrate, but not infer")
        if not all(re.fullmatch(r"[A-Za-z0-9._*?-]{1,100}", model) for model in models):
            raise InputError("patterns of models are of A-Z a-z 0-9 . _ - * ?")
        expires = None if days is None else time.time() + days * 86400
        token = Token(secrets.token_hex(6), name, tenant, tuple(may), tuple(models), expires)
        secret = secrets.token_urlsafe(32)
        with writing(self._engine) as connection:
            connection.execute(
                sa.insert(tokens),
                {
                    "id": token.id,
                    "name": name,
                    "tenant": tenant,
                    "may": ",".join(may),
                    "models": ",".join(models),
                    "hash": _hash(secret),
                    "created": time.time(),
                    "expires": expires,
                },
            )
        return f"btfl_{token.id}_{secret}", token

    def all(self) -> list[Token]:
        """Return all tokens, by name."""
        with self._engine.connect() as connection:
            return [_token(row) for row in connection.execute(sa.select(tokens).order_by(tokens.c.name))]

    def revoke(self, id_: str) -> None:
        """Remove a token; servers notice within seconds."""
        with writing(self._engine) as connection:
            removed = connection.execute(sa.delete(tokens).where(tokens.c.id == id_)).rowcount
        if not removed:
            raise UnknownNameError("token", id_, [one.id for one in self.all()])

    def remembered(self, text: str) -> tuple[bool, Token | None]:
        """Return whether it is known without the database who bears a token, and who that is."""
        match = _FORM.fullmatch(text)
        if match is None:
            return True, None
        found = self._known.get(match[1])
        if found is None or time.monotonic() - found[0] > _KEPT_FOR:
            return False, None
        return True, self._check(match[2], found[1], found[2])

    def bearer(self, text: str) -> Token | None:
        """Return what the bearer of this text may do; None if it is no token."""
        known, token = self.remembered(text)
        match = _FORM.fullmatch(text)
        if known or match is None:
            return token
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(tokens).where(tokens.c.id == match[1])).first()
        entry = (time.monotonic(), _NOBODY, None) if row is None else (time.monotonic(), bytes(row.hash), _token(row))
        self._known[match[1]] = entry
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return self._check(match[2], entry[1], entry[2])

    @staticmethod
    def _check(secret: str, hashed: bytes, token: Token | None) -> Token | None:
        right = hmac.compare_digest(_hash(secret), hashed)  # for an unknown id as well, so that it takes as long
        if not right or token is None or (token.expires is not None and token.expires < time.time()):
            return None
        return token


def _token(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.id, row.name, row.tenant, tuple(row.may.split(",")), tuple(row.models.split(",")), row.expires)
