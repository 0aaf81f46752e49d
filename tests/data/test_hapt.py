"""Real windows that overlap by half: an ordered split keeps them apart, and a random one does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.duplicates import content_keys
from btfl.data.partition import PartitionSettings, Split, make_partition
from btfl.data.samples import Values
from btfl.data.source import Source

HAPT = Path(__file__).resolve().parents[3] / "shared" / "data" / "hapt-windows.npz"
pytestmark = pytest.mark.skipif(not HAPT.is_file(), reason="hapt-windows.npz is not at hand")


@pytest.fixture(scope="module")
def hapt() -> Source:
    return load_source("arrays", root=HAPT)


def halves(windows: Values) -> list[bytes]:
    """The content of both halves of each window: windows that overlap share one."""
    half = windows.shape[1] // 2
    return content_keys(np.concatenate([windows[:, :half], windows[:, half:]]))


def shared(hapt: Source, split: Split) -> int:
    """How many halves of test windows, of any client, are in a training or validation window, of any client."""
    partition = make_partition(hapt, PartitionSettings(None, "natural", split=split), seed=0)
    assert len(partition) == 30
    values = hapt.pool.values
    learnt = {key for part in partition.parts for side in (part.train, part.validation) for key in halves(values[side])}
    return sum(key in learnt for part in partition.parts for key in halves(values[part.test]))


def test_an_ordered_split_shares_nothing_and_a_random_one_does(hapt: Source) -> None:
    assert hapt.kind == "signals"
    assert hapt.owner_names[:3] == ("1", "2", "3")
    assert shared(hapt, "ordered") == 0
    assert shared(hapt, "honest") > 1000  # the check finds a leak where there is one
