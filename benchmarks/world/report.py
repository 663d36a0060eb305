"""Tables of the judgement, by family and by class of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.faults.classes import classes_of
from benchmarks.faults.tables import listing, overall_table
from benchmarks.faults.verdict import Verdict
from benchmarks.measure import table
from benchmarks.world.calibration import calibration_table
from benchmarks.world.peers import PEERS

__all__ = ["report"]

_HEADERS = (
    *("faulty", "found", "right cause, of found", "right before 10%", "before an epoch", "first"),
    *("first true", "healthy", "stopped", "warned"),
)
_TWO_HEADERS = ("family", "two faults", "found", "one right, of found", "both right, of found")


def report(verdicts: Sequence[Verdict], *, verbose: bool = False) -> str:
    """Return all tables; with ``verbose``, the findings of each case first."""
    verdicts = sorted(verdicts, key=lambda verdict: verdict.id)
    counted = [verdict for verdict in verdicts if verdict.outcome.as_expected]
    parts = [
        _judged(counted, "family", _family),
        _judged(counted, "fault class", _fault),
        _two_table([one for one in counted if one.faulty and len(classes_of(_fault(one))) > 1]),
        calibration_table(counted),
        _beside_peers([one for one in counted if one.peers]),
    ]
    healthy = [one for one in counted if not one.faulty]
    parts += [
        _list("healthy but stopped", (_blamed(one) for one in healthy if one.stop)),
        _list(
            "healthy but warned of",
            (_blamed(one) for one in healthy if one.alarms and not one.stop),
        ),
        _list("rules that blame healthy trainings", _most(_blaming_rules(healthy))),
    ]
    faulty = [one for one in counted if one.faulty]
    missed = [one for one in faulty if not one.signs]
    misnamed = [one for one in faulty if one.signs and not one.named]
    parts += [
        _list("missed", _most(one.fault_class for one in missed)),
        _list(
            "misnamed",
            _most(f"{one.fault_class} as {one.root.fault}" for one in misnamed if one.root),
        ),
        _not_counted(verdicts),
    ]
    if verbose:
        parts.insert(0, listing(verdicts))
    return "\n\n".join(part for part in parts if part)


def _judged(verdicts: Sequence[Verdict], title: str, key: Callable[[Verdict], str]) -> str:
    """Return a table with a line per family, or per fault of faulty trainings and their twins.

    "first" and "first true" are the medians of the first sign and of the first one of the right
    class, as shares of the run. For a peer, the table has the faulty trainings with an alarm, and
    the healthy ones.
    """
    peers = [name for name in PEERS if any(name in verdict.peers for verdict in verdicts)]
    names = sorted({key(verdict) for verdict in verdicts})
    rows = [
        _judged_row(name, [verdict for verdict in verdicts if key(verdict) == name], peers)
        for name in names
    ]
    return table([*rows, _judged_row("all", verdicts, peers)], (title, *_HEADERS, *peers))


def _judged_row(name: str, verdicts: Sequence[Verdict], peers: Sequence[str]) -> list[str]:
    faulty = [verdict for verdict in verdicts if verdict.faulty]
    healthy = [verdict for verdict in verdicts if not verdict.faulty]
    found = [one for one in faulty if one.signs]
    epochs = [one for one in found if one.epoch]
    return [
        name,
        str(len(faulty)),
        _share(found, faulty),
        _share([one for one in found if one.named], found),
        _share([one for one in found if _named_by(one, 0.1 * one.steps)], found),
        _share([epoch for epoch in epochs if _named_by(epoch, epoch.epoch)], epochs),
        _percent([one.detected_at / one.steps for one in found if one.detected_at is not None]),
        _percent([one.true_sign_at / one.steps for one in found if one.true_sign_at is not None]),
        str(len(healthy)),
        _share([one for one in healthy if one.stop], healthy),
        _share([one for one in healthy if one.alarms and not one.stop], healthy),
        *(f"{_of_peer(peer, faulty)}; {_of_peer(peer, healthy)}" for peer in peers),
    ]


def _named_by(one: Verdict, step: float) -> bool:
    """Return whether the right cause was named before a step, or at it."""
    return one.named_at is not None and one.named_at <= step


def _of_peer(peer: str, verdicts: Sequence[Verdict]) -> str:
    """Return the number of trainings with an alarm of those that the peer can judge."""
    judged = [verdict for verdict in verdicts if peer in verdict.peers]
    return f"{sum(bool(one.peers[peer]) for one in judged)} of {len(judged)}"


def _two_table(verdicts: Sequence[Verdict]) -> str:
    """Return a table of the trainings with two faults; "" if there are none."""
    if not verdicts:
        return ""
    names = sorted({_family(verdict) for verdict in verdicts})
    groups = [
        (name, [verdict for verdict in verdicts if _family(verdict) == name]) for name in names
    ]
    return table([_two_row(*one) for one in [*groups, ("all", verdicts)]], _TWO_HEADERS)


def _two_row(name: str, verdicts: Sequence[Verdict]) -> list[str]:
    found = [verdict for verdict in verdicts if verdict.signs]
    right = [[one for one in found if one.classes_named >= least] for least in (1, 2)]
    return [
        name,
        str(len(verdicts)),
        _share(found, verdicts),
        *(_share(one, found) for one in right),
    ]


def _beside_peers(verdicts: Sequence[Verdict]) -> str:
    """Return a table of the judges on the trainings that the peers can judge."""
    if not verdicts:
        return ""
    return f"beside peers, on trainings that they can judge:\n{overall_table(verdicts)}"


def _family(one: Verdict) -> str:
    return one.id.split("-")[0]


def _fault(one: Verdict) -> str:
    """Return the fault of a training, or that of the twin of a healthy one."""
    return one.id.split("-")[1]


def _blamed(one: Verdict) -> str:
    said = [f"{found.severity} {found.rule} at {found.step} of {one.steps}" for found in one.alarms]
    return f"{one.id} ({one.outcome.in_words()}): {', '.join(said)}"


def _blaming_rules(healthy: Iterable[Verdict]) -> list[str]:
    return [
        said
        for one in healthy
        for said in {f"{found.severity} {found.rule}" for found in one.alarms}
    ]


def _not_counted(verdicts: Sequence[Verdict]) -> str:
    left = [verdict for verdict in verdicts if not verdict.outcome.as_expected]
    title = f"not counted, {len(left)} of {len(verdicts)}: not well without a fault, or with it"
    return _list(title, (f"{one.id}  {one.outcome.in_words()}" for one in left))


def _list(title: str, lines: Iterable[str]) -> str:
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{title}:\n{listed}" if listed else ""


def _most(words: Iterable[str]) -> list[str]:
    """Return lines with counts, the most frequent first."""
    return [f"{count:3d}  {word}" for word, count in Counter(words).most_common()]


def _percent(shares: Sequence[float]) -> str:
    """Return the median of shares; "" of none."""
    return f"{median(shares):.0%}" if shares else ""


def _share(some: Sequence[Verdict], of: Sequence[Verdict]) -> str:
    return f"{len(some)}, {len(some) / len(of):.0%}" if of else ""
