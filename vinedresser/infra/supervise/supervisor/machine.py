"""The machine of a supervisor, for the record (standard library only)."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import gpu_models, kernel_values
from vinedresser.processes import user_name
from vinedresser.store.records import MachineRecord

# Variables that change results or speed.
_VARIABLES = (
    *("CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES"),
    *("KERAS_BACKEND", "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "XLA_FLAGS"),
)


def this_machine(program: str, environment: Mapping[str, str]) -> MachineRecord:
    """Return what a training finds on this machine.

    Args:
        program: the program that is started.
        environment: its environment variables.
    """
    return MachineRecord(
        host=socket.gethostname(),
        user=user_name(),
        processor=next(iter(kernel_values("/proc/cpuinfo", "model name")), ""),
        cores=cores(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=gpu_models(),
        environment={name: environment[name] for name in _VARIABLES if name in environment},
        packages=_packages(program, environment),
    )


def _packages(program: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the packages beside this process's, if the program is of the same environment."""
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None or Path(found).parent != Path(sys.executable).parent:
        return {}
    # What is imported is found first.
    folders = [Path(one) for one in reversed(dict.fromkeys(sys.path))]
    names = (path.stem.rpartition("-") for folder in folders for path in folder.glob("*.dist-info"))
    return {name: version for name, _, version in names}
