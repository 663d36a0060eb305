"""The contract between SageMaker and the program of a training container.

Folders and files are those of
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html,
variables and arguments those that the package sagemaker-training 5.1 gives to a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import visible_gpus

__all__ = [
    "CONFIG",
    "FAILURE",
    "HYPERPARAMETERS",
    "INPUT_DATA",
    "MODEL",
    "OUTPUT_DATA",
    "RESOURCES",
    "Container",
    "configuration",
    "hyperparameters_as_options",
    "read_container",
]

# Below /opt/ml in a container, or below a run directory.
MODEL = "model"
OUTPUT_DATA = "output/data"
FAILURE = "output/failure"
CONFIG = "input/config"
HYPERPARAMETERS = f"{CONFIG}/hyperparameters.json"
RESOURCES = f"{CONFIG}/resourceconfig.json"
INPUT_DATA = f"{CONFIG}/inputdataconfig.json"

# Python's logging.INFO.
_LOG_LEVEL = 20
_GROUP = "homogeneousCluster"
# The name of a script in the folder of the code.
_PROGRAM = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+-]*(/[A-Za-z0-9._][A-Za-z0-9._+-]*)*")
# Hyperparameters of SageMaker: those that it alone reads, and others without its prefix.
_SETTINGS = frozenset(
    f"sagemaker_{name}"
    for name in (
        *("program", "submit_directory", "enable_cloudwatch_metrics", "region"),
        *("container_log_level", "job_name", "s3_output"),
    )
)
_OF_SAGEMAKER = frozenset({"_tuning_objective_metric", "default_user_module_name"})


@dataclass(frozen=True)
class Container:
    """What the script of one host is told.

    Attributes:
        base: folder of the tree, such as ``/opt/ml``.
        hosts: names of all hosts, sorted, as the first is the leader.
        host: name of this one.
        hyperparameters: by name, without those of SageMaker itself.
        channels: folder of the data of each channel.
        gpus: number of GPUs of this host.
        command: the script and what precedes it, such as the interpreter.
        cwd: folder of the script.
        network: name of the network interface.
        resources: other keys of ``resourceconfig.json``.
        channel_settings: contents of ``inputdataconfig.json``; None: made up.
        system: hyperparameters of SageMaker's own that are meant for a framework.
    """

    base: Path
    hosts: Sequence[str]
    host: str
    hyperparameters: Mapping[str, Any]
    channels: Mapping[str, str]
    gpus: int
    command: Sequence[str]
    cwd: str
    network: str = "lo"
    resources: Mapping[str, Any] | None = None
    channel_settings: Mapping[str, Any] | None = None
    system: Mapping[str, Any] | None = None

    @property
    def resource_config(self) -> dict[str, Any]:
        """Contents of ``resourceconfig.json``."""
        own = {
            "current_host": self.host,
            "hosts": list(self.hosts),
            "network_interface_name": self.network,
        }
        return own | dict(self.resources or {})

    @property
    def input_data_config(self) -> dict[str, Any]:
        """Contents of ``inputdataconfig.json``."""
        if self.channel_settings is not None:
            return dict(self.channel_settings)
        mode = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}
        return dict.fromkeys(self.channels, mode)

    def environment(self) -> dict[str, str]:
        """Return the variables of a script, ``SM_…``."""
        script = next((one for one in self.command if one.endswith((".py", ".sh"))), "")
        groups = [{"instance_group_name": _GROUP, "instance_type": "local", "hosts": self.hosts}]
        group = self.resource_config.get("current_group_name", _GROUP)
        plain: dict[str, Any] = {
            "hosts": list(self.hosts),
            "current_host": self.host,
            "current_instance_type": self.resource_config.get("current_instance_type", "local"),
            "current_instance_group": group,
            "instance_groups_dict": {
                one["instance_group_name"]: one
                for one in self.resource_config.get("instance_groups", groups)
            },
            "network_interface_name": self.network,
            "hps": dict(self.hyperparameters),
            "framework_params": dict(self.system or {}),
            "resource_config": self.resource_config,
            "input_data_config": self.input_data_config,
            "channels": sorted(self.channels),
            "user_entry_point": script,
            "module_name": script.removesuffix(".py"),
            "module_dir": self.cwd,
            "user_args": hyperparameters_as_options(self.hyperparameters),
            "log_level": _LOG_LEVEL,
            "num_cpus": cores(),
            "num_gpus": self.gpus,
            "input_dir": str(self.base / "input"),
            "input_config_dir": str(self.base / CONFIG),
            "output_dir": str(self.base / "output"),
            "output_data_dir": str(self.base / OUTPUT_DATA),
            "output_intermediate_dir": str(self.base / "output/intermediate"),
            "model_dir": str(self.base / MODEL),
        }
        # As in the variable, but under the names of the class that the scripts' helpers expect.
        training = plain | {
            "hyperparameters": plain["hps"],
            "channel_input_dirs": dict(self.channels),
            "is_master": self.host == self.hosts[0],
            "master_hostname": self.hosts[0],
        }
        named = {f"channel_{name}": folder for name, folder in self.channels.items()}
        named |= {f"hp_{name}": value for name, value in self.hyperparameters.items()}
        everything = plain | {"training_env": training} | named
        return {f"SM_{name.upper()}": _text(value) for name, value in everything.items()}


def configuration(container: Container) -> dict[str, bytes]:
    """Return the files of the configuration by their paths in the tree."""
    # Each value is the text of a JSON value, as SageMaker's own SDK writes it.
    texts = {name: json.dumps(value) for name, value in container.hyperparameters.items()}
    files: dict[str, object] = {
        HYPERPARAMETERS: texts,
        RESOURCES: container.resource_config,
        INPUT_DATA: container.input_data_config,
    }
    return {path: json.dumps(content, indent=1).encode() for path, content in files.items()}


def hyperparameters_as_options(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return hyperparameters as arguments: ``--name value`` or ``-n value``, sorted by name."""
    options: list[str] = []
    for name, value in sorted(hyperparameters.items()):
        joined = isinstance(value, Mapping)
        pairs = (f"{key}={one}" for key, one in sorted(value.items())) if joined else ()
        text = ",".join(pairs) if joined else "" if value is None else str(value)
        options += [f"--{name}" if len(name) > 1 else f"-{name}", text]
    return options


