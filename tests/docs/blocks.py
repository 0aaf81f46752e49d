"""The code blocks of README and docs: what each is, and whether it is run.

A comment above a block says so where it is not obvious: ``<!-- not run: WHY -->`` for what is run by nobody,
``<!-- not run (2, 3): WHY -->`` for some of its commands, and ``<!-- run by: TEST -->`` for what has a test of its own.
All other Python is run page by page (``test_blocks.py``), all other commands in a fresh clone (``run_commands.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = (
    "btfl", "make", "pip", "python", "pytest", "curl", "docker", "cd", "export", "mkdir", "printf", "echo", "openssl",
    "flower-superlink", "flower-supernode", "flwr", "ssh-keygen", "tensorboard", "npm",
)  # fmt: skip
"""What a line of commands begins with."""
_MARK = re.compile(r"<!-- (not run|run by)(?: \(([\d, ]+)\))?: (.+?) -->", re.S)
_IN_BLOCK = re.compile(r"# (not run)(?: \(([\d, ]+)\))?: (.+)")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Parameters
    ----------
    page : its name
    line : where its first line is
    kind : ``python``, ``sh``, another language, or ``text`` (neither code nor commands)
    text : as printed
    mark, about : ``not run`` and why, ``run by`` and by what, or empty
    some : the commands that the mark is about, counted from 1; empty for all
    """

    page: str
    line: int
    kind: str
    text: str
    mark: str = ""
    about: str = ""
    some: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def to_run(self) -> list[str]:
        """The commands that the page runs as they are."""
        left = range(1, len(self.commands) + 1) if self.mark and not self.some else self.some
        return [command for number, command in enumerate(self.commands, start=1) if number not in left]

    @property
    def commands(self) -> list[str]:
        """Its commands: continued lines joined, comments at the end left out."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = (re.sub(r"\s+# .*$", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, fenced and indented."""
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines, i, above = page.read_text().splitlines(), 0, ""
    while i < len(lines):
        line = lines[i]
        if line.startswith("```"):
            end = next(j for j in range(i + 1, len(lines)) if lines[j].startswith("```"))
            yield _block(page, i + 1, line[3:].strip() or "text", "\n".join(lines[i + 1 : end]), above)
            i, above = end + 1, ""
        elif line.startswith("    ") and not lines[i - 1].strip() and not _in_a_list(lines[:i]):
            ends = (j for j in range(i, len(lines)) if lines[j].strip() and not lines[j].startswith("    "))
            text = "\n".join(each[4:] for each in lines[i : next(ends, len(lines))]).rstrip()
            kind = "sh" if text.split()[0] in PROGRAMS else "text"
            yield _block(page, i, kind, text, above)
            i, above = i + len(text.splitlines()), ""
        else:
            comment = line.startswith("<!--") or (above and (not line.strip() or "-->" not in above))
            above = f"{above}\n{line}" if comment else ""
            i += 1


def _block(page: Path, line: int, kind: str, text: str, above: str) -> Block:
    found = _MARK.search(above) or _IN_BLOCK.match(text)
    if found is None:
        return Block(page.name, line + 1, kind, text)
    mark, some, about = found.groups()
    return Block(page.name, line + 1, kind, text, mark, about, tuple(map(int, re.findall(r"\d+", some or ""))))


def _in_a_list(before: list[str]) -> bool:
    """Whether the last paragraph that is not indented is an item of a list."""
    last = next((line for line in reversed(before) if line.strip() and not line.startswith(" ")), "")
    return bool(re.match(r"([-*]|\d+\.) ", last))


EVERY = [block for page in PAGES for block in blocks(page)]
