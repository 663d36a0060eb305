"""Examples in the documents work.

Each document is a session in one temporary directory, from its first block to its last:

- ``console``: every line after ``$ `` is a command. `vinedresser` and `python` are run and must
  succeed; where output is shown it must be what they print, with ``...`` for what varies. After
  `make` must stand a target of the Makefile; it is not run.
- ``python``, ``toml``: a block whose first line is ``# NAME.py`` or ``# NAME.toml`` is a file, and
  is written under that name; other Python blocks are run, other TOML blocks are read.
- ``json`` is read. ``text`` is for people only.

A block that cannot run says why in a line before it: ``<!-- not run: it waits for a person -->``.
Where its commands end with another exit code than 0, the line is ``<!-- exit code 3 -->``.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.paths import ROOT
from tests.warm_python import COMMANDS, TORCH

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "corpus/README.md"])
BLOCK = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^\n]+)|exit code (?P<code>\d+)) -->\n)?"
    r"```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# They load frameworks many times.
THOROUGH = (
    *("README.md", "asking.md", "attention.md", "comparing.md", "data.md", "getting_started.md"),
    *("preflight.md", "sagemaker.md", "saliency.md", "serving.md", "steering.md", "trees.md"),
)
# Those that run a sweep, a monitor or replays.
SLOW = ("learned.md", "monitoring.md", "pruning.md", "snapshots.md")
FILE = re.compile(r"# (?P<name>[\w./-]+\.(?:py|toml))\n")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language and content, why it is not run ("" if it is), its exit code."""

    language: str
    body: str
    reason: str
    code: int


class Command(NamedTuple):
    """A command of a console block, its exit code, and the output shown below it ("" for none)."""

    words: list[str]
    code: int
    output: str


def blocks(document: Path) -> list[Block]:
    """Return the blocks of a document.

    Raises:
        AssertionError: there is a fence that the pattern does not understand.
    """
    text = document.read_text(encoding="utf-8")
    found = [
        Block(match["language"], match["body"], match["reason"] or "", int(match["code"] or 0))
        for match in BLOCK.finditer(text)
    ]
    fences = sum(line.lstrip().startswith("```") for line in text.splitlines())
    assert fences == 2 * len(found), f"{document.name}: a fence is indented or left open"
    return found


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block; a line that ends in a backslash goes on."""
    body = block.body.replace("\\\n", " ")
    assert body.startswith("$ "), f"a console block begins with a command:\n{body}"
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(shlex.split(line, comments=True), block.code, output)


def run(words: list[str], directory: Path, code: int = 0) -> str:
    """Run a program in the session's directory and return what it printed.

    Raises:
        AssertionError: it ended with another exit code.
    """
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    # As for a new user, Prefect is not set up.
    outside = {name: value for name, value in os.environ.items() if name != "PREFECT_HOME"}
    environment = {**outside, "PATH": path}
    if words[0] == "python":
        done = TORCH.run(words[1:], directory, environment, merged=True)
    else:
        program = [str(scripts / words[0]), *words[1:]]
        done = COMMANDS.run(program, directory, environment, merged=True)
    assert done.returncode == code, f"$ {shlex.join(words)}\n{done.stdout}"
    return done.stdout


def follow_command(command: Command, directory: Path) -> None:
    """Run a command; only check a make target."""
    program = command.words[0]
    if program == "make":
        targets = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
        assert command.words[1] in targets, f"make {command.words[1]}: no such target"
        return
    assert program in ("vinedresser", "python"), f"{program}: may not be run; say why it is not"
    printed = run(command.words, directory, command.code)
    if command.output:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = doctest.OutputChecker().check_output(command.output, printed, flags)
        assert same, (
            f"$ {shlex.join(command.words)}\n{printed}\nis not what is shown:\n{command.output}"
        )


def follow_file(block: Block, directory: Path) -> None:
    """Write a block that is a file; run or parse any other."""
    if block.language == "toml":
        tomllib.loads(block.body)
    if named := FILE.match(block.body):
        (directory / named["name"]).write_text(block.body, encoding="utf-8")
    elif block.language == "python":
        run(["python", "-c", block.body], directory)


def cost(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a document's test."""
    if name in SLOW:
        return [pytest.mark.slow]
    return [pytest.mark.thorough] if name in THOROUGH else []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "document",
    [pytest.param(path, marks=cost(path.name)) for path in DOCUMENTS],
    ids=lambda path: path.name,
)
def test_blocks_work(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.reason:
            continue
        match block.language:
            case "console":
                for command in commands(block):
                    follow_command(command, tmp_path)
            case "python" | "toml":
                follow_file(block, tmp_path)
            case "json":
                json.loads(block.body)
            case language:
                assert language == "text", f"```{language}: not a language that is checked"
