"""What mkdocs does not do by itself: pages from outside docs/, reference pages, and links between all of them.

``docs/`` is written for readers of the repository, where a link may lead to any file. On the site, links to Markdown
lead to its page, and links to code or folders to a page that shows the file. Nothing leads out of the site.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "website"), str(ROOT / "src")]

import reference  # noqa: E402 - beside this file, which mkdocs imports by its path

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
"""Pages of the repository outside docs/, and what they are called on the site."""
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".ipynb": "json"}
_LONGEST = 60_000  # characters of a file that a page shows


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add pages of docs/ that the navigation does not name to "How-to"."""
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    rest = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    for section in config.nav or ():
        section.get("How-to", []).extend(rest)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the results, the pages of the repository, the reference, and the code that pages link to."""
    for name, place in _PAGES.items():
        if name != "README.md":
            files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.name == "README.md" or path.suffix == ".png":
            there = _place(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, there, abs_src_path=str(path)))
    for place, text in reference.pages().items():
        files.append(File.generated(config, place, content=text))
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "results").rglob("README.md"), *(ROOT / n for n in _PAGES)]
    linked = {target for page in pages for target in _linked(page)}
    for target in sorted(linked):
        if _place(target).startswith("source/"):
            files.append(File.generated(config, _place(target), content=_shown(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages of the site."""
    here = _origin(page.file.src_uri)
    if here is None:
        return markdown

    def moved(found: re.Match[str]) -> str:
        target = _inside(here, found[1])
        if target is None:
            return found[0]
        there = posixpath.relpath(_place(target), posixpath.dirname(page.file.src_uri) or ".")
        return there + (found[2] or "")

    return _LINK.sub(moved, markdown)


def _place(path: str) -> str:
    """Return where a file of the repository is on the site."""
    if path in _PAGES:
        return _PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "results" or path.startswith("results/"):
        inner = path.removeprefix("results").lstrip("/")
        if inner.endswith(".png"):
            return f"numbers/{inner}"
        folder = inner.removesuffix("README.md").strip("/")
        return f"numbers/{folder}/index.md" if folder else "numbers/index.md"
    return f"source/{path.rstrip('/')}.md"


def _origin(place: str) -> str | None:
    """Return which file of the repository a page is made of; None for one that is generated."""
    for name, there in _PAGES.items():
        if there == place and name != "README.md":
            return name
    if place.startswith("numbers/"):
        return "results/" + place.removeprefix("numbers/").replace("index.md", "README.md")
    return None if place.startswith(("reference/", "source/")) else f"docs/{place}"


def _linked(page: Path) -> set[str]:
    """Return the files of the repository that a page links to."""
    here = page.relative_to(ROOT).as_posix()
    found = (_inside(here, match[1]) for match in _LINK.finditer(page.read_text()))
    return {target for target in found if target is not None}


def _inside(here: str, target: str) -> str | None:
    """Return the path in the repository that a link of a page leads to; None if there is nothing."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    return path if (ROOT / path).exists() else None


def _shown(path: Path) -> str:
    """Write the page of a file that is no Markdown, or of a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        listed = sorted(inner for inner in path.rglob("*") if inner.is_file() and "__pycache__" not in inner.parts)
        return "\n".join([f"# {name}", "", *(f"- `{inner.relative_to(ROOT).as_posix()}`" for inner in listed), ""])
    text = path.read_text(errors="replace")
    return f"# {name}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text[:_LONGEST]}\n````\n"
