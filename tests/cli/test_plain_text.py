"""Text of runs is shown as it is: no markup, no control characters, no character that stops it."""

from __future__ import annotations

import ast
import html
import io
import logging
import re
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from tests.project.source_modules import modules
from vinedresser.cli.views.console import PlainConsole, say
from vinedresser.errors import ConfigError, StoreError, UnknownTensor
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.plain_logs import PlainFormatter
from vinedresser.plain_text import visible
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, write_record
from vinedresser.testing.runs import make_run, step_record

SCRIPT = """
import logging

import numpy as np

from vinedresser.capture import Hook

NAME = "a\\x1b[2J\\u202e"
logger = logging.getLogger("vinedresser.capture")
handler = logging.StreamHandler()
handler.setFormatter(logging.Formatter("seen by a handler: %(message)s"))
logger.addHandler(handler)
logger.setLevel(logging.INFO)
with Hook() as hook:
    for step in range(3):
        hook.save(f"weights/{NAME}", object())
        hook.step(loss=1.0)
"""
# What runs contain, and what is to be seen of it.
TEXTS = {
    "KeyError: '[/INST]'": "KeyError: '[/INST]'",
    "expected [batch, 8] but got [red]": "expected [batch, 8] but got [red]",
    "\x1b[2J\x1b]0;title\x07": r"\x1b[2J\x1b]0;title\x07",
    "a\rb\x08c\nd": r"a\rb\x08c\nd",
    "\u202edesrever\u2069": r"\u202edesrever\u2069",
    "\x9b31mred\x85": r"\x9b31mred\x85",
    "lone \ud800 surrogate": r"lone \ud800 surrogate",
    ":smile: \u200d \u00e9 \u6f22": ":smile: \u200d \u00e9 \u6f22",
    "line\u2028separator": r"line\u2028separator",
}


@pytest.mark.parametrize(("text", "seen"), TEXTS.items())
def test_lines_and_cells_show_text_as_it_is(text: str, seen: str) -> None:
    output = io.StringIO()
    console = PlainConsole(file=output, force_terminal=True, width=80, highlight=False)
    table = Table(text, title=None)
    table.add_row(text)
    console.print(table)
    console.print(text)
    say(text, console)
    # The colours of a table are the console's own.
    shown = output.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert shown.count(seen) == 4
    assert "\x1b" not in shown
    shown.encode()


