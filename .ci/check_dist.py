"""Install wheels and source distributions apart from this clone, and see that they work: ``check_dist.py FILE...``.

Without their dependencies, which are those of the environment it runs in, so that it takes seconds.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

USES = """
import sys
from pathlib import Path
import btfl
assert Path(btfl.__file__).is_relative_to(sys.argv[1]), btfl.__file__
from btfl.experiments.files import experiment_names
from btfl.report.page import _asset
from btfl.zoo.start import zoo_entries
assert {"demo", "table2"} <= set(experiment_names())
assert len(zoo_entries()) >= 2 and all((entry.folder / "card.json").exists() for entry in zoo_entries())
assert _asset("page.css") and (Path(btfl.__file__).parent / "py.typed").exists()
assert (Path(btfl.__file__).parent / "serve" / "page" / "index.html").exists()
from btfl.core.compiled import walk_of
compiled = [walk_of(f"btfl.methods.{method}._compiled") is not None for method in ("btfl", "coherent")]
assert len(set(compiled)) == 1, compiled
print("compiled" if all(compiled) else "in numpy alone")
"""


def check(package: Path) -> None:
    """Install a package into a folder and use what is in it."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", folder]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(package.resolve())], check=True)
        environment = {**os.environ, "PYTHONPATH": folder}
        steps = subprocess.run(
            [sys.executable, "-c", USES, folder],
            cwd=folder, env=environment, check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        said = subprocess.run(
            [sys.executable, f"{folder}/bin/btfl", "--version"],
            cwd=folder, env=environment, check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
    print(f"{package.name}: installs, has its files, and is {said}, its steps {steps}")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        check(Path(each))
