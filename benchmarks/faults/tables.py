"""Tables of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from benchmarks.faults.classes import right_words
from benchmarks.faults.experiments import Experiment
from benchmarks.faults.verdict import Verdict
from benchmarks.measure import table

__all__ = ["class_table", "listing", "overall_table", "report", "seeds_table", "trial_listing"]

_CLASS_HEADERS = (
    *("fault class", "cases", "detected", "by stop", "class named"),
    *("at, of the run", "compute saved"),
)
_OVERALL_HEADERS = (
    *("judge", "detected", "class named", "false alarms", "false stops"),
    *("at, of the run", "compute saved"),
)
_EXPERIMENT_HEADERS = (
    *("trainings", "cause named by the rules", "proved by experiment", "only a wrong one proved"),
    *("named or proved", "cured by a change"),
)
_SEED_HEADERS = (
    *("seed", "faults that a change can prove", "proved", "only a wrong one proved"),
    *("other faults", "a wrong one proved", "healthy", "cured"),
)


def report(verdicts: Sequence[Verdict], *, verbose: bool = False) -> str:
    """Return all tables: by class, overall, and by case with ``verbose``."""
    counted = [verdict for verdict in verdicts if verdict.outcome.as_expected]
    parts = [class_table(counted), overall_table(counted)]
    if any(one.experiment for one in counted):
        parts.append(experiment_table(counted))
        parts.append(
            seeds_table([verdict.experiment for verdict in verdicts if verdict.experiment])
        )
    left_out = [verdict for verdict in verdicts if not verdict.outcome.as_expected]
    if left_out:
        parts.append(
            f"not counted, {len(left_out)} of {len(verdicts)}: their outcome is not what the "
            "case expects\n" + "\n".join(f"  {_name(one)}  {_what(one)}" for one in left_out)
        )
    strange = sorted({one.fault_class for one in counted if one.faulty} - _known(counted))
    if strange:
        parts.append(f"no fault corresponds to these classes: {', '.join(strange)}")
    if verbose:
        parts.insert(0, listing(verdicts))
    return "\n\n".join(parts)


def class_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line per class of faults, one for all faults, and one for healthy trainings."""
    faulty = [verdict for verdict in verdicts if verdict.faulty]
    classes = sorted({one.fault_class for one in faulty})
    rows = [
        _class_row(word, [one for one in faulty if one.fault_class == word]) for word in classes
    ]
    if faulty:
        rows.append(_class_row("all", faulty))
    healthy = [verdict for verdict in verdicts if not verdict.faulty]
    if healthy:
        alarms = _share(healthy, lambda one: bool(one.alarms))
        stops = _share(healthy, lambda one: one.stop is not None)
        rows.append(["healthy: false alarms", str(len(healthy)), alarms, stops, "", "", ""])
    return table(rows, _CLASS_HEADERS)


def overall_table(verdicts: Sequence[Verdict]) -> str:
    """Return one line for vinedresser and one per peer, judged on the same trainings."""
    faulty = [verdict for verdict in verdicts if verdict.faulty]
    healthy = [verdict for verdict in verdicts if not verdict.faulty]
    rows = [
        [
            "vinedresser",
            _share(faulty, lambda one: bool(one.signs)),
            _share(faulty, lambda one: one.named),
            _share(healthy, lambda one: bool(one.alarms)),
            _share(healthy, lambda one: one.stop is not None),
            _percent(_times(faulty)),
            f"{fmean([one.saved for one in faulty]):.0%}" if faulty else "",
        ]
    ]
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.peers)
    rows.extend(_peer_row(name, faulty, healthy) for name in names)
    return table(rows, _OVERALL_HEADERS)


def experiment_table(verdicts: Sequence[Verdict]) -> str:
    """Return what trials prove of the faulty trainings that the rules find, and of healthy ones."""
    tried = [verdict for verdict in verdicts if verdict.experiment is not None]
    found = [one for one in tried if one.faulty and one.signs]
    curable = [one for one in found if one.experiment is not None and one.experiment.provable]
    rows = [
        ["found by a rule", *_experiment_shares(found)],
        ["of a class that a change can prove", *_experiment_shares(curable)],
        ["healthy", *_experiment_shares([one for one in tried if not one.faulty])],
    ]
    return table(rows, _EXPERIMENT_HEADERS)


def _experiment_shares(verdicts: Sequence[Verdict]) -> list[str]:
    done = [(verdict, verdict.experiment) for verdict in verdicts if verdict.experiment is not None]
    wrong = {(one.id, one.seed) for one, each in done if each.wrong}
    right = {(one.id, one.seed) for one, each in done if each.right}
    cured = right | wrong
    return [
        _share(verdicts, lambda one: one.named),
        _share(verdicts, lambda one: (one.id, one.seed) in right),
        _share(verdicts, lambda one: (one.id, one.seed) in wrong),
        _share(verdicts, lambda one: one.named or (one.id, one.seed) in right),
        _share(verdicts, lambda one: (one.id, one.seed) in cured),
    ]


