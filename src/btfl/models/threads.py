"""How many threads torch uses: one in each process, since processes share the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: small batches are slower with more, and sums could come out in another order."""
    import torch  # when it is needed: a pool may be of workers that do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
