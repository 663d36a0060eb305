"""The runs of an experiment file: ``[run]``, shared by all, and ``[variants]``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.command_line import parameters_as_options, resolved_command
from vinedresser.infra.configuration import build
from vinedresser.infra.entry import is_reference, parameters_as_arguments
from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import visible_gpus
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.infra.supervise.sagemaker import hyperparameters_as_options
from vinedresser.masking import masked_arguments, masked_names
from vinedresser.printed_metrics import check_metrics
from vinedresser.store.records import LaunchSettings, name_fault
from vinedresser.store.records.launchers import SCHEDULERS

__all__ = [
    "RunSpec",
    "RunTable",
    "VariantTable",
    "masked_keys",
    "refuse_missing_package",
    "refuse_missing_program",
    "run_specs",
]

_THREADS = "OMP_NUM_THREADS"

_Parameter = bool | int | float | str


@dataclass(frozen=True)
class RunTable(LaunchSettings):
    """Settings that the runs of an experiment share.

    Attributes:
        name: name of the experiment; a run is called NAME or NAME-VARIANT.
        command: program and arguments; "python" is the interpreter that runs vinedresser.
        entry: instead of a command a function, ``package.module:function``, which is called in a
            separate process with the parameters by name.
        store: directory of the run directories, or ``s3://bucket/prefix``.
        cwd: directory in which the command starts; default: that of the file.
        total_steps: number of optimizer steps in a whole run, for progress and steps saved.
        max_concurrent: maximum number of runs that train at the same time; default: as many as
            `cpus` and `gpus` leave room for on this machine, 1 on other hosts.
        cpus: cores of each run, which its ranks share, set as `OMP_NUM_THREADS` unless
            ``environment`` has it; default: the runs that train at the same time share the cores.
        preflight: check the first steps of each run before it trains; "strict": a suspicious check
            stops it.
        runner: engine on which they train, "local", "dask" or "ray", or a table of name and
            address.
        parameters: hyperparameters, recorded and passed as ``--name value``, to a function by name.
        environment: environment variables of the command.
    """

    name: str
    command: list[str] = field(default_factory=list)
    entry: str | None = None
    store: str = "runs"
    cwd: str = "."
    total_steps: int | None = None
    max_concurrent: Annotated[int, Ge(1)] | None = None
    cpus: Annotated[int, Ge(1)] | None = None
    preflight: bool | Literal["strict"] = False
    runner: str | dict[str, Any] | None = None
    parameters: dict[str, _Parameter] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check values that types do not."""
        super().__post_init__()
        if bool(self.command) is (self.entry is not None):
            raise ValueError(
                "command: give either command, a program and its arguments, or entry, "
                '"module:function"'
            )
        if self.entry is not None and not is_reference(self.entry):
            raise ValueError(f'entry: must be "module:function", not {self.entry!r}')
        if fault := name_fault(self.name):
            raise ValueError(f"name: {fault}")
        if self.min_ranks is not None:
            self._check_min_ranks(self.min_ranks)
        if self.contract and self.entry is not None:
            raise ValueError("contract: needs a command; a function has no variables of its own")
        try:
            check_metrics(self.metrics)
        except ValueError as error:
            raise ValueError(f"metrics: {error}") from None
        for name in self.environment_from:
            if name in self.environment:
                raise ValueError(f"environment_from: {name} is also in environment; remove one")

    def _check_min_ranks(self, least: int) -> None:
        if not 1 <= least <= self.ranks:
            raise ValueError(f"min_ranks: must be from 1 to ranks, {self.ranks}, not {least}")
        if self.system.name in SCHEDULERS or not (self.host_count == 1 or self.names_hosts):
            raise ValueError(
                f"min_ranks: not supported with the launcher {self.system.name} and a number of "
                "hosts, which it chooses"
            )
        if self.names_hosts and shutil.which("ssh") is None:
            raise ValueError("min_ranks: hosts are asked by ssh, which is not on PATH")

    @property
    def names_hosts(self) -> bool:
        """Whether the hosts are given by name."""
        return not isinstance(self.hosts, int)

    @property
    def launch(self) -> dict[str, Any]:
        """Values of the `LaunchSettings` by name."""
        return {one.name: getattr(self, one.name) for one in fields(LaunchSettings)}

    @property
    def slots(self) -> int:
        """Maximum number of runs that train at the same time."""
        if self.max_concurrent is not None:
            return self.max_concurrent
        if self.elsewhere:
            return 1
        room = cores() // (self.cpus or self.ranks)
        return max(min(room, len(visible_gpus()) // own) if (own := self.own_gpus) else room, 1)


@dataclass(frozen=True)
class VariantTable:
    """Overrides for one run; see `RunTable`.

    Attributes:
        parameters: hyperparameters of this run.
        environment: environment variables of this run.
        total_steps: number of optimizer steps in this run.
    """

    parameters: dict[str, _Parameter] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    total_steps: int | None = None


@dataclass(frozen=True)
class RunSpec:
    """Specification of a run to make.

    Attributes:
        name: name of the run, unless it is taken.
        program: program and arguments, without the parameters.
        parameters: hyperparameters.
        environment: environment variables of the command.
        total_steps: number of optimizer steps in the whole run, None if unknown.
        calls: whether the program calls a function with the parameters.
        contract: see `LaunchSettings`.
        cores: cores that its ranks share by ``OMP_NUM_THREADS``; None if they are not shared out.
        launch: values of `LaunchSettings` that replace those of the file.
    """

    name: str
    program: list[str]
    parameters: dict[str, Any]
    environment: dict[str, str]
    total_steps: int | None
    calls: bool = False
    contract: str = ""
    cores: int | None = None
    launch: Mapping[str, Any] = field(default_factory=dict)

    def on(self, ranks: int, hosts: int | list[str]) -> RunSpec:
        """Return the same run with a number of ranks on certain hosts."""
        return replace(
            self,
            environment=self.environment | _threads(self.cores, ranks),
            launch={"ranks": ranks, "hosts": hosts},
        )

    @property
    def argv(self) -> list[str]:
        """Program and arguments, with the parameters."""
        if self.calls:
            return [*self.program, *parameters_as_arguments(self.parameters)]
        as_options = hyperparameters_as_options if self.contract else parameters_as_options
        return [*self.program, *as_options(self.parameters)]


def run_specs(
    run: RunTable, variants: object, where: str, *, runs: int, here: bool
) -> list[RunSpec]:
    """Return the runs: each variant overrides the shared settings.

    Args:
        variants: table of the variants.
        where: beginning of messages.
        runs: number of runs made later; 0: one for each variant.
        here: whether they share the cores of this machine.

    Raises:
        ConfigError: a variant is invalid.
    """
    if not isinstance(variants, Mapping):
        raise ConfigError(f"{where}: must have one table per variant, not {variants!r}")
    # Concurrent trainings that each use all cores are slower than consecutive ones.
    side_by_side = min(run.slots, runs or len(variants) or 1)
    threads = run.cpus or (max(cores() // side_by_side, 1) if here else None)
    if not variants:
        return [_spec(run, run.name, threads)]
    specs = []
    for name, table in variants.items():
        if fault := name_fault(name) or name_fault(f"{run.name}-{name}"):
            raise ConfigError(f"{where}: {fault}")
        variant = build(VariantTable, table, f"{where}.{name}")
        merged = replace(
            run,
            parameters=run.parameters | variant.parameters,
            environment=run.environment | variant.environment,
            total_steps=variant.total_steps or run.total_steps,
        )
        specs.append(_spec(merged, f"{run.name}-{name}", threads))
    return specs


def _spec(run: RunTable, name: str, cores: int | None) -> RunSpec:
    cores = None if _THREADS in run.environment else cores
    environment = _threads(cores, run.ranks) | run.environment
    shared = (run.parameters, environment, run.total_steps)
    if run.entry is not None:
        command = [sys.executable, "-m", "vinedresser.infra.entry", run.entry]
        return RunSpec(name, command, *shared, calls=True, cores=cores)
    command = resolved_command(run.command)
    return RunSpec(name, command, *shared, contract=run.contract, cores=cores)


def _threads(cores: int | None, ranks: int) -> dict[str, str]:
    """Return the variable by which ranks share cores; {} if they are not shared out."""
    return {} if cores is None else {_THREADS: str(max(cores // ranks, 1))}


def masked_keys(specs: Sequence[RunSpec]) -> list[str]:
    """Return the keys of the values that look like secrets, which no record will have."""
    found: list[str] = []
    for spec in specs:
        found += [f"parameters.{name}" for name in masked_names(spec.parameters)]
        found += [f"environment.{name}" for name in masked_names(spec.environment)]
        if masked_arguments(spec.program) != spec.program:
            found.append("command")
    return list(dict.fromkeys(found))


def refuse_missing_program(spec: RunSpec, cwd: Path, where: str) -> None:
    """Refuse a missing program, script or module before anything is started."""
    if spec.calls:
        refuse_missing_package(spec.program[-1], cwd, f"{where}.entry")
        return
    where = f"{where}.command"
    try:
        check_command(spec.argv, cwd, spec.environment)
    except LaunchError as error:
        raise ConfigError(f"{where}: {error}") from error


def refuse_missing_package(reference: str, cwd: Path, where: str) -> None:
    """Refuse a function of a missing package.

    Args:
        reference: ``module:function``.
        cwd: directory that comes first on the module path.
        where: file and key, for the message.

    Raises:
        ConfigError: the package is not installed.
    """
    package = reference.partition(":")[0].partition(".")[0]
    # Searching for more than the package would import it.
    here = PathFinder.find_spec(package, [str(cwd), *sys.path])
    if here is None and find_spec(package) is None:
        raise ConfigError(f"{where}: no module {package} in {cwd} or installed")
