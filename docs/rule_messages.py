"""docs/rules/messages.md: what the rules say, as they said it in the trainings of their tests.

`python -m docs.rule_messages` runs these tests, which takes minutes, and writes the page; with
`tests/rules/contracts`, only the sections of the rules that are tested there are made anew.
`tests/rules/test_messages.py` checks that all of it is made of today's texts.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

import vinedresser.rules
from vinedresser.rules import rule_runner
from vinedresser.rules.findings_file import finding_line
from vinedresser.rules.registry import RULES
from vinedresser.rules.rule_runner import worded
from vinedresser.store.finding import Finding

PAGE = Path(__file__).parent / "rules" / "messages.md"
_HEAD = """# Messages of the rules

What the rules say, with the numbers and names of the trainings in their tests: what was seen, the
likely cause, and what to try. `python -m docs.rule_messages` makes this page. A sentence about the
outcome, such as "accuracy 0.1 where guessing gives 0.1", follows many of them.
"""
# Those with trainings, or with runs like theirs.
_CHOICE = ("-m", "not slow", "-k", "not any_numbers and not robust")
_ALL = ("tests/rules",)
# The folder for the findings, while the tests run.
_FOLDER = "RULE_MESSAGES_FOLDER"
# Two messages as similar as this, without their numbers, are shown once.
_ALIKE = 0.7
# Words of a sentence that no text of the rules has: those of names.
_MOST_FOREIGN = 3


def pytest_configure() -> None:
    """Write down the findings of rules, as a plugin of pytest in each of its processes."""

    def heard(finding: Finding) -> Finding:
        found = worded(finding)
        with Path(os.environ[_FOLDER], f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(finding_line(found) + "\n")
        return found

    patch.object(rule_runner, "worded", heard).start()


def page_of(findings: Iterable[Finding], before: str = "") -> str:
    """Return the page: the different messages of each rule, in the order of the rules.

    Args:
        findings: what the rules say.
        before: an earlier page, of which the sections of all other rules are kept.
    """
    sections = re.findall(r"(?ms)^### `(\w+)`\n\n(.*?)\n*(?=^### |\Z)", before)
    kept = {name: f"{text}\n" for name, text in sections}
    shown: dict[str, list[Finding]] = {name: [] for name in RULES}
    for finding in sorted(findings, key=lambda one: (len(one.seen), _text(one))):
        known = shown.get(finding.rule)
        if known is not None and not any(_alike(finding, one) for one in known):
            known.append(finding)
    texts = {name: "".join(map(_entry, of)) or kept.get(name, "") for name, of in shown.items()}
    return _HEAD + "".join(f"\n### `{name}`\n\n{text}" for name, text in texts.items() if text)


def _alike(one: Finding, two: Finding) -> bool:
    own, other = (re.sub(r"[\d.,]+", "0", _text(each)) for each in (one, two))
    return difflib.SequenceMatcher(None, own, other, autojunk=False).ratio() > _ALIKE


def _text(finding: Finding) -> str:
    return " | ".join((finding.seen, finding.cause, finding.remedy))


def _entry(finding: Finding) -> str:
    remedy = f"    - Try: {_escaped(finding.remedy)}\n" if finding.remedy else ""
    return (
        f"- {finding.severity}: **{_escaped(finding.seen)}**\n"
        f"    - Likely cause: {_escaped(finding.cause)}\n{remedy}"
    )


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>\[\]`|])", r"\\\1", text)


def outdated(page: str) -> list[str]:
    """Return the sentences of a page that today's rules would not say.

    Without the texts that the modules of the rules contain, hardly a word is left of a sentence.
    """
    lines = re.findall(r"(?m)^ *- (?:\w+: \*\*|[\w ]+: )(.*?)(?:\*\*)?$", page)
    return [line for line in lines if len(_foreign(line)) > _MOST_FOREIGN]


def _foreign(sentence: str) -> list[str]:
    """Return the words of a sentence that are no part of any text of the rules."""
    rest = re.sub(r"\\(.)", r"\1", sentence)
    for text in _texts():
        rest = rest.replace(text, " · ")
    # Names have digits, points, underscores or slashes.
    return [word for word in rest.split() if re.fullmatch(r"[(]?[A-Za-z'-]{3,}[,;:.)]*", word)]


@cache
def _texts() -> Sequence[str]:
    """Return the texts in the source of the rules, the longest first."""
    found = set()
    for path in Path(vinedresser.rules.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value.strip())
    return sorted((text for text in found if len(text) > 3), key=len, reverse=True)


def main(*places: str) -> None:
    """Run the tests of the rules and write the page.

    Args:
        places: files and folders of tests; none: all tests of the rules.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_FOLDER] = folder
        code = pytest.main(
            ["-q", "-n", "2", "-p", "docs.rule_messages", *_CHOICE, *(places or _ALL)]
        )
        if code:
            sys.exit(f"the tests of the rules failed ({code}); the page is as it was")
        lines = (line for path in Path(folder).iterdir() for line in path.read_text().splitlines())
        found = [Finding.from_json(json.loads(one)) for one in lines]
        before = PAGE.read_text(encoding="utf-8") if places else ""
        PAGE.write_text(page_of(found, before), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
