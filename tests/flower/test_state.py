"""What a client keeps on its own device, from one step of a run to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from flwr.app import Context, RecordDict

from btfl.flower.state import PrivateState


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


@pytest.mark.parametrize("restarted_node", [False, True])
def test_what_was_kept_before_training_began_again_does_not_count(restarted_node: bool, tmp_path: Path) -> None:
    place = context()
    PrivateState(place, tmp_path, "run").keep(2, {"head": np.full(2, 7.0, np.float32)})
    state = PrivateState(context() if restarted_node else place, tmp_path, "run")
    assert state.before(3)["head"].tolist() == [7.0, 7.0]
    assert state.before(3, since=1)["head"].tolist() == [7.0, 7.0]
    assert state.before(3, since=2) == {}
    state.keep(3, {"head": np.full(2, 8.0, np.float32)})
    assert state.before(4, since=2)["head"].tolist() == [8.0, 8.0]