def _text(value: object) -> str:
    """Return the text of a variable: JSON, but for texts and None."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def read_container(base: Path, environment: Mapping[str, str]) -> Container:
    """Return what SageMaker tells the container of this process.

    Args:
        base: folder of the tree, such as ``/opt/ml``.
        environment: variables; ``SAGEMAKER_PROGRAM`` names the script, or else the hyperparameter
            ``sagemaker_program``; the hyperparameter ``sagemaker_submit_directory`` its folder, or
            else ``SAGEMAKER_SUBMIT_DIRECTORY``.

    Raises:
        ConfigError: a file is missing or invalid, or no script is named.
    """
    resources = _object(base / RESOURCES)
    hosts, host = resources.get("hosts"), resources.get("current_host")
    if not isinstance(hosts, list) or host not in hosts:
        raise ConfigError(f"{base / RESOURCES}: current_host: must be one of the list hosts")
    given = {name: _decoded(value) for name, value in _object(base / HYPERPARAMETERS, {}).items()}
    channels = _object(base / INPUT_DATA, {})
    program = environment.get("SAGEMAKER_PROGRAM") or given.get("sagemaker_program")
    if not program:
        raise ConfigError(
            f"{base / HYPERPARAMETERS}: names no script; set the variable SAGEMAKER_PROGRAM, or "
            "the hyperparameter sagemaker_program"
        )
    if not _PROGRAM.fullmatch(str(program)) or ".." in str(program).split("/"):
        raise ConfigError(f"sagemaker_program: {program!r} is not a file of the code's folder")
    folder = given.get("sagemaker_submit_directory") or environment.get(
        "SAGEMAKER_SUBMIT_DIRECTORY", str(base / "code")
    )
    own = {name for name in given if name.startswith("sagemaker_") or name in _OF_SAGEMAKER}
    network = resources.get("network_interface_name", "eth0")
    return Container(
        base=base,
        hosts=sorted(map(str, hosts)),
        host=str(host),
        hyperparameters={name: value for name, value in given.items() if name not in own},
        channels={name: str(base / "input/data" / name) for name in channels},
        gpus=len(visible_gpus()),
        command=[str(program)],
        cwd=str(folder),
        network=str(network),
        resources=resources,
        channel_settings=channels,
        system={name: given[name] for name in sorted(own) if name not in _SETTINGS},
    )


def _object(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        if default is not None:
            return default
        raise ConfigError(
            f"{path}: no such file; SageMaker writes it in its containers, and elsewhere "
            "SAGEMAKER_BASE_DIR names the folder of such a tree"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be a JSON object")
    return found


def _decoded(value: Any) -> Any:
    """Return the value of a hyperparameter: that of a JSON text, or any other text itself."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
