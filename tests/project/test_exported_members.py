"""The ``__all__`` of a module equals its public names; a single one need not be listed."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

from tests.project.source_modules import Module, modules

# The starters are scripts for users, not modules.
MODULES = {
    name: module
    for name, module in modules("vinedresser").items()
    if not name.startswith("vinedresser.cli.starters.")
}


def is_type_variable(value: ast.expr | None) -> bool:
    """Return whether an assigned value is a type variable; callers need none."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def assigned_names(targets: list[ast.expr]) -> Iterator[str]:
    """Yield the names that assignment targets bind."""
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def defined_names(body: list[ast.stmt], *, reexports: bool) -> Iterator[str]:
    """Yield the names that top-level statements bind.

    Args:
        body: Statements.
        reexports: Include names imported from vinedresser, as an ``__init__`` does.
    """
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign() if not is_type_variable(node.value):
                yield from assigned_names(node.targets)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.ImportFrom(module=str(module)) if reexports:
                if module.startswith("vinedresser"):
                    yield from (alias.asname or alias.name for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from defined_names(node.body, reexports=reexports)


def exported_names(module: Module) -> list[str]:
    """Return a module's ``__all__``."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def offences(name: str, module: Module) -> Iterator[str]:
    """Yield what is wrong with the ``__all__`` of a module."""
    package = module.path.name == "__init__.py"
    exported = exported_names(module)
    if len(exported) > len(set(exported)):
        yield f"{name}: __all__ contains a name twice"
    names = set(defined_names(module.tree.body, reexports=package)) - {"__all__", "__getattr__"}
    # A name with an underscore is public if it is listed, such as __version__.
    public = {entry for entry in names if not entry.startswith("_") or entry in exported}
    listed = package or exported or len(public) > 1
    if listed and (missing := public - set(exported)):
        yield f"{name}: not in __all__: {', '.join(sorted(missing))}"
    if unknown := set(exported) - public:
        yield f"{name}: in __all__, but not defined: {', '.join(sorted(unknown))}"
    # A submodule would be found in place of the name.
    if hidden := [entry for entry in exported if package and f"{name}.{entry}" in MODULES]:
        yield f"{name}: also submodules: {', '.join(hidden)}"


def test_all_equals_the_public_names() -> None:
    assert [text for name, module in MODULES.items() for text in offences(name, module)] == []


def test_every_module_can_be_imported() -> None:
    for name in MODULES:
        importlib.import_module(name)
