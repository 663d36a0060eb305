"""What it takes to run a training again as it was, and what of it differs or is missing here.

Nothing is started: the command comes from records of the run, which somebody else may have written.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from vinedresser.infra.supervise.launcher.source_code import SourceCode, source_code
from vinedresser.infra.supervise.supervisor.machine import this_machine
from vinedresser.masking import MASK
from vinedresser.objects.location import is_remote
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import CHANGES_KEY, LaunchRecord, MachineRecord
from vinedresser.store.run_settings import script_place

__all__ = ["Difference", "Repetition", "repetition"]

_DIRTY = "-dirty"


@dataclass(frozen=True)
class Difference:
    """What is not here as it was for the run.

    Attributes:
        subject: "directory", "script", "code", "arguments", "python", "packages", "gpus" or
            "variables".
        seen: what was recorded and what is here.
        remedy: what to do about it; "" if nothing helps.
    """

    subject: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True)
class Repetition:
    """How to run a training again.

    Attributes:
        directory: the working directory; "" if unknown.
        command: the command that a person typed, or else the program and its arguments.
        differences: what differs here or is missing.
        unknown: what cannot be compared, since it was not recorded, a sentence each.
    """

    directory: str
    command: list[str]
    differences: list[Difference]
    unknown: list[str]

    @property
    def lines(self) -> list[str]:
        """The lines to type in a shell."""
        enter = [f"cd {shlex.quote(self.directory)}"] if self.directory else []
        return [*enter, shlex.join(self.command)]


def repetition(run: Run) -> Repetition:
    """Return how to run a training again, compared with this machine and this environment.

    Raises:
        CorruptData: its changes of the code are no text.
        StoreError: the store refused a request.
    """
    faults: list[str] = []
    launch = read_record_or_none(run.storage, LaunchRecord, LaunchRecord.KEY, faults)
    machine = read_record_or_none(run.storage, MachineRecord, MachineRecord.KEY, faults)
    differences: list[Difference] = []
    if launch is None:
        faults.append("code and arguments: vinedresser did not start the run, its script did")
    else:
        differences += _program(launch)
        differences += _code(run, launch.cwd, faults)
    differences += _environment(run, machine, _set_for(launch), faults)
    return Repetition(
        launch.cwd if launch else "",
        (launch.invocation or launch.argv) if launch else run.info.command,
        differences,
        [*faults, "data and files that git does not track are not compared"],
    )


def _program(launch: LaunchRecord) -> Iterator[Difference]:
    """Yield whether the working directory and the script are here, and the arguments whole."""
    directory = Path(launch.cwd)
    if not directory.is_dir():
        yield Difference("directory", f"{directory} is not on this machine")
        return
    script = launch.argv[script_place(launch.argv)]
    if script.endswith(".py") and not (directory / script).is_file():
        yield Difference("script", f"{directory / script} does not exist")
    if MASK in " ".join(launch.invocation or launch.argv) or launch.incomplete:
        yield Difference(
            "arguments", f"{MASK} stands for a secret that was not kept", "put it in by hand"
        )


def _code(run: Run, directory: str, unknown: list[str]) -> Iterator[Difference]:
    """Yield how the code in a directory differs from that of the run."""
    if not run.info.code:
        unknown.append("code: the run's was in no git repository")
        return
    here = source_code(directory)
    if not here.revision:
        yield Difference("code", f"{directory} is in no git repository, the run's code was")
        return
    commit = run.info.code.removesuffix(_DIRTY)
    if here.revision.removesuffix(_DIRTY) != commit:
        branch = f" of {run.info.branch}" if run.info.branch else ""
        yield Difference(
            "code",
            f"commit {here.revision[:12]}, the run's was {commit[:12]}{branch}",
            f"git -C {shlex.quote(directory)} checkout {shlex.quote(commit)}",
        )
    yield from _changes(run, here)


def _changes(run: Run, here: SourceCode) -> Iterator[Difference]:
    """Yield how the changes since the commit differ from those of the run."""
    if not run.info.code.endswith(_DIRTY):
        if here.changes:
            yield Difference("code", "changed since the commit, the run's was not", "git stash")
        return
    changes = _text(run)
    if not changes:
        yield Difference("code", "the run's was changed since its commit; how was not kept")
    elif changes != here.changes:
        place = run.storage.location
        kept = f"{place if is_remote(place) else os.path.abspath(place)}/{CHANGES_KEY}"
        remedy = f"on the clean commit: git apply {shlex.quote(kept)}"
        if MASK in changes or "\n# cut here" in changes:
            remedy = f"see {CHANGES_KEY} of the run, which is not complete"
        yield Difference("code", "the run's changes since its commit are not here", remedy)


def _text(run: Run) -> str:
    """Return the run's changes of the code; "" if none are kept."""
    if not run.storage.exists(CHANGES_KEY):
        return ""
    return run.storage.get(CHANGES_KEY).decode(errors="replace")


def _set_for(launch: LaunchRecord | None) -> frozenset[str]:
    """Return the variables that vinedresser sets for a run, then as now."""
    if launch is None:
        return frozenset()
    shared = ("OMP_NUM_THREADS",) if launch.ranks > 1 else ()
    devices = ("CUDA_VISIBLE_DEVICES",) if launch.gpus or launch.gpus_per_rank else ()
    return frozenset((*launch.environment, *shared, *devices))


def _environment(
    run: Run, machine: MachineRecord | None, ours: frozenset[str], unknown: list[str]
) -> Iterator[Difference]:
    """Yield how interpreter, packages, GPUs and variables differ from those of the run."""
    python = run.info.versions.get("python", "")
    if python and python != platform.python_version():
        yield Difference("python", f"{platform.python_version()}, the run's was {python}")
    if machine is None:
        unknown.append("packages and machine: not recorded")
        return
    here = this_machine(sys.executable, os.environ)
    if machine.packages:
        yield from _packages(machine.packages, here.packages)
    else:
        unknown.append("packages: the run had another interpreter than vinedresser")
    if machine.gpus != here.gpus:
        yield Difference("gpus", f"{_listed(here.gpus)}, the run's were {_listed(machine.gpus)}")
    for name in sorted({*machine.environment, *here.environment} - ours):
        was, now = machine.environment.get(name), here.environment.get(name)
        if was != now:
            remedy = f"unset {name}" if was is None else f"export {name}={shlex.quote(was)}"
            seen = f"{name} is {_shown(now)}, the run's was {_shown(was)}"
            yield Difference("variables", seen, remedy)


def _packages(recorded: dict[str, str], installed: dict[str, str]) -> Iterator[Difference]:
    """Yield which packages of a run have other versions here, or are missing."""
    here = {canonicalize_name(name): version for name, version in installed.items()}
    differing = {
        canonicalize_name(name): version
        for name, version in recorded.items()
        if here.get(canonicalize_name(name)) != version
    }
    if differing:
        seen = [
            f"{name} {here.get(name, 'is missing')} (was {version})"
            for name, version in sorted(differing.items())
        ]
        wanted = [shlex.quote(f"{name}=={version}") for name, version in sorted(differing.items())]
        yield Difference("packages", ", ".join(seen), f"pip install {' '.join(wanted)}")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _shown(value: str | None) -> str:
    return "not set" if value is None else value
