"""Names of one GPU, as makers, drivers and tools write them."""

from __future__ import annotations

import pytest

from railwright.topology.gpu_models import is_model


@pytest.mark.parametrize(
    ("seen", "known", "same"),
    [
        ("NVIDIA GH200 120GB", "NVIDIA GH200 480GB", True),  # both sizes are of the CPU's memory
        ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200 480GB", False),
        ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200 144GB", True),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_the_same_gpu_is_known_by_another_name(seen: str, known: str, same: bool) -> None:
    assert is_model(seen, known) is same
