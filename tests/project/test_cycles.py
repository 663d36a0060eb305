"""Which imports are not allowed: circles, and framework folders of other features."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.project.source_modules import import_graph

FRAMEWORK_FOLDERS = {"keras_", "lightning_", "sklearn_", "torch_", "xgboost_"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_no_feature_imports_the_framework_folders_of_another() -> None:
    """What several features need of a framework is in `vinedresser.frameworks`."""
    found = [
        (name, imported)
        for name, imports in import_graph().items()
        for imported in imports
        if name.startswith("vinedresser.") and imported.startswith("vinedresser.")
        if imported.split(".")[1:2] not in (name.split(".")[1:2], ["frameworks"])
        and FRAMEWORK_FOLDERS & {*imported.split(".")[2:]}
    ]
    assert found == []
