"""What each rule alone contributes: `python -m benchmarks.ablation FILE...`.

The files are those that ``--verdicts FILE`` of `benchmarks.faults` and `benchmarks.world` write.
The table has a row for each rule and, if it names several faults, for each of them; with
``--detectors``, for each of the causes that it names, by the first words of them: a rule has a
detector for each. A row is computed by leaving its findings out of every verdict; rules that are
silent because of another's finding would then speak, so "only it" is at most what the table says.

found: faulty trainings with a stop or warning of it. only it: those that nothing else finds.
right: faulty trainings whose root cause it names rightly. only right by it: those whose root cause
would be another or none without it. wrong by it: those whose root cause would be right without it.
false: healthy trainings that it stops or warns of. lines: of the module of the rule. µs per step:
processor time of its `update` in the judgement of a generated run with 200 tensors
(`benchmarks.rules`); signals that rules share are not in it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.faults.verdict import Verdict
from benchmarks.rules import write
from vinedresser.rules.base import Rule
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

__all__ = ["ablation", "append_verdicts", "main", "read_verdicts"]

_HEADERS = (
    *("rule", "fault", "found", "only it", "right", "only right by it", "wrong by it", "false"),
    *("lines", "µs per step"),
)
# Of a cause.
_WORDS = 8
_STEPS = 2000
_EVERY = 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--detectors", action="store_true", help="a row for each cause named")
    options = parser.parse_args(arguments)
    verdicts = [verdict for path in options.files for verdict in read_verdicts(path)]
    counted = [verdict for verdict in verdicts if verdict.outcome.as_expected]
    faulty = sum(one.faulty for one in counted)
    print(f"{faulty} faulty and {len(counted) - faulty} healthy trainings.\n")
    print(_markdown(ablation(counted, _costs(), _cause if options.detectors else _fault)))


def append_verdicts(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Append verdicts to a file, one line of JSON each."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(verdict.to_json())}\n" for verdict in verdicts)


def read_verdicts(path: Path) -> list[Verdict]:
    """Return the verdicts of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Verdict.from_json(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{path}: no file of --verdicts: {error!r}")


def _fault(finding: Finding) -> str:
    return finding.fault


def _cause(finding: Finding) -> str:
    """Return the first words of a cause, without its numbers."""
    words = " ".join(re.sub(r"[-+]?\d[\d.,e%+-]*", "#", finding.cause).split()[:_WORDS])
    return f"{finding.fault}: {words}".replace("|", "/")


def ablation(
    verdicts: Sequence[Verdict],
    costs: dict[str, float],
    part: Callable[[Finding], str] = _fault,
) -> list[list[str]]:
    """Return the rows of the table, by rule; the most of what only a rule finds comes first.

    Args:
        verdicts: of the trainings that count.
        costs: µs per step, by rule; of others, the cell is empty.
        part: returns the part of its rule that a finding is of.
    """
    rules = sorted({*RULES, *(found.rule for verdict in verdicts for found in verdict.signs)})
    groups = []
    for rule in rules:
        parts = sorted({part(f) for verdict in verdicts for f in verdict.signs if f.rule == rule})
        whole = _row(verdicts, partial(_is_of, rule, part, None))
        lines = [str(_lines(RULES[rule])) if rule in RULES else ""]
        cost = [f"{costs[rule]:.1f}" if rule in costs else ""]
        named = parts[0] if len(parts) == 1 else ""
        rows = [[rule, named, *map(str, whole), *lines, *cost]]
        for one in parts if len(parts) > 1 else ():
            counts = _row(verdicts, partial(_is_of, rule, part, one))
            rows.append(["", one, *map(str, counts), "", ""])
        groups.append((whole, rows))
    groups.sort(key=lambda group: (-group[0][1], -group[0][3], -group[0][0]))
    return [row for _, rows in groups for row in rows]


def _is_of(rule: str, part: Callable[[Finding], str], one: str | None, finding: Finding) -> bool:
    """Return whether a finding is of a part of a rule, or of any if that is None."""
    return finding.rule == rule and one in (None, part(finding))


def _row(verdicts: Sequence[Verdict], left_out: Callable[[Finding], bool]) -> list[int]:
    found = only = right = only_right = wrong = false = 0
    for verdict in verdicts:
        left = verdict.without(left_out)
        if len(left.signs) == len(verdict.signs):
            continue
        if not verdict.faulty:
            false += 1
            continue
        found += 1
        only += not left.signs
        by_it = verdict.root is not None and verdict.root not in left.findings
        right += verdict.named and by_it
        only_right += verdict.named and not left.named
        wrong += left.named and not verdict.named
    return [found, only, right, only_right, wrong, false]


def _lines(kind: type[Rule]) -> int:
    return len(inspect.getsource(inspect.getmodule(kind) or kind).splitlines())


def _costs() -> dict[str, float]:
    """Return the µs per step of each rule's `update` in the judgement of a generated run."""
    rules = [kind() for kind in RULES.values()]
    spent = dict.fromkeys(RULES, 0.0)
    for rule in rules:
        _time(rule, spent)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "run"), _STEPS, _EVERY)
        judge(open_run(Path(folder, "run")), rules)
    return {name: 1e6 * seconds / _STEPS for name, seconds in spent.items()}


def _time(rule: Rule, spent: dict[str, float]) -> None:
    update = rule.update

    def timed(*arguments: object) -> object:
        begun = time.thread_time()
        try:
            return update(*arguments)  # type: ignore[arg-type]
        finally:
            spent[rule.name] += time.thread_time() - begun

    rule.update = timed  # type: ignore[method-assign, assignment]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(_HEADERS)} |"
        yield f"|{'---|' * len(_HEADERS)}"
        for row in rows:
            yield f"| {' | '.join(row)} |"

    return "\n".join(lines())


if __name__ == "__main__":
    main()
