"""What decides about the bits of a result of torch, apart from the program."""

from __future__ import annotations

import platform
from typing import Any

import torch

__all__ = ["environment"]


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


def _flushes_denormals() -> bool:
    """Return whether denormal numbers count as zero."""
    return float(torch.tensor(1e-40, dtype=torch.float32) * 1.0) == 0.0
