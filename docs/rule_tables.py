"""Tables of the rules in docs/rules.md, docs/rules/ and docs/from_smdebug.md, from the classes.

`python docs/rule_tables.py` writes them; `tests/rules/test_docs.py` compares them.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vinedresser.rules.applicability import FRAMEWORKS
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.chain import declaring_rules
from vinedresser.rules.faults import STAGES
from vinedresser.rules.registry import RULES

DOCS = Path(__file__).parent
PAGES = (DOCS / "rules.md", DOCS / "from_smdebug.md", *sorted((DOCS / "rules").glob("*.md")))
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def with_tables(page: str) -> str:
    """Return the text of a page with the tables of its sections made anew.

    Args:
        page: text in Markdown; the first table below the title of a rule is that of its parameters.
    """
    sections = re.split(r"(?m)^(?=## )", page)
    return "".join(_with_table(section) for section in sections)


def _with_table(section: str) -> str:
    title = section.partition("\n")[0].removeprefix("## ")
    if title in RULES:
        table = _parameters(RULES[title])
    elif title == "Which rules apply where":
        table = _frameworks()
    elif title == "Names of rules":
        table = _predecessors()
    elif title == "Causes and symptoms":
        table = _faults()
    else:
        return section
    return _TABLE.sub(lambda _: table, section, count=1)


def _parameters(rule: type[Rule]) -> str:
    """Return the table of a rule's parameters, from its signature and docstring."""
    entries = (inspect.getdoc(rule) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    meanings = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", entries, re.MULTILINE | re.DOTALL)
    defaults = rule().params
    rows = [
        (f"`{name}`", _in_json(defaults[name]), _in_markdown(meaning)) for name, meaning in meanings
    ]
    return _markdown(("parameter", "default", "meaning"), rows)


def _frameworks() -> str:
    rows = [
        (f"`{name}`", *("" if reason else "yes" for reason in rule.inapplicable))
        for name, rule in RULES.items()
    ]
    return _markdown(("rule", *FRAMEWORKS), rows)


def _faults() -> str:
    """Return the faults in causal order, with what they bring about."""
    rules = sorted(declaring_rules().items(), key=lambda item: STAGES[item[1].stage])
    rows = [(f"`{fault}`", rule.stage, _listed(rule.consequences)) for fault, rule in rules]
    return _markdown(("fault", "stage", "can cause"), rows)


def _predecessors() -> str:
    rows = [(f"`{one}`", f"`{name}`") for name, rule in RULES.items() for one in rule.predecessors]
    return _markdown(("smdebug", "vinedresser"), sorted(rows))


def _listed(consequences: Sequence[str]) -> str:
    stages = [f"all of stage {word}" for word in consequences if word in STAGES]
    return ", ".join([*stages, *(f"`{word}`" for word in consequences if word not in STAGES)])


def _in_json(value: object) -> str:
    """Return a default as JSON, a float in its shortest form, such as 1e-4."""
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return re.sub(r"e-0(\d)$", r"e-\1", text)


def _in_markdown(meaning: str) -> str:
    return " ".join(meaning.split()).replace("``", "`").removesuffix(".")


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in (titles, *rows)]
    return "".join([lines[0], "|" + "---|" * len(titles) + "\n", *lines[1:]])


def main() -> None:
    """Write the tables into the pages."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