def test_characters_to_keep() -> None:
    assert visible("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
    assert visible("naïve 漢字 👩‍💻") == "naïve 漢字 👩‍💻"


def test_log_lines_with_tracebacks_are_plain() -> None:
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(PlainFormatter(logging.Formatter("%(name)s: %(message)s")))
    logger = logging.getLogger("own")
    logger.addHandler(handler)
    try:
        raise ValueError("\x1b[2J of https://me:word@host")
    except ValueError:
        logger.exception("%s\n of hf_%s", "a\rb", "a" * 32)
    logger.removeHandler(handler)
    lines = output.getvalue().splitlines()
    assert lines[:2] == [r"own: a\rb", " of ***"]
    assert lines[-1] == r"ValueError: \x1b[2J of https://***@host"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs that failed with these texts, and have them as names."""
    store = tmp_path_factory.mktemp("store")
    for number, text in enumerate(TEXTS):
        records = [
            step_record(
                step,
                scalars={f"losses/{text}": 0.5, f"metrics/{text}": 1.0},
                tensors={f"weights/{text}": np.ones(3, np.float32)},
                reductions={f"gradients/{text}": {"l2": 1.0}},
            )
            for step in range(2)
        ]
        folder = store / str(number)
        make_run(folder, records, name=text, parameters={text: text}, created=time.time())
        storage = LocalStorage(folder)
        write_record(storage, ExitRecord("crashed", text, time.time(), code=1))
        finding = Finding(
            "rule", "info", 1, 0, "train", 0, text, "l2", 1.0, 2.0, 0.5, text, text, text
        )
        write_record(storage, finding, key="findings/default.jsonl")
        line = storage.get("findings/default.jsonl").replace(b"\n", b"")
        storage.put("findings/default.jsonl", [line, b"\n"])
    return store


@pytest.mark.thorough
def test_status_shows_messages_as_they_are(store: Path) -> None:
    done = vinedresser("status", str(store), cwd=store, columns=300)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[1:]
    assert len(rows) == len(TEXTS)
    for row, seen in zip(rows, TEXTS.values(), strict=True):
        assert row.rstrip().endswith(seen)


# A terminal escape, markup that is not closed, and a name that cannot be encoded.
@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 2, 6])
def test_show_and_reports_show_names_as_they_are(store: Path, number: int, tmp_path: Path) -> None:
    seen = [*TEXTS.values()][number]
    done = vinedresser("show", str(number), cwd=store, columns=300)
    assert done.returncode == 0, done.stderr
    assert f"   crashed   {seen}" in done.stdout
    assert f"weights/{seen}" in done.stdout
    run = open_run(store / str(number))
    page = write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.escape(seen) in page
    assert not any(letter in page for letter in "\x1b\x07\u202e\ufffd")


@pytest.mark.thorough
def test_an_error_shows_names_as_they_are(store: Path) -> None:
    done = vinedresser("show", "0", "losses/\x1b[31m[/x]", cwd=store)
    assert done.returncode == 2
    assert r"no tensor or scalar losses/\x1b[31m[/x]" in done.stderr


# Calls that print, and those whose text has no data of runs.
PRINTS = {"print", "typer.echo", "sys.stderr.write", "sys.stdout.write", "sys.exit", "SystemExit"}
# Parsing a module takes longer than looking for these calls.
CALLED = re.compile(r"\b(print|echo|write|exit|SystemExit|getLogger)\s*\(")
SAFE = {
    # Numbers, and errors of this package, which are plain as text.
    "sys.exit": r"code|(main|code_of|exit_code)\(.*|\d.*|f'vinedresser: {error}'|str\(error\)",
    "SystemExit": r"code if .*",
    # JSON, whose control characters are escapes, and text of this package.
    "typer.echo": r"answer\.to_json\(\)|json\.dumps\(.*|f'(export|vinedresser) .*|"
    r"'\\n'\.join\(map\(describe, .*",
    "sys.stderr.write": r"f'vinedresser: {sys.executable}: .*",
}


@pytest.mark.thorough
def test_only_plain_text_is_printed_or_logged() -> None:
    raw = []
    for name, module in modules("vinedresser").items():
        if name.startswith(("vinedresser.cli.starters", "vinedresser.testing")):
            continue
        if CALLED.search(module.text) is None:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            told = ast.unparse(node.args[0]) if node.args else ""
            own = called == "logging.getLogger" and told in ("__name__", f"'{name}'")
            safe = "visible" in told or re.fullmatch(SAFE.get(called, "-"), told)
            if own or (called in PRINTS and not safe):
                raw.append(f"{name}:{node.lineno}: {called}({told})")
    assert raw == []


@pytest.mark.thorough
def test_what_the_hook_says_is_plain(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = vinedresser("run", "--name", "plain", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr + (tmp_path / "runs/plain/log.txt").read_text("utf-8")
    for word in ("is not saved", "seen by a handler"):
        assert word in said
    assert r"\x1b[2J\u202e" in said
    assert visible(said, keep="\n") == said


def test_errors_as_text_are_plain_also_in_tracebacks() -> None:
    for kind in (StoreError, UnknownTensor, ConfigError):
        assert str(kind("a\x1b[2J\nb")) == "a\\x1b[2J\nb"
        assert "\x1b" not in "".join(traceback.format_exception(kind("\x1b[2J")))


def test_only_the_console_makes_styled_text() -> None:
    """Elsewhere in the command line text is a string or made by `plain`, which are plain text."""
    made = []
    for path in sorted((ROOT / "vinedresser" / "cli").glob("**/*.py")):
        if path.name == "console.py" or path.parent.name == "starters":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            as_markup = called == "TextColumn" and "markup=False" not in ast.unparse(node)
            if as_markup or called in {"Text", "Text.from_markup", "Text.assemble", "Console"}:
                made.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert made == []
