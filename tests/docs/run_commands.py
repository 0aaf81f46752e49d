"""Run every command of README and docs, as printed, in a fresh clone: ``python tests/docs/run_commands.py [FOLDER]``.

``make demo`` comes first, because it sets the clone up. Then the pages one after the other, each in one shell in the
clone's own folder, with the clone's environment. What a page marks as not run, or as run by a test, is left out
(``blocks.py``). It takes some twenty minutes on two cores, and needs CIFAR-10 in the cache or a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.blocks import EVERY, ROOT, Block

_BY_HERE = "tests/docs/run_commands.py"


def run_all(folder: Path) -> list[str]:
    """Run everything in a clone below a folder; return what went wrong, a line each."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    environment = {**os.environ, "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    wrong = []
    for setting_up in ("make demo", "make .venv/.ready-to-test"):
        wrong += _run(setting_up, clone, environment, setting_up)
    shutil.copytree(clone / "runs", folder / "runs")
    for page in dict.fromkeys(block.page for block in EVERY):
        script = "\n".join(line for block in EVERY if block.page == page for line in _lines(block))
        if script:
            shutil.rmtree(clone / "runs")  # each page finds what the demo has left, and nothing of other pages
            shutil.copytree(folder / "runs", clone / "runs")
            wrong += _run(page, clone, environment, script)
    return wrong


def _lines(block: Block) -> list[str]:
    if block.kind == "python":
        return [f"python - <<'PRINTED'\n{block.text}\nPRINTED"] if _BY_HERE in block.about else []
    return block.to_run if block.kind == "sh" else []


def _run(what: str, clone: Path, environment: dict[str, str], script: str) -> list[str]:
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script], cwd=clone, env=environment, capture_output=True, text=True
    )
    print(
        f"{what}: exit {done.returncode}, {time.monotonic() - began:.0f} s, {len(script.splitlines())} lines",
        flush=True,
    )
    if done.returncode == 0:
        return []
    commands = [line[2:] for line in done.stderr.splitlines() if line.startswith("+ ")]
    return [f"{what}: {commands[-1] if commands else script}: {done.stderr.strip().splitlines()[-1]}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = run_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch))
    sys.exit("\n".join(found) if found else 0)
