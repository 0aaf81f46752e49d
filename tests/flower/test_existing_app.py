"""The example of an app of someone's own: its strategy and model stay, and every client ends with a bundle."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from btfl import Btfl, ClientBundle
from btfl.core.summary import Summary
from btfl.errors import TooFewClientsError
from btfl.flower.exchange import LocalView, add_btfl, exchange
from btfl.flower.messages import pack_result
from btfl.recipes.base import Description
from in_process_grid import InProcessGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_existing_app"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, InProcessGrid, Context]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    client, server = (importlib.import_module(f"existing_app.{side}_app") for side in ("client", "server"))
    grid = InProcessGrid(client.app, [])
    config: dict[str, bool | float | int | str] = {"rounds": 2, "bundles": str(tmp_path)}
    for number in range(3):
        place: dict[str, bool | float | int | str] = {"partition-id": number, "num-partitions": 3}
        grid.contexts[100 + number] = Context(1, 100 + number, place, RecordDict(), config)
    return server.app, grid, Context(1, 0, {}, RecordDict(), config)


def test_every_client_ends_with_a_bundle(
    example: tuple[Any, InProcessGrid, Context], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, grid, context = example
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        server(grid, context)
    assert "3 clients have their bundle" in capsys.readouterr().out
    bundles = [ClientBundle.load(tmp_path / f"client-{number}") for number in range(3)]
    mean = np.mean([bundle.local_likelihood.frequencies for bundle in bundles], axis=0)
    for number, bundle in enumerate(bundles):
        np.testing.assert_allclose(bundle.global_likelihood.frequencies, mean, atol=1e-12)
        assert bundle.global_likelihood.clients == 3
        assert bundle.metadata == {"client": number}
        kept = grid.contexts[100 + number].state.array_records["personal_head"]["weight"].numpy()
        np.testing.assert_array_equal(bundle.personal_head.weight, kept)
        assert (bundle.global_head.weight == bundles[0].global_head.weight).all()
        features = bundle.statistics["train_features"]
        labels, heads = bundle.statistics["train_labels"], (bundle.global_head, bundle.personal_head)
        weaker = min((head.logits(features.astype(float)).argmax(axis=1) == labels).mean() for head in heads)
        right = Btfl(bundle).predict(features).argmax(axis=1) == labels
        assert right.mean() >= weaker


def lying(question: Message, answer: Message) -> Message:
    sums = {name: array.numpy() for name, array in answer.content.array_records["upload"].items()}
    return Message(
        pack_result(Description(Summary({**sums, "class_counts": -sums["class_counts"]}))), reply_to=question
    )


def test_a_client_whose_numbers_cannot_be_is_left_out(
    example: tuple[Any, InProcessGrid, Context], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, grid, context = example
    grid.script["query.btfl_describe", "", 1] = lying
    server(grid, context)
    assert "node 101 is left out of the exchange: class_counts must not be negative" in caplog.text
    assert ClientBundle.load(tmp_path / "client-0").global_likelihood.clients == 2
    assert not (tmp_path / "client-1").exists()
    grid.script["query.btfl_describe", "", 0] = lying
    with pytest.raises(TooFewClientsError, match=r"only 1 of 3 nodes .* node 100: class_counts"):
        server(grid, context)


def test_distorted_copies_are_added_up_where_a_view_has_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first client has them, the second has none, the third has too few."""
    rng = np.random.default_rng(0)
    features, labels, head = rng.random((3, 5, 4)), np.array([0, 1, 1, 0, 1]), (np.ones((2, 4)), np.zeros(2))
    copies = (features[0] + 1, None, features[2, 1:])

    def view(arrays: ArrayRecord, context: Context) -> LocalView:
        number = context.node_id - 100
        return LocalView(features[number], labels, head, head, {}, copies[number])

    app = ClientApp()
    add_btfl(app, view, lambda context: tmp_path / str(context.node_id))
    exchanged = exchange(InProcessGrid(app, range(3)), ArrayRecord(), classes=2, dimensions=4)
    assert exchanged.kept == (100, 101)
    assert "node 102 is left out of the exchange: distorted features must be 5 rows" in caplog.text
    statistics = ClientBundle.load(tmp_path / "101").statistics
    assert statistics["global_class_counts"].tolist() == [4, 6]
    assert statistics["global_distorted_class_counts"].tolist() == [2, 3]
    expected = np.array([(features[0] + 1)[labels == k].sum(axis=0) for k in range(2)])
    np.testing.assert_allclose(statistics["global_distorted_class_feature_sums"], expected, rtol=1e-6)


def test_features_may_have_any_sign_unless_the_server_knows_better(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first two clients have signed features, the third has none below zero."""
    features, labels = np.random.default_rng(0).normal(size=(3, 5, 4)), np.array([0, 1, 1, 0, 1])
    features[2] = np.abs(features[2])
    head = (np.ones((2, 4)), np.zeros(2))
    app = ClientApp()
    add_btfl(app, lambda arrays, context: LocalView(features[context.node_id - 100], labels, head, head),
             lambda context: tmp_path / str(context.node_id))  # fmt: skip
    grid = InProcessGrid(app, range(3))
    assert exchange(grid, ArrayRecord(), classes=2, dimensions=4).kept == (100, 101, 102)
    kept = ClientBundle.load(tmp_path / "100")
    np.testing.assert_allclose(
        kept.statistics["global_class_feature_sums"].sum(axis=0), features.sum(axis=(0, 1)), 1e-6
    )
    np.testing.assert_allclose(kept.local_likelihood.frequencies, (features[0] <= 0.5493).mean(axis=0))
    with pytest.raises(TooFewClientsError, match="class_feature_sums must not be negative"):
        exchange(grid, ArrayRecord(), classes=2, dimensions=4, nonnegative=True)
