"""Settings and environment of runs, and those that differ."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import MachineRecord, RunRecord

__all__ = [
    "configuration",
    "differing",
    "environment_of",
    "is_label",
    "is_seed",
    "machine_of",
    "observed_of",
    "parameters_of",
    "script_name",
    "script_place",
    "without_seeds",
]

# Names of parameters that only choose random numbers.
_SEED = re.compile(r"(^|[._-])(seeds?|random_?(state|seed))([._-]|$)", re.IGNORECASE)
# Names of parameters that only say where results are written, or what the run is called.
_LABEL = re.compile(
    r"(^|\.)((out|output|save|log|logging|result|results)[_-]?(dir|directory|folder|path)"
    r"|run[_-]?(name|id))$",
    re.IGNORECASE,
)

# Modules that run a script given as an argument.
_LAUNCHERS = (
    "accelerate.commands.launch",
    "torch.distributed.run",
    "torch.distributed.launch",
    "coverage",
    "pdb",
    "cProfile",
)


def is_label(name: str) -> bool:
    """Return whether a parameter cannot change the results, by its name.

    Such names are those of folders for results and of the run: "output_dir", "trainer.log-dir",
    "run_name", but not "name", by which a program may choose what it does, nor "checkpoint_dir",
    from which it may begin.
    """
    return _LABEL.search(name) is not None


def is_seed(name: str) -> bool:
    """Return whether a parameter only chooses random numbers, by its name.

    Such names contain the word seed, random_state or random_seed: "seed", "data.seed",
    "model-seed", but not "seedling".
    """
    return _SEED.search(name) is not None


def parameters_of(info: RunRecord) -> dict[str, Any]:
    """Return the parameters of a run by name, those in tables as ``table.key``."""
    return dict(_flat(info.parameters))


def observed_of(info: RunRecord) -> dict[str, Any]:
    """Return the settings that the hook of a run has seen.

    These are ``optimizer``, ``optimizer.lr``, ``loss``, ``loss.reduction`` and so on, ``dropout``,
    the numbers of layers by type as ``layers``, and ``total_steps``.
    """
    seen: dict[str, Any] = {}
    for place, optimizer in enumerate(info.optimizers, start=1):
        name = "optimizer" if place == 1 else f"optimizer {place}"
        seen[name] = optimizer.get("type", "")
        seen |= _flat(optimizer.get("settings", {}), f"{name}.")
    for place, (loss, record) in enumerate(info.losses.items(), start=1):
        name = "loss" if place == 1 else f"loss {place}"
        seen[name] = record.get("type", loss)
        seen |= _flat(record.get("settings", {}), f"{name}.")
    if info.modules:
        kinds = Counter(str(entry[0]) for entry in info.modules.values() if "model" not in entry)
        seen["layers"] = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    if info.dropout:
        seen["dropout"] = sorted(set(info.dropout.values()))
    if info.total_steps is not None:
        seen["total_steps"] = info.total_steps
    return seen


def environment_of(info: RunRecord) -> dict[str, Any]:
    """Return what a run ran: program, revision of its code, framework, ranks and versions."""
    return {
        "program": " ".join(_program(info.command)),
        "code": info.code or None,
        "framework": info.framework or None,
        "ranks": info.world_size,
        **{f"{name} version": version for name, version in sorted(info.versions.items())},
    }


def machine_of(run: Run) -> dict[str, Any]:
    """Return the machine of a run, variables of its environment and versions of packages.

    Without the packages of `environment_of`; {} if nothing was recorded.
    """
    machine = read_record_or_none(run.storage, MachineRecord, MachineRecord.KEY, [])
    if machine is None:
        return {}
    named = ("host", "user", "processor", "cores", "memory", "gpus")
    return {
        **{name: getattr(machine, name) or None for name in named},
        **machine.environment,
        **{
            f"{name} version": version
            for name, version in sorted(machine.packages.items())
            if name not in run.info.versions
        },
    }


def configuration(info: RunRecord) -> dict[str, Any]:
    """Return what makes two runs the same but for chance: settings without seeds, and the code.

    Parameters that only label the run do not count.

    Arguments of the program count only if the run has no parameters, since these are made of them.
    A run without parameters and without a seed among its arguments is the same as no other: what
    was changed between two such runs is not known.
    """
    chosen = {
        name: one
        for name, one in parameters_of(info).items()
        if not is_seed(name) and not is_label(name)
    }
    found: dict[str, Any] = {"parameters": chosen, "observed": observed_of(info)}
    found |= {"program": _program(info.command), "code": info.code}
    if not info.parameters:
        found["arguments"] = list(without_seeds(info.command))
        if found["arguments"] == info.command:
            found["id"] = info.id
    return found


def script_name(command: Sequence[str]) -> str:
    """Return the name of what a command runs: its script or module, else its program."""
    place = script_place(command)
    if place and command[place - 1] == "-m":
        return command[place].rpartition(".")[2]
    return Path(command[place]).stem


def script_place(command: Sequence[str]) -> int:
    """Return which argument is the script or module, which a program may start."""
    for place, (argument, following) in enumerate(itertools.pairwise([*command, ""])):
        if argument == "-m" and following and following not in _LAUNCHERS:
            return place + 1
        if argument.endswith((".py", ".sh", ".ipynb")):
            return place
    return 0


def differing(
    tables: Sequence[Mapping[str, Any]], *, absent_differs: bool = True
) -> dict[str, list[Any]]:
    """Return the entries that are not the same in all tables.

    Args:
        tables: a table per run.
        absent_differs: a run that lacks an entry differs from those that have it.

    Returns:
        The values by name, one per run; None where a run lacks the entry.
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name) for table in tables]
        known = values if absent_differs else [one for one in values if one is not None]
        if any(value != known[0] for value in known[1:]):
            found[name] = values
    return found


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _program(command: Sequence[str]) -> list[str]:
    """Return a command up to its first option."""
    first = next((place for place, one in enumerate(command) if one.startswith("-")), len(command))
    return list(command[:first])


def without_seeds(command: Sequence[str]) -> Iterator[str]:
    """Yield the arguments of a command without ``--seed 1`` and ``--seed=1``."""
    skip = False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if skip:
            skip = False
        elif name.startswith("-") and is_seed(name.lstrip("-")):
            skip = not equals
        else:
            yield argument
