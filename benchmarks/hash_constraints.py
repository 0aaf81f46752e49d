"""Write constraints-hashed.txt: every pin of constraints.txt with the sha256 of the files that PyPI has of it.

Run as ``python benchmarks/hash_constraints.py`` after a pin has changed; it needs the network. ``--wheels FOLDER`` adds
files that are not on PyPI, such as the CPU build of torch. Then

    pip install --require-hashes --no-deps -r constraints-hashed.txt

installs these very files or nothing. Listed are source archives and wheels for CPython 3.11 and newer on Linux
(x86_64 and aarch64), macOS and Windows.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import urllib.request
from pathlib import Path

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
INDEX = "https://pypi.org/simple"
HEADER = """# Made by benchmarks/hash_constraints.py from constraints.txt: do not edit. With these hashes pip installs
# the files that were tested, or nothing: pip install --require-hashes --no-deps -r constraints-hashed.txt
"""
_LINK = re.compile(r'href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')
_INTERPRETER = re.compile(r"py3|py2\.py3|cp31[1-4]")
_PLATFORM = re.compile(r"any|(many)?linux.*_(x86_64|aarch64)|macosx_.*|win_amd64")


def fits(file: str, version: Version) -> bool:
    """Return whether a file is of this version and can be installed where btfl can."""
    try:
        if not file.endswith(".whl"):
            return parse_sdist_filename(file)[1] == version
        _, found, _, tags = parse_wheel_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return Version(found.public) == version and any(
        (_INTERPRETER.fullmatch(tag.interpreter) or tag.abi == "abi3")
        and not tag.abi.endswith("t")
        and _PLATFORM.fullmatch(tag.platform)
        for tag in tags
    )


def hashes(name: str, version: str, wheels: Path | None) -> list[str]:
    """Return the sha256 of the files of one pin, sorted."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{INDEX}/{normal}/", timeout=60) as answer:
        page = answer.read().decode()
    found = {digest for digest, file in _LINK.findall(page) if fits(file.strip(), Version(version))}
    for path in wheels.glob(f"{name.replace('-', '_')}-*.whl") if wheels else ():
        if fits(path.name, Version(version)):
            found.add(hashlib.sha256(path.read_bytes()).hexdigest())
    if not found:
        raise SystemExit(f"{INDEX} has no file of {name} {version}")
    return sorted(found)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="a folder with wheels that are not on PyPI")
    wheels = parser.parse_args().wheels
    lines = [HEADER]
    for pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if pin and not pin.startswith("#"):
            requirement, _, marker = pin.partition(";")
            name, version = requirement.strip().split("==")
            options = [f"--hash=sha256:{digest}" for digest in hashes(name, version, wheels)]
            condition = f" ;{marker}" if marker else ""
            lines.append(" \\\n    ".join([f"{name}=={version}{condition}", *options]) + "\n")
    (ROOT / "constraints-hashed.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
