"""An object of the user's own is found by ``module:Name``, or the sentence says why not."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from btfl.errors import InputError
from btfl.imports import load_object, named_in, only_trusted


def test_an_object_is_found_by_module_and_name() -> None:
    assert load_object("collections:OrderedDict", "model") is OrderedDict


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("collections", "write a model of your own as 'package.module:Name'"),
        ("collections:", "package.module:Name"),
        ("../collections:OrderedDict", "package.module:Name"),
        ("no_such_package.inner:Name", "there is no module 'no_such_package'"),
        ("collections.inner:Name", r"there is no module 'collections\.inner'"),
        ("collections:Absent", "'collections' has no 'Absent'"),
        ("string:digits", "'digits' of the module 'string' is not a class or a function"),
    ],
)
def test_what_cannot_be_found_says_why(path: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^model '.*{message}"):
        load_object(path, "model")


def test_the_caller_says_what_would_do() -> None:
    with pytest.raises(InputError, match="is not a class"):
        load_object("os.path:join", "method", lambda found: isinstance(found, type), "a class")


def test_an_import_that_fails_inside_the_module_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_broken_for_imports.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        load_object("own_broken_for_imports:Name", "model")


def test_only_what_is_trusted_is_imported_and_the_sentence_says_who_named_it() -> None:
    with only_trusted(["collections:OrderedDict"], flags=("--trust-code", "--model")), named_in("got.toml"):
        assert load_object("collections:OrderedDict", "model") is OrderedDict
        with pytest.raises(
            InputError, match=r"^got\.toml names the model 'collections:deque'.*--model collections:deque"
        ):
            load_object("collections:deque", "model")
        with only_trusted(everything=True):
            load_object("collections:deque", "model")
    load_object("collections:deque", "model")


def test_the_working_folder_is_searched_last_for_what_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_in_the_folder.py").write_text("def Name(): pass\n")
    (tmp_path / "colorsys.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    before = list(sys.path)
    with only_trusted(["own_in_the_folder:Name", "colorsys:rgb_to_hsv"]):
        load_object("own_in_the_folder:Name", "model")
        load_object("colorsys:rgb_to_hsv", "model")  # the one of the standard library
        assert sys.path == [*before, str(tmp_path)]
    assert sys.path == before
