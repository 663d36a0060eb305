"""What decides about the bits of a result of torch, apart from the program."""

from __future__ import annotations

import platform
from typing import Any

import torch

from vinedresser.store.json_values import shown

__all__ = ["environment", "present_device"]


def environment(device: torch.device) -> dict[str, Any]:
    """Return the environment as plain JSON types, by name.

    Args:
        device: device of the model.
    """
    found: dict[str, Any] = {
        "device": device.type,
        "machine": platform.machine(),
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "oneDNN": bool(torch.backends.mkldnn.enabled),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "default dtype": str(torch.get_default_dtype()),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "flush denormal": _flushes_denormals(),
    }
    if device.type == "cuda":
        found |= {
            "GPU": torch.cuda.get_device_name(device),
            "CUDA": str(torch.version.cuda),
            "cuDNN deterministic": torch.backends.cudnn.deterministic,
            "cuDNN benchmark": torch.backends.cudnn.benchmark,
            "cuDNN TF32": torch.backends.cudnn.allow_tf32,
        }
    return found


def present_device(name: object) -> torch.device:
    """Return the device with a name, or the CPU on a machine without that kind of device.

    Raises:
        ValueError: torch knows no such device, or the machine has fewer of this kind.
    """
    try:
        device = torch.device(str(name))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{shown(name)} is not a device of torch") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if not count:
        return torch.device("cpu")
    if (device.index or 0) >= count:
        raise ValueError(f"there is no device {device}: this machine has {count}")
    return device


def _flushes_denormals() -> bool:
    """Return whether denormal numbers count as zero."""
    return float(torch.tensor(1e-40, dtype=torch.float32) * 1.0) == 0.0
