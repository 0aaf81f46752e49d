"""Ways to damage a file, drawn from a seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

WORDS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**200, 10**299, 1e308, -1e308, 5e-324, 0.5, "", "..", "/dev/zero",
    "a/b", "x" * 5000, "\0", "\ud800", [], {}, [[]], [None], {"": None}, [1, "a"], "NaN", "nan", "true",
)  # fmt: skip
RAW = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 3000 + b"]" * 3000, b'"\xff"', b"{" * 99, b"")


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, remove or insert bytes."""
    kind, at = rng.randrange(6), rng.randrange(len(content))
    end = min(at + rng.choice((1, 2, 8, 64)), len(content))
    if kind == 0:
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at]
    if kind == 2:
        return content[:end] + content[at:]
    if kind == 3:
        return content[:at] + content[end:]
    if kind == 4:
        return content[:at] + rng.randbytes(end - at) + content[end:]
    return content[:at] + rng.choice(RAW) + content[end:]


def damaged_json(content: Any, rng: random.Random, seal: str = "record_sha256") -> bytes:
    """Replace, remove, add or move values anywhere, as one would who knows the format: without the sha256."""
    content = json.loads(json.dumps(content))
    content.pop(seal, None)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        level: list[Any] = [content]
        while level:
            one = level.pop()
            keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
            places += [(one, key) for key in keys]
            level += [one[key] for key in keys]
        if not places:
            break
        parent, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[str(rng.choice(WORDS))] = parent.pop(key)
        elif kind == 2:
            other, at = rng.choice(places)
            parent[key] = json.loads(json.dumps(other[at])) if other is not parent or at in other else None
        else:
            parent[key] = copy.deepcopy(rng.choice(WORDS))  # lists among them are filled in the next turn
    text = json.dumps(content).encode()
    if rng.random() < 0.1:
        text = text.replace(rng.choice((b"1", b"0.4", b"null", b"60", b"[]")), rng.choice(RAW), 1)
    return text
