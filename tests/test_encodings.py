"""Texts are UTF-8 whatever the locale: no file is read or written as text without saying so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "btfl"


def says_no_encoding(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if any(each.arg == "encoding" for each in call.keywords):
        return False
    if name in ("read_text", "write_text"):
        return True
    words = [
        one.value for one in (*call.args, *(each.value for each in call.keywords)) if isinstance(one, ast.Constant)
    ]
    modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwaxbt+")]
    as_text = not any("b" in mode for mode in modes)
    return name == "open" and as_text and (bool(modes) or not call.args)


def test_every_text_names_its_encoding() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and says_no_encoding(node)
    ]
    assert not found


CODE = """
import sys
from pathlib import Path
from btfl.experiments.files import read_experiment
from btfl.storage import read_json
folder = Path(sys.argv[1])
print(ascii([read_json(folder / "a.json"), read_experiment(folder / "a.toml").values["name"]]))
"""


def test_a_locale_that_is_not_utf_8_changes_no_letter(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["Zürich"]', encoding="utf-8")
    (tmp_path / "a.toml").write_text('name = "Zürich"', encoding="utf-8")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], env=plain, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == ascii([["Zürich"], "Zürich"])
