"""The ``__all__`` of a module is exactly what it defines in public."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import vinedresser

MODULES = sorted(
    ["vinedresser"]
    + [found.name for found in pkgutil.walk_packages(vinedresser.__path__, "vinedresser.")]
)


def is_type_variable(value: ast.expr | None) -> bool:
    """Say whether an assigned value is a type variable, which no caller needs by name."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def defined_names(body: list[ast.stmt], *, reexports: bool) -> Iterator[str]:
    """Yield the names that statements at the top of a module bind.

    Args:
        body: the statements.
        reexports: count what is imported from vinedresser too, as in an ``__init__``.
    """
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign() if not is_type_variable(node.value):
                names = (name for target in node.targets for name in ast.walk(target))
                yield from (name.id for name in names if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.ImportFrom(module=str(module)) if reexports:
                if module.startswith("vinedresser"):
                    yield from (alias.asname or alias.name for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from defined_names(node.body, reexports=reexports)


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    path = Path(module.__file__)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = defined_names(tree.body, reexports=path.name == "__init__.py")
    exported = getattr(module, "__all__", [])
    # A name with an underscore is public when it is listed, such as __version__.
    public = {entry for entry in names if not entry.startswith("_") or entry in exported}
    assert public == set(exported)
    assert len(exported) == len(public), "a name is listed twice"
    for entry in exported:
        # A submodule of the same name would hide what is meant.
        assert not isinstance(getattr(module, entry), ModuleType), entry
