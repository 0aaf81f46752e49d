"""Every code block and command of README and docs is run by a test, or says why not; and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from btfl.cli.app import app
from docs.blocks import EVERY, PAGES, ROOT, Block

LINK = re.compile(r"(?:\]\(|src=\")(?!https?:|mailto:)([^)#\"\s]*)(#[^)\"\s]*)?")
LANGUAGES = {"python", "sh", "text", "toml", "json", "yaml", "ini"}
WITH_PYTHON = sorted({block.page for block in EVERY if block.kind == "python" and not block.mark})


def test_every_block_is_of_a_known_kind_and_a_mark_says_more_than_a_word() -> None:
    assert {block.kind for block in EVERY} <= LANGUAGES
    for block in EVERY:
        assert not block.mark or len(block.about) > 10, block.place
        assert all(1 <= number <= len(block.commands) for number in block.some), block.place
        for test in re.findall(r"\b(tests/[\w/]+(?:\.py)?)", block.about):
            assert (ROOT / test).exists(), f"{block.place} names {test}"


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_runs_as_printed(page: str, tmp_path: Path) -> None:
    """All of a page's blocks, one after the other: the later ones may use what the first has made."""
    code = [block.text for block in EVERY if block.page == page and block.kind == "python" and not block.mark]
    (tmp_path / "printed.py").write_text("\n".join(code))
    done = subprocess.run([sys.executable, "printed.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [block for block in EVERY if block.kind == "sh"], ids=lambda block: block.place)
def test_commands_of_btfl_have_the_options_they_are_shown_with(block: Block) -> None:
    """Those that are not run, too."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    for command in block.commands:
        if not command.startswith("btfl "):
            continue
        words = shlex.split(re.split(r"\s[|>]\s|\s\.\.\.", command)[0])
        if words[1].startswith("-"):
            continue
        found: click.Command = group
        names = words[1:]
        while isinstance(found, click.Group):
            found, names = found.commands[names[0]], names[1:]
        with found.make_context("btfl", names):
            pass


def test_every_link_leads_somewhere() -> None:
    pages = [*PAGES, *(ROOT / "results").rglob("README.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/*/*.md")]
    for page in dict.fromkeys(pages):
        for target, anchor in LINK.findall(page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.relative_to(ROOT)} links to {target}, which does not exist"
            if anchor and there.suffix == ".md":
                assert anchor[1:] in anchors(there), f"{page.relative_to(ROOT)} links to {target}{anchor}"


def anchors(page: Path) -> set[str]:
    """Name the headings of a page as links do."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    plain = (re.sub(r"[^\w\- ]", "", text).strip().lower() for text in words)
    return {text.replace(" ", "-") for text in plain}
