"""The methods by name: all that 0.1 had, each declared whole in its own class, and none needs torch to be listed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl import ClientBundle, Method
from btfl.core.heads import LinearHead
from btfl.errors import BtflError, InputError
from btfl.methods.base import BundleOnly, Column
from btfl.methods.card import Card
from btfl.methods.registry import GROUPS, METHODS, Variant, find_method
from btfl.recipes.registry import RECIPES
from making import make_bundle, make_client, make_images, make_stream

BY_01 = {
    "fedavg": ("FedAvg", "fedavg"),
    "fedavg-ft": ("FedAvg+FT", "fedavg"),
    "fedrep": ("FedRep", "fedrep"),
    "fedrod": ("FedRoD", "balanced"),
    "knn-per": ("kNN-Per", "fedavg"),
    "fedthe": ("FedTHE", "balanced"),
    "fedthe-plus": ("FedTHE+", "balanced"),
    "ttt": ("TTT", "ttt"),
    "memo": ("MEMO", "fedavg"),
    "personal": ("Personal head", "fedavg"),
    "btfl": ("BTFL", "fedavg"),
    "btfl-release": ("BTFL (release)", "fedavg"),
    "coherent": ("Coherent (ours)", "fedavg"),
    "fedthe-release": ("FedTHE (release)", "balanced"),
    "ttt-release": ("TTT (release)", "ttt-release"),
    "fedthe-on-fedavg": ("FedTHE on FedAvg", "fedavg"),
    "tent": ("Tent", "fedavg"),
    "t3a": ("T3A", "fedavg"),
    "lame": ("LAME", "fedavg"),
    "em": ("EM", "fedavg"),
    "bbse": ("BBSE", "fedavg"),
    "oracle": ("Oracle", "fedavg"),
    "oracle-balanced": ("Oracle (balanced)", "balanced"),
}
SINCE = {
    "coherent-1": ("Coherent 1 (ours)", "fedavg"),
    "coherent-watchful": ("Coherent, watchful (ours)", "fedavg"),
    "adapt": ("ADAPT", "fedavg"),
    "adapt-personal": ("ADAPT (personal head)", "fedavg"),
    "fedcgs": ("FedCGS", "fedavg"),
    "gh-ofl-nb": ("GH-OFL (NB)", "fedavg"),
    "fed3r": ("Fed3R", "fedavg"),
    "ccvr": ("CCVR", "fedavg"),
    "feroma": ("FEROMA", "fedavg"),
    "feroma-weighted": ("FEROMA (weighted)", "fedavg"),
    "local": ("Local only", "local"),
    "ditto": ("Ditto", "ditto"),
    "fedbabu": ("FedBABU", "fedbabu"),
    "feddbe": ("FedDBE", "feddbe"),
    "feddbe-global": ("FedDBE (global)", "feddbe"),
    "atp": ("ATP", "atp"),
    "atp-online": ("ATP (online)", "atp"),
    "fth": ("FTH", "fedavg"),
    "pfedfda": ("pFedFDA", "pfedfda"),
    "pfedfda-release": ("pFedFDA (release)", "pfedfda-release"),
    "pfedfda-head": ("pFedFDA's head on FedAvg", "fedavg"),
    "flh-ftl": ("FLH-FTL", "fedavg"),
    "flh-ftl-release": ("FLH-FTL (release)", "fedavg"),
}
every = pytest.mark.parametrize("variant", METHODS.values(), ids=list(METHODS))


def test_all_methods_are_there_with_their_titles_and_recipes() -> None:
    assert {name: (variant.title, variant.trained_with) for name, variant in METHODS.items()} == {**BY_01, **SINCE}


@every
def test_a_method_declares_all_about_itself(variant: Variant) -> None:
    card = variant.card
    assert card.summary
    assert card.paper or variant.method.__name__ == "Oracle"
    assert card.colour.startswith("#")
    assert card.line in {"solid", "dashed", "dotted", "dashdot"}
    assert inspect.getdoc(variant.method)
    assert variant.trained_with in RECIPES
    assert all(knob.help and knob.range for knob in variant.method.knobs())
    assert all(isinstance(column, Column) and column.help for column in variant.method.columns.values())
    variant.check()


def test_no_two_methods_look_the_same() -> None:
    markers = [v.card.marker for v in METHODS.values()]
    assert len(set(markers)) == len(markers), "every method has a marker of its own"
    looks = {(v.card.colour, v.card.marker, v.card.line) for v in METHODS.values()}
    assert len(looks) == len(METHODS)


@every
def test_it_gives_the_columns_it_declares_and_a_setting_it_does_not_have_is_named(variant: Variant) -> None:
    with pytest.raises(BtflError, match=r"unknown setting.* 'no_such_knob'"):
        find_method(f"{variant.name}[no_such_knob=1]").check()
    if variant.method.takes == "images" or variant.method.__name__ == "Oracle":
        return
    method = variant.build(make_client())
    if method.columns:
        with pytest.raises(InputError, match="call predict first"):
            _ = method.trace
    answers = method.predict(make_stream(method.bundle, 5))
    assert answers.sum(axis=1) == pytest.approx(1)
    assert list(method.trace) == list(method.columns)
    assert all(values.shape == (5,) for values in method.trace.values())
    for wrong in (np.ones((2, 3)), np.full((2, 16), np.nan), np.ones(16)):
        with pytest.raises(InputError, match="features"):
            method.predict(wrong)


@every
def test_what_it_needs_of_a_bundle_is_said_in_one_way(variant: Variant) -> None:
    needs = variant.method.needs
    if needs:
        with pytest.raises(InputError, match=rf"\(recipe '.*'\) needs {needs[0]}.* among the bundle's statistics"):
            variant.method(make_bundle())


def test_a_bundle_alone_is_enough_for_features_and_not_for_images() -> None:
    bundle = make_client().bundle
    for variant in METHODS.values():
        if variant.method.takes == "features":
            variant.method(bundle)
        else:
            with pytest.raises(InputError, match="only a bundle"):
                variant.build(BundleOnly(bundle))


def test_listing_methods_imports_no_torch() -> None:
    code = "import sys; from btfl.methods.registry import METHODS; print(len(METHODS), 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == [str(len(BY_01) + len(SINCE)), "False"]


class Plain(Method):
    """A user's own method with neither card nor settings."""

    summary: ClassVar[str] = "the personal head"

    def predict(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        return self.bundle.personal_head.logits(batch)


def test_a_method_without_a_card_gets_one_from_its_name(bundle: ClientBundle) -> None:
    assert (Plain.card().title, Plain.card().summary) == ("Plain", "the personal head")
    assert Plain(bundle).trace == {}
    assert repr(Plain(bundle)) == f"Plain({bundle!r})"
    with pytest.raises(BtflError, match="unknown setting"):
        Plain(bundle, speed=3)


def test_settings_are_of_the_methods_own_class(bundle: ClientBundle) -> None:
    knn = METHODS["knn-per"].method.settings_class()
    with pytest.raises(InputError, match="settings of T3A are a T3ASettings, not a KnnPerSettings"):
        METHODS["t3a"].method(bundle, knn)
    assert repr(METHODS["t3a"].method(bundle, supports=3)).endswith("statistics), supports=3)")


def test_the_oracle_must_be_told_the_answers(bundle: ClientBundle) -> None:
    with pytest.raises(InputError, match="told the answers"):
        METHODS["oracle"].method(bundle).predict(make_stream(bundle))


def test_the_product_of_heads_adds_logits() -> None:
    one, other = LinearHead(np.eye(2, 3), np.ones(2)), LinearHead(np.ones((2, 3)))
    np.testing.assert_array_equal(one.times(other).logits(np.ones((1, 3))), [[5.0, 5.0]])


def test_methods_are_grouped_by_what_they_need() -> None:
    groups = {name: variant.group for name, variant in METHODS.items()}
    assert {name for name, group in groups.items() if group == "ceiling"} == {"oracle", "oracle-balanced"}
    assert {name for name, group in groups.items() if group == "gradients"} == {
        "tent", "memo", "ttt", "ttt-release", "fedthe-plus", "atp", "atp-online",
    }  # fmt: skip
    assert groups["fedthe"] == "trained"
    assert groups["fedthe-on-fedavg"] == groups["coherent"] == groups["fedavg-ft"] == "shared"
    assert set(groups.values()) == set(GROUPS)


def test_a_users_method_says_what_it_needs_in_its_own_class() -> None:
    class Steep(Plain):
        gradients: ClassVar[bool] = True

    assert [Variant("x", cls, cls.card()).group for cls in (Plain, Steep)] == ["shared", "gradients"]
    assert Variant("x", Plain, Card("x", "X", recipe="fedrep")).group == "trained"


def test_only_methods_with_gradients_change_their_network() -> None:
    """A method that declares none gives the same answers when no gradient may be taken."""
    torch = pytest.importorskip("torch")
    for name, variant in METHODS.items():
        if variant.method.takes == "images" and not variant.method.gradients:
            method = variant.build(make_client())
            with torch.inference_mode():
                answers = method.predict(make_images(4))
            assert answers.shape == (4, 4), name


@dataclass(frozen=True)
class Asked:
    """A client that notes which of its networks a method asks for."""

    bundle: ClientBundle
    networks: list[str]

    def network(self, name: str) -> Any:
        self.networks.append(name)
        raise InputError("there is none")

    def auxiliary(self, name: str, head: str) -> Any:
        return self.network(name)


@pytest.mark.parametrize("variant", METHODS.values(), ids=lambda variant: variant.name)
def test_a_method_on_a_fine_tuned_network_says_that_it_is_trained_after_the_rounds(variant: Variant) -> None:
    asked: list[str] = []
    with suppress(InputError):  # no network, or a statistic that this bundle lacks
        variant.build(Asked(make_bundle(), asked))
    assert variant.steps_after_rounds or "finetuned" not in asked
