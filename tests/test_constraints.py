"""Every pin has its hashes, so that pip can be asked for the files that were tested, or nothing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*==[^\s;\\]+)", re.MULTILINE)


def test_every_pin_has_its_hashes() -> None:
    pinned = PIN.findall((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    text = (ROOT / "constraints-hashed.txt").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"(?m)^(?=[A-Za-z0-9])", text) if PIN.match(entry)]
    assert [PIN.findall(entry)[0] for entry in entries] == pinned, "run python benchmarks/hash_constraints.py"
    for entry in entries:
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\)?\n", entry)
        assert hashes, entry
        assert len(hashes) == len(entry.splitlines()) - 1
        assert len(hashes) == len(set(hashes))
