"""The modules of the repository, and which of them import which."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import grimp

from tests.paths import ROOT

__all__ = ["Module", "import_graph", "modules"]

PACKAGES = ("vinedresser", "benchmarks", "corpus", "tests")


class Module(NamedTuple):
    """A module's file, relative to the repository."""

    path: Path

    @property
    def text(self) -> str:
        """The source."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        """The syntax tree; those of a package are hundreds of megabytes."""
        return ast.parse(self.text)


@cache
def modules(package: str) -> dict[str, Module]:
    """Return the modules of a top-level package by dotted name."""
    found = {}
    for file in sorted(ROOT.glob(f"{package}/**/*.py")):
        path = file.relative_to(ROOT)
        parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
        found[".".join(parts)] = Module(path)
    return found


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules of this repository and the packages that each module imports anywhere."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
