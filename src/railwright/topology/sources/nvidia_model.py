"""The answers of NVIDIA's libraries about a machine: the document that the probe prints and a capture holds.

A capture comes from somebody else, so every text is bounded in length and every number in range. A document that
exceeds a bound is refused as a whole. None means that the library gave no answer.
Names carry units. Fields that a later release adds are ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROBE = "nvidia/probe.json"
"""Its path in a capture, and in the `Root` of the live machine."""

Text = Annotated[str, msgspec.Meta(max_length=200)]
Address = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", max_length=16)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
Small = Annotated[int, msgspec.Meta(ge=0, le=1024)]
SizeBytes = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
Hertz = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Watts = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
BytesPerS = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Remote = Literal["gpu", "switch", "npu", "unknown"]
MOST_GPUS = 256
MOST_PAIRED = 64
"""With more GPUs than this the pairs are not queried."""
NO_ADDRESS = frozenset({"0000:00:00.0", "ffff:ff:ff.0", "ffffffff:ff:ff.0"})
"""All zeros or all ones: drivers in virtual machines give them instead of the address of the other end."""


class Nvlink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An NVLink of a GPU."""

    link: Small
    active: bool
    version: Small | None = None
    """NVML's own numbering (nvml.h, NVML_NVLINK_VERSION_*): 6 is NVLink 4."""
    bytes_per_s: BytesPerS | None = None
    """The clocked rate of a direction, before its own overhead: 26.562e9 where the datasheet counts 25e9."""
    remote: Remote = "unknown"
    remote_address: Address | None = None
    """The PCI address of the other end, not readable in most virtual machines."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ordered pair of GPUs by PCI address. Texts are those of NVML: `ok`, `disabled by regkey` ..."""

    source: Address
    target: Address
    nvlink: Text = ""
    read: Text = ""
    write: Text = ""
    ancestor: Text = ""
    """The nearest common ancestor on PCIe, as NVML reports it."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """NVML's answers about a GPU."""

    address: Address
    name: Text = ""
    uuid: Text = ""
    compute_capability: Text = ""
    pcie_generation: Small | None = None
    pcie_width: Small | None = None
    pcie_max_generation: Small | None = None
    """The PCIe link of the GPU in its slot."""
    pcie_max_width: Small | None = None
    pcie_max_generation_of_gpu: Small | None = None
    """The maximum PCIe generation of the GPU itself, whatever its slot."""
    nvlink_count: Small | None = None
    """Number of NVLinks of the GPU, active or not."""
    nvlinks: Annotated[tuple[Nvlink, ...], msgspec.Meta(max_length=64)] = ()
    c2c_links: Small | None = None
    """Number of its NVLink-C2C links; 0 or None on other machines."""
    c2c_link_bytes_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e15)] | None = None
    """The maximum rate of one of them in each direction."""
    fabric_state: Text = ""
    fabric_problem: Text = ""
    """The reason why it did not join the NVLink fabric, as NVML reports it; empty if it did."""
    memory_bytes: SizeBytes | None = None
    memory_used_bytes: SizeBytes | None = None
    memory_bus_bits: Annotated[int, msgspec.Meta(ge=0, le=2**20)] | None = None
    ecc: bool | None = None
    ecc_uncorrected: Count | None = None
    """Count since the driver was loaded."""
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    sm_clock_hz: Hertz | None = None
    sm_clock_max_hz: Hertz | None = None
    sm_clock_application_hz: Hertz | None = None
    memory_clock_hz: Hertz | None = None
    memory_clock_max_hz: Hertz | None = None
    power_w: Watts | None = None
    power_limit_w: Watts | None = None
    power_default_w: Watts | None = None
    temperature_c: Annotated[int, msgspec.Meta(ge=-100, le=1000)] | None = None
    event_reasons: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None
    """Reasons for its current clocks, as bits (nvml.h, nvmlClocksEventReasons)."""
    persistence: bool | None = None
    compute_mode: Text = ""
    mig: bool | None = None
    processes: Small | None = None
    utilisation: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    """Percent of the time in which a kernel ran."""


class NvmlAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All answers of NVML. `problem` is the reason for no answer, else empty."""

    problem: Text = ""
    driver: Text = ""
    cuda: Text = ""
    """The newest CUDA that the driver can run: `13.0`."""
    gpus: Annotated[tuple[Gpu, ...], msgspec.Meta(max_length=MOST_GPUS)] = ()
    pairs: Annotated[tuple[Pair, ...], msgspec.Meta(max_length=4096)] = ()
    device_nodes: Small | None = None
    """Number of /dev/nvidiaN; None in captures made before it was recorded."""
    device_nodes_allowed: Small | None = None
    """Number of those that file modes and device cgroups let this process read and write."""


class CudaPair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CUDA's answers about access of a GPU to another's memory (CUdevice_P2PAttribute)."""

    source: Address
    target: Address
    access: bool | None = None
    atomics: bool | None = None
    performance_rank: Small | None = None
    arrays: bool | None = None


class CudaGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes of a CUDA device, named as in `nvidia_cuda.ATTRIBUTES`."""

    address: Address
    attributes: Annotated[
        dict[Text, Annotated[int, msgspec.Meta(ge=-(2**31), le=2**32)]], msgspec.Meta(max_length=100)
    ] = {}


class CudaAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All answers of the CUDA driver. `problem` is the reason for no answer, else empty."""

    problem: Text = ""
    gpus: Annotated[tuple[CudaGpu, ...], msgspec.Meta(max_length=MOST_GPUS)] = ()
    pairs: Annotated[tuple[CudaPair, ...], msgspec.Meta(max_length=4096)] = ()


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    format: Literal[1] = 1
    nvml: NvmlAnswer = NvmlAnswer()
    cuda: CudaAnswer = CudaAnswer()
