"""Judgement of trainings of many kinds: `python -m benchmarks.world`.

Draws pairs of a healthy training and the same with one fault, from the families of `corpus/`, as
users write them. Each is trained to its end in a process of its own, as an unchanged script or with
a hook, and judged by the default rules. Its family measures the outcome by itself: a healthy
training is counted if it ends well with a margin, a faulty one if it ends clearly worse than its
healthy twin. Found: a finding of severity stop or warning about the training. Right cause: the root
cause among the findings up to the stop has the right class (`benchmarks/faults/classes.py`).

With `--keep DIR` the runs stay in DIR, and `--judge DIR` judges them again without training. That
finds new figures after a change of rules, except of rules that need other data than was captured.
With `--verify`, nothing is judged: only the outcomes of the trainings are measured and printed;
without `--keep`, they are not captured either. With `--two`, each faulty training has two faults.
With `--recipes`, nothing is drawn: the trainings are those of `corpus/recipes/`, which
follow public examples and papers in their settings, one pair for each of their faults.
With `--reliability FILE`, the share of right root causes by fault is written to a file, such as
`vinedresser/rules/causes/reliability.json`, by which findings state their confidence.
With `--references 3`, each training is judged with and without three good runs: the healthy one
with other random weights and batches. Families are split in two halves, one of which the limits of
the rule `reference` were tuned on.
With `--outcomes`, only the rules' view of the outcome is: how often it is right at shares of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.ablation import append_verdicts
from benchmarks.faults.processes import in_processes
from benchmarks.faults.verdict import Verdict
from benchmarks.world.calibration import reliability
from benchmarks.world.cases import carried, draw_cases, every_case, matches, only, repeated
from benchmarks.world.judging import judge_stored
from benchmarks.world.outcome_errors import outcome_errors
from benchmarks.world.pairing import paired
from benchmarks.world.references import beside_good_runs, good_cases
from benchmarks.world.report import report
from benchmarks.world.stored import NOTED, StoredCase, stored_cases
from benchmarks.world.verification import verification
from vinedresser.errors import ConfigError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, judge and print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="world-") as folder:
        keep = options.judge or options.keep or Path(folder)
        if not options.judge:
            _train(options, keep)
        found = [case for case in stored_cases(keep) if _chosen(case, options.only)]
        cases = [one for one in found if not one.case.repeat]
        if options.verify:
            print(verification(cases))
            return
        if options.outcomes:
            print(outcome_errors(cases, options.jobs))
            return
        verdicts = _judged(options, cases)
        if options.references:
            good = good_cases(found, options.references)
            cases = [case for case in cases if case.case.pair in good]
            judged = _judged(options, cases, good)
            ids = {one.id for one in judged}
            print(beside_good_runs([verdict for verdict in verdicts if verdict.id in ids], judged))
            return
    if options.reliability:
        text = json.dumps(reliability(verdicts), indent=2)
        options.reliability.write_text(f"{text}\n", encoding="utf-8")
    if options.verdicts:
        append_verdicts(options.verdicts, verdicts)
    print(report(verdicts, verbose=options.verbose))


def _judged(
    options: argparse.Namespace,
    cases: Sequence[StoredCase],
    good: Mapping[str, Sequence[StoredCase]] | None = None,
) -> list[Verdict]:
    """Judge cases, perhaps beside good runs by pair."""
    begun = time.perf_counter()
    verdicts = []
    for one in judge_stored(cases, options.jobs, options.preset, good):
        verdicts.append(one)
        _say(f"judged {len(verdicts)} of {len(cases)}  {one.id}")
    _say(f"judged {len(verdicts)} in {time.perf_counter() - begun:.0f} s")
    return verdicts


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws", type=int, default=260, help="pairs to train (default: 260); not with --recipes"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (default: 0)")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="family, fault or FAMILY/FAULT to draw or judge (default: all)",
    )
    world = parser.add_mutually_exclusive_group()
    world.add_argument("--sealed", action="store_true", help="draw from the sealed families")
    world.add_argument(
        "--recipes", action="store_true", help="train every recipe, healthy and with each fault"
    )
    parser.add_argument(
        "--two", action="store_true", help="two faults at a time in each faulty training"
    )
    parser.add_argument(
        "--references",
        type=int,
        default=0,
        metavar="N",
        help="also judge beside N good runs: the healthy training with other random weights and "
        "batches (default: 0)",
    )
    parser.add_argument("--preset", default="default", help="preset of the rules")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent processes (default: 2)")
    runs = parser.add_mutually_exclusive_group()
    runs.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs in DIR")
    runs.add_argument("--judge", type=Path, metavar="DIR", help="judge the runs in DIR again")
    parser.add_argument("--verbose", action="store_true", help="print the findings of each case")
    parser.add_argument(
        "--verdicts", type=Path, metavar="FILE", help="append the verdicts (benchmarks.ablation)"
    )
    parser.add_argument(
        "--verify", action="store_true", help="verify the outcomes, without judging the runs"
    )
    parser.add_argument(
        "--outcomes", action="store_true", help="judge the rules' view of the outcome only"
    )
    parser.add_argument(
        "--reliability", type=Path, metavar="FILE", help="write the shares of right root causes"
    )
    options = parser.parse_args(arguments)
    if options.recipes and options.two:
        parser.error("the faults of --recipes come one at a time: use it without --two")
    if options.verify and options.judge:
        parser.error("--verify does not judge: use it without --judge")
    return options


def _train(options: argparse.Namespace, keep: Path) -> None:
    """Train what was not trained before."""
    # Judging alone does not need the frameworks that families import.
    from benchmarks.world.training import train_case
    from corpus.loader import load

    try:
        part = "sealed" if options.sealed else "recipes" if options.recipes else "families"
        choices = carried(load(part))
        choices = only(paired(choices) if options.two else choices, options.only)
    except ConfigError as error:
        sys.exit(str(error))
    # Nothing is judged: capture would only take time.
    captured = bool(options.keep) or not options.verify
    if options.recipes:
        cases = every_case(choices, options.seed)
    else:
        cases = draw_cases(choices, options.draws, options.seed)
    cases = repeated(cases, options.references)
    missing = [one for one in cases if not (keep / one.id / NOTED).exists()]
    done = in_processes(
        partial(train_case, keep=keep, captured=captured),
        missing,
        options.jobs,
        preload=["benchmarks.world.training", "vinedresser.capture.attach.attached_hook"],
    )
    for number, (case, result) in enumerate(done, 1):
        stored = result.result()
        said = stored.ending.crash or f"{stored.ending.score:.2f}"
        _say(f"{number} of {len(missing)}  {case.id}  {said}  {stored.seconds:.1f} s")


def _chosen(one: StoredCase, patterns: Sequence[str]) -> bool:
    case = one.case
    return not patterns or any(matches(case.family, case.fault, word) for word in patterns)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
