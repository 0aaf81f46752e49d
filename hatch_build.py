"""Compile the steps of both methods when btfl is built, if there is a C compiler; without one btfl is numpy alone.

Every ``_compiled.c`` of the package becomes a module beside it, for Python's stable ABI, so that one wheel serves 3.11
and all that follow. ``BTFL_COMPILED=0`` builds without.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

# The same bits on every processor need each product and each sum rounded by itself.
_FLAGS = {
    "unix": ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno"],
    "msvc": ["/std:c11", "/O2", "/fp:precise"],
}


class CompiledSteps(BuildHookInterface):  # type: ignore[misc, unused-ignore]
    """Puts the modules into the source tree, and from there into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before anything is packed."""
        if self.target_name != "wheel" or os.environ.get("BTFL_COMPILED") == "0":
            return
        os.chdir(self.root)
        if not compile_all(Path("src")):
            self.app.display_warning("no C compiler, or no headers of Python: btfl is built without compiled steps")
            return
        build_data["artifacts"] += ["_compiled.*.so", "_compiled.*.pyd"]
        if version == "standard":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"], build_data["tag"] = False, f"cp311-abi3-{platform}"


def compile_all(source: Path) -> bool:
    """Compile each ``_compiled.c`` below a folder beside itself; return whether it could be done."""
    flags = _FLAGS["msvc" if os.name == "nt" else "unix"]
    extensions = [
        Extension(
            ".".join(file.with_suffix("").relative_to(source).parts),
            [str(file)],
            extra_compile_args=flags,
            py_limited_api=True,
            optional=True,  # a failure is a warning
        )
        for file in sorted(source.rglob("_compiled.c"))
    ]
    command = Distribution({"ext_modules": extensions, "package_dir": {"": str(source)}}).get_command_obj("build_ext")
    command.inplace = command.force = True
    with tempfile.TemporaryDirectory() as folder:
        command.build_lib = command.build_temp = folder
        command.ensure_finalized()
        modules = [Path(command.get_ext_fullpath(extension.name)) for extension in extensions]
        for module in modules:
            module.unlink(missing_ok=True)  # of an earlier build
        command.run()
    return all(module.exists() for module in modules)