def seeds_table(experiments: Sequence[Experiment]) -> str:
    """Return what trials prove with each seed, whatever the rules find and however a run ends."""
    rows = []
    for seed in sorted({experiment.seed for experiment in experiments}):
        of_seed = [experiment for experiment in experiments if experiment.seed == seed]
        healthy = [one for one in of_seed if one.fault_class == "healthy"]
        provable = [one for one in of_seed if one.provable]
        others = [one for one in of_seed if not one.provable and one.fault_class != "healthy"]
        counts = [
            *(len(provable), sum(one.right for one in provable)),
            sum(one.wrong for one in provable),
            *(len(others), sum(other.wrong for other in others)),
            *(len(healthy), sum(one.wrong for one in healthy)),
        ]
        rows.append([str(seed), *map(str, counts)])
    return table(rows, _SEED_HEADERS)


def trial_listing(experiments: Iterable[Experiment]) -> str:
    """Return the conclusion of the trials of each case, one line each."""
    return "\n".join(
        f"{experiment.case} (seed {experiment.seed})   {experiment.fault_class}   "
        f"{_tried(experiment)}"
        for experiment in sorted(
            experiments,
            key=lambda experiment: (experiment.seed, experiment.fault_class, experiment.case),
        )
    )


def listing(verdicts: Iterable[Verdict]) -> str:
    """Return the findings of each case."""
    blocks = []
    for verdict in sorted(
        verdicts, key=lambda verdict: (not verdict.faulty, verdict.fault_class, verdict.id)
    ):
        mark = "" if verdict.outcome.as_expected else "   NOT AS EXPECTED"
        lines = [f"{_name(verdict)}   {verdict.fault_class}   {verdict.outcome.in_words()}{mark}"]
        root = verdict.root
        for finding in verdict.findings:
            about = "root, " if finding is root else ""
            right = "right, " if finding is root and verdict.named else ""
            lines.append(
                f"  {finding.severity} {finding.rule} at {finding.step} of {verdict.steps} "
                f"({about}{right}{finding.fault or 'no class'}): {finding.seen}; {finding.cause}"
            )
        for peer, alarms in verdict.peers.items():
            said = dict.fromkeys(f"{alarm.symptom}" for alarm in alarms)
            if said:
                lines.append(f"  {peer} at {alarms[0].step}: {', '.join(said)}")
        if verdict.experiment is not None:
            lines.append(f"  {_tried(verdict.experiment)}")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def _tried(one: Experiment) -> str:
    mark = "right, " if one.right else ""
    return f"tried ({mark}{len(one.cures)}): {one.words}"


def _class_row(word: str, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        word,
        str(len(verdicts)),
        _share(verdicts, lambda one: bool(one.signs)),
        _share(verdicts, lambda one: one.stop is not None),
        _share(verdicts, lambda one: one.named),
        _percent(_times(verdicts)),
        f"{fmean([verdict.saved for verdict in verdicts]):.0%}",
    ]


def _peer_row(name: str, faulty: Sequence[Verdict], healthy: Sequence[Verdict]) -> list[str]:
    def fired(one: Verdict) -> bool:
        return bool(one.peers.get(name))

    times = [one.peers[name][0].step / one.steps for one in faulty if fired(one)]
    return [name, _share(faulty, fired), "", _share(healthy, fired), "", _percent(times), ""]


def _share(verdicts: Sequence[Verdict], holds: Callable[[Verdict], bool]) -> str:
    """Return a share such as "3 of 4, 75%"; "" without any verdicts."""
    count = sum(map(holds, verdicts))
    return f"{count} of {len(verdicts)}, {count / len(verdicts):.0%}" if verdicts else ""


def _times(verdicts: Iterable[Verdict]) -> list[float]:
    """Return the steps of the first signs, as shares of the runs."""
    return [
        min(verdict.detected_at / verdict.steps, 1.0)
        for verdict in verdicts
        if verdict.detected_at is not None
    ]


def _percent(shares: Sequence[float]) -> str:
    return f"{median(shares):.0%}" if shares else ""


def _known(verdicts: Iterable[Verdict]) -> set[str]:
    return {verdict.fault_class for verdict in verdicts if right_words(verdict.fault_class)}


def _name(one: Verdict) -> str:
    return f"{one.id} (seed {one.seed})"


def _what(one: Verdict) -> str:
    return f"{one.fault_class}: {one.outcome.in_words()}"
