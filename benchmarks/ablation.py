"""What each rule alone contributes: `python -m benchmarks.ablation FILE...`.

The files are those that ``--verdicts FILE`` of `benchmarks.faults` and `benchmarks.world` write.
The table has a row for each rule and, if it names several faults, for each of them, since a rule
has a detector per fault. A row is computed by leaving its findings out of every verdict; rules that
are silent because of another's finding would then speak, so "only it" is at most what the table
says.

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
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.faults.verdict import Verdict
from benchmarks.rules import write
from vinedresser.rules.base import Rule
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import open_run

__all__ = ["ablation", "append_verdicts", "main", "read_verdicts"]

_HEADERS = (
    *("rule", "fault", "found", "only it", "right", "only right by it", "wrong by it", "false"),
    *("lines", "µs per step"),
)
_STEPS = 2000
_EVERY = 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    verdicts = [verdict for path in options.files for verdict in read_verdicts(path)]
    counted = [verdict for verdict in verdicts if verdict.outcome.as_expected]
    faulty = sum(one.faulty for one in counted)
    print(f"{faulty} faulty and {len(counted) - faulty} healthy trainings.\n")
    print(_markdown(ablation(counted, _costs())))


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


def ablation(verdicts: Sequence[Verdict], costs: dict[str, float]) -> list[list[str]]:
    """Return the rows of the table, by rule; the most of what only a rule finds comes first.

    Args:
        verdicts: of the trainings that count.
        costs: µs per step, by rule; of others, the cell is empty.
    """
    rules = sorted({*RULES, *(found.rule for verdict in verdicts for found in verdict.signs)})
    groups = []
    for rule in rules:
        faults = sorted({f.fault for verdict in verdicts for f in verdict.signs if f.rule == rule})
        whole = _row(verdicts, rule, None)
        lines = [str(_lines(RULES[rule])) if rule in RULES else ""]
        cost = [f"{costs[rule]:.1f}" if rule in costs else ""]
        named = faults[0] if len(faults) == 1 else ""
        rows = [[rule, named, *map(str, whole), *lines, *cost]]
        if len(faults) > 1:
            rows += [
                ["", fault, *map(str, _row(verdicts, rule, fault)), "", ""] for fault in faults
            ]
        groups.append((whole, rows))
    groups.sort(key=lambda group: (-group[0][1], -group[0][3], -group[0][0]))
    return [row for _, rows in groups for row in rows]


def _row(verdicts: Sequence[Verdict], rule: str, fault: str | None) -> list[int]:
    found = only = right = only_right = wrong = false = 0
    for verdict in verdicts:
        left = verdict.without(rule, fault)
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
