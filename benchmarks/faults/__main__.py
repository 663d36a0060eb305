"""Share of faulty trainings that the rules find: `python -m benchmarks.faults`.

Each case is trained to its end in a separate process, on one thread. The run is judged by the
default rules and by published rule sets, on the same training. A training whose outcome differs
from what its case expects (it learned in spite of its fault, or did not learn without one) is not
counted. Detected: a finding of severity stop or warning about the training. False alarm: any such
finding on a healthy training. Class named: the root cause among the findings up to the stop has the
right class (`classes.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.ablation import append_verdicts
from benchmarks.faults.cases import load_cases
from benchmarks.faults.drawing import draw_cases
from benchmarks.faults.judging import Job, judge_all, try_all
from benchmarks.faults.tables import report, seeds_table, trial_listing
from benchmarks.faults.verdict import Verdict
from benchmarks.faults.words import known_word
from vinedresser.errors import VinedresserError
from vinedresser.rules.registry import RULES

FOLDER = Path(__file__).parent


def main() -> None:
    """Train, judge and print."""
    options = _options()
    try:
        jobs = _jobs(options)
    except VinedresserError as error:
        sys.exit(str(error))
    if options.what_if == "alone":
        print(_tried_alone(jobs, options))
        return
    verdicts: list[Verdict] = []
    failures: list[str] = []
    for number, result in enumerate(judge_all(jobs, options.jobs), 1):
        if isinstance(result, Verdict):
            verdicts.append(result)
        else:
            failures.append(str(result))
        said = result.id if isinstance(result, Verdict) else result
        print(f"{number} of {len(jobs)}  {said}", file=sys.stderr, flush=True)
    if options.verdicts:
        append_verdicts(options.verdicts, verdicts)
    print(report(verdicts, verbose=options.verbose))
    if failures:
        sys.exit("could not be judged:\n" + "\n".join(failures))


def _tried_alone(jobs: list[Job], options: argparse.Namespace) -> str:
    """Try changes on all cases; return the tables."""
    experiments = []
    for number, one in enumerate(try_all(jobs, options.jobs), 1):
        experiments.append(one)
        print(f"{number} of {len(jobs)}  {one.case}", file=sys.stderr, flush=True)
    parts = [trial_listing(experiments)] if options.verbose else []
    return "\n\n".join([*parts, seeds_table(experiments)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        type=Path,
        default=[FOLDER / "cases.yaml", FOLDER / "more_cases.yaml"],
        metavar="FILE",
        help="files of cases (default: the two included ones)",
    )
    parser.add_argument(
        "--drawn",
        type=int,
        default=0,
        metavar="PAIRS",
        help="number of random pairs of cases to draw instead of files",
    )
    parser.add_argument(
        "--draw-seed", type=int, default=0, help="seed of the drawn cases (default: 0)"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="run only these cases")
    parser.add_argument("--seeds", default="0", help="seeds, such as 0,1 (default: 0)")
    parser.add_argument("--rules", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent processes (default: 2)")
    parser.add_argument("--no-metrics", action="store_true", help="report no accuracy to the hook")
    parser.add_argument("--no-peers", action="store_true", help="skip the peers")
    parser.add_argument(
        "--what-if",
        nargs="?",
        const="beside",
        choices=("beside", "alone"),
        help="try changes from the first step of each case (up to 8 s more for each), beside the "
        "rules (default) or alone: nothing is trained to its end, and no rule judges",
    )
    parser.add_argument("--keep", type=Path, help="keep the runs in this directory")
    parser.add_argument(
        "--verdicts", type=Path, metavar="FILE", help="append the verdicts (benchmarks.ablation)"
    )
    parser.add_argument("--verbose", action="store_true", help="print the findings of each case")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> list[Job]:
    """Return the jobs.

    Raises:
        ConfigError: A case is invalid, or a case or rule does not exist.
    """
    if options.drawn:
        cases = draw_cases(options.drawn, options.draw_seed)
    else:
        cases = [case for path in options.cases for case in load_cases(path)]
    for name in options.only:
        known_word(name, [case.id for case in cases], "--only", "case")
    for name in options.rules:
        known_word(name, RULES, "--rules", "rule")
    return [
        Job(
            case,
            int(seed),
            tuple(options.rules),
            metrics=not options.no_metrics,
            peers=not options.no_peers,
            keep=options.keep,
            what_if=options.what_if is not None,
        )
        for seed in options.seeds.split(",")
        for case in cases
        if not options.only or case.id in options.only
    ]


if __name__ == "__main__":
    main()
