"""docs/rules.md agrees with the rules, and its example runs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from tests.paths import ROOT
from vinedresser.rules.registry import RULES
from vinedresser.testing.runs import make_run, step_record

DOCS = ROOT / "docs"
TEXT = (DOCS / "rules.md").read_text(encoding="utf-8")
# Kinds of rules have separate files.
TEXTS = [TEXT, *(path.read_text(encoding="utf-8") for path in (DOCS / "rules").glob("*.md"))]
ALL = "\n".join(TEXTS)


def test_the_tables_are_those_of_the_rules() -> None:
    """`python docs/rule_tables.py` writes them."""
    with_tables = runpy.run_path(str(DOCS / "rule_tables.py"))["with_tables"]
    assert [with_tables(text) for text in TEXTS] == TEXTS


@pytest.mark.parametrize("name", RULES)
def test_parameters_and_defaults_are_those_of_the_rule(name: str) -> None:
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", ALL, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| ([^ ]+) \|", section, re.MULTILINE)
    assert {parameter: json.loads(default) for parameter, default in rows} == RULES[name]().params


def test_the_rules_stand_in_the_order_in_which_they_are_asked() -> None:
    seen = set()
    for text in TEXTS:
        titles = [
            title for title in re.findall(r"^## (\w+)$", text, re.MULTILINE) if title in RULES
        ]
        assert titles == [name for name in RULES if name in titles]
        seen |= set(titles)
    assert seen == set(RULES)


def test_the_example_of_a_rule_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    relu = {"outputs/relu": {"zero_share": 0.99}}
    make_run(tmp_path / "run", [step_record(0, reductions=relu)])
    names: dict[str, object] = {}
    exec(code.replace("runs/digits-1", str(tmp_path / "run")), names)
    (finding,) = names["findings"]  # type: ignore[misc]
    assert finding.seen == "outputs/relu: 99% are zero"  # type: ignore[has-type]
