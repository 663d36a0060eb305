"""Devices that records of other machines, or of strangers, name."""

from __future__ import annotations

import pytest
import torch

from vinedresser.frameworks.torch_.environment import present_device


def test_a_kind_of_device_that_is_not_here_is_the_cpu() -> None:
    kind = "xpu" if torch.cuda.is_available() else "cuda"
    for name in ("cpu", f"{kind}:99", kind, "meta"):
        assert present_device(name) == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_more_devices_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no device cuda:99: this machine has"):
        present_device("cuda:99")


@pytest.mark.parametrize("name", ["nowhere", "", "cuda:-3", "cpu:" + "9" * 400, [0, 2**62], None])
def test_other_names_are_one_clear_error(name: object) -> None:
    with pytest.raises(ValueError, match=r"is not a device of torch$") as raised:
        present_device(name)
    assert len(str(raised.value)) < 200
