"""Statements of the documents about the code are true: links, paths, modules, lists of files."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.project.source_modules import import_graph, modules

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "corpus/README.md"])
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
FOLDERS = "vinedresser|tests|benchmarks|corpus|examples|docs"
# A path in this repository.
PATH = re.compile(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]*\w(?:\.(?:py|md|toml|yaml|txt)|/|(?=`))")
SHORT_PATH = re.compile(r"`(?P<path>\w+(?:/\w+)+\.py)`")
NAME = re.compile(r"(?<![\w/.-])(?:vinedresser|tests|benchmarks|corpus)(?:\.\w+)+")
# A format, a tag and the beginnings of events, which read like modules.
EVENTS = {f"vinedresser.monitor.{word}" for word in ("drift", "no", "cannot")}
NOT_MODULES = {"vinedresser.segment.1", "vinedresser.tag", *EVENTS}
BROAD = {"Exception", "BaseException"}


def text_of(document: Path) -> str:
    """Return the text of a document without its blocks of code."""
    return CODE.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    found: dict[str, int] = {}
    for heading in HEADING.finditer(text_of(document)):
        words = re.sub(r"[^\w\- ]", "", heading["text"].lower()).replace(" ", "-")
        found[words] = found.get(words, -1) + 1
        if found[words]:
            found[f"{words}-{found[words]}"] = 0
    return set(found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for link in LINK.finditer(text_of(document)):
        target = document.parent / link["path"] if link["path"] else document
        assert target.exists(), f"{document.name}: {link['path']}"
        if link["anchor"]:
            assert link["anchor"] in anchors(target), f"{document.name}: {link[0]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_modules_in_documents_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    paths = [ROOT / path[0] for path in PATH.finditer(text)]
    missing = [path for path in paths if not path.exists()]
    short = [Path(path["path"]) for path in SHORT_PATH.finditer(text)]
    missing += [
        path
        for path in short
        if not list(ROOT.glob(f"vinedresser/**/{path}")) + list(ROOT.glob(str(path)))
    ]
    assert missing == []
    names = {name[0] for name in NAME.finditer(text)} - NOT_MODULES
    assert [name for name in sorted(names) if not exists(name)] == []


def test_paths_in_source_files_exist() -> None:
    missing = [
        f"{module.path}: {path[0]}"
        for package in ("vinedresser", "tests", "benchmarks", "corpus")
        for module in modules(package).values()
        for path in PATH.finditer(module.text)
        if path[0].endswith((".py", ".md")) and not (ROOT / path[0]).exists()
    ]
    assert missing == []


def exists(name: str) -> bool:
    """Return whether a dotted name is a module or a name in one."""
    known = modules(name.partition(".")[0])
    module = name
    rest: list[str] = []
    while module not in known:
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
        if not module:
            return (ROOT / name.replace(".", "/")).is_dir()
    found = importlib.import_module(module) if rest else None
    for attribute in rest:
        found = getattr(found, attribute, None)
        if found is None:
            return False
    return True


def listed_files(heading: str) -> set[str]:
    """Return the files that CONTRIBUTING lists under a heading."""
    text = ROOT.joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^- `([\w/.]+)`", section, flags=re.MULTILINE))


def catches_all(node: ast.AST) -> bool:
    """Return whether code keeps any exception from its caller."""
    match node:
        case ast.ExceptHandler(type=kind, body=body):
            names = (
                {part.id for part in ast.walk(kind) if isinstance(part, ast.Name)}
                if kind
                else BROAD
            )
            raised = isinstance(body[-1], ast.Raise) and body[-1].exc is None
            return bool(names & BROAD) and not raised
        case ast.Call(func=function, args=arguments) if "suppress" in ast.unparse(function):
            return bool({ast.unparse(argument) for argument in arguments} & BROAD)
    return False


def test_the_files_that_import_mlflow_are_those_listed() -> None:
    known = modules("vinedresser")
    found = {
        str(known[name].path)
        for name, imports in import_graph().items()
        if name in known and "mlflow" in imports
    }
    assert found == listed_files("Files that import mlflow")


@pytest.mark.thorough
def test_the_files_that_catch_all_exceptions_are_those_listed() -> None:
    found = {
        str(module.path)
        for module in modules("vinedresser").values()
        if re.search(r"Exception|except\s*:", module.text)
        and any(catches_all(node) for node in ast.walk(module.tree))
    }
    assert found == listed_files("Files that catch all exceptions")
