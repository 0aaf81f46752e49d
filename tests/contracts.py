"""A contract for import-linter: some modules import these libraries and the standard library, and nothing else."""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """``modules`` (and all below them) import from ``allowed``, from each other, and from nothing else."""

    type_name = "only"
    modules: Any = fields.ListField(subfield=fields.StringField())
    allowed: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        inside = {name for module in self.modules for name in {module, *graph.find_descendants(module)}}
        known = {*self.allowed, *sys.stdlib_module_names}
        broken = [
            (importer, imported)
            for importer in sorted(inside)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported not in inside and imported.split(".")[0] not in known
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}", bold=False)
