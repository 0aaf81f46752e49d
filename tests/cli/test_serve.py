"""``btfl serve --check``, tokens, and what is refused before a server starts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")

ZOO = "zoo:cifar10-cnn-dir0.1-quick"


def test_others_are_not_served_without_a_token(btfl: Callable[..., str]) -> None:
    assert "serve-token new" in btfl("serve", ZOO, "--host", "0.0.0.0", "--check", ok=False)
    assert "loopback" in btfl("serve", ZOO, "--host", "0.0.0.0", "--no-auth", "--check", ok=False)
    made = btfl("serve-token", "new", "one", "--may", "infer", "--model", "client-*", "--days", "30")
    assert re.fullmatch(r"btfl_[0-9a-f]{12}_[\w-]{43}\n", made)
    checked = btfl("serve", ZOO, "--host", "0.0.0.0", "--check")
    assert "everything is in order" in checked
    assert re.search(r"tokens are\s+asked for", checked)
    listed = btfl("serve-token", "list")
    assert made.strip()[18:] not in listed
    btfl("serve-token", "revoke", listed.split()[0])
    assert btfl("serve-token", "list") == "there are no tokens\n"


def test_a_check_on_loopback_says_that_no_token_is_asked_for(btfl: Callable[..., str]) -> None:
    checked = btfl("serve", ZOO, "--check")
    assert re.search(r"models\s+10", checked)
    assert "not asked for (loopback)" in checked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zoo:nothing"], "entry of the zoo"),
        (["."], "there is no bundle in"),
        ([ZOO, "--method", "tent"], "changes a network with torch"),
        ([ZOO, "--method", "nothing"], "unknown method"),
        ([ZOO, "--method", "knn-per"], "train_features"),
        ([ZOO, "--tls-cert", "missing.pem"], "--tls-key"),
        ([ZOO, "--database", "mysql://x"], "sqlite:///FILE or postgresql"),
        ([ZOO, "--database", "sqlite:////nowhere/at/all.db"], "the database cannot be used"),
        ([ZOO, "--webhook", "file:///etc/passwd"], "http or https"),
        ([ZOO, "--workers", "0"], "1<=x<=64"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(btfl: Callable[..., str], words: list[str], said: str) -> None:
    assert said in btfl("serve", *words, "--check", ok=False)


@pytest.mark.parametrize(
    "words", [["--may", "rule"], ["--may", "infer", "--tenant", "*"], ["--may", "read", "--model", "a/b"], []]
)
def test_tokens_that_make_no_sense_are_refused(btfl: Callable[..., str], words: list[str]) -> None:
    btfl("serve-token", "new", "one", *words, ok=False)
    assert "unknown token" in btfl("serve-token", "revoke", "abc", ok=False)
