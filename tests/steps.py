"""Who does a method's steps: what was compiled, or numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from btfl.core.compiled import walk_of


@contextmanager
def steps_by(whom: str) -> Iterator[None]:
    """Let methods that are made meanwhile have their steps done by ``compiled`` code, or by ``numpy``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BTFL_COMPILED", "1" if whom == "compiled" else "0")
        if whom == "compiled" and walk_of("btfl.methods.btfl._compiled") is None:
            pytest.skip("nothing was compiled when btfl was installed: there was no C compiler")
        yield
