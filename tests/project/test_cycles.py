"""Which imports are not allowed: circles, and framework folders of other features."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.project.source_modules import Module, modules


def imported_modules(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """Yield the modules among those known that a module imports anywhere."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in known)
            case ast.ImportFrom(module=str(source)):
                for alias in node.names:
                    submodule = f"{source}.{alias.name}"
                    yield submodule if submodule in known else source


@pytest.mark.thorough
@pytest.mark.parametrize("package", ["vinedresser", "benchmarks", "corpus", "tests"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    known = modules(package)
    graph = {
        name: set(imported_modules(module, known)) & known.keys() - {name}
        for name, module in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.thorough
def test_no_feature_imports_the_framework_folders_of_another() -> None:
    """What several features need of a framework is in `vinedresser.frameworks`."""
    known = modules("vinedresser")
    found = [
        (name, imported)
        for name, module in known.items()
        for imported in imported_modules(module, known)
        if imported.split(".")[1:2] not in (name.split(".")[1:2], ["frameworks"])
        and {"keras_", "lightning_", "sklearn_", "torch_", "xgboost_"} & {*imported.split(".")[2:]}
    ]
    assert found == []
