"""The software of a machine from its programs, as a document next to its files: `tools/probe.json`."""

from __future__ import annotations

import msgspec

TOOLS = "tools/probe.json"
MOST = 1024
"""The largest number of entries of each list in the document."""


class Poller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running program that polls NVIDIA's driver."""

    program: str
    interval_s: float | None = None
    """The interval from its command line, or the program's default; None if unknown."""


class Ucx(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output of `ucx_info`."""

    version: str = ""
    transports: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Network devices: `mlx5_0:1`."""


class Mpi(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The MPI whose program comes first in the search path."""

    name: str
    cuda: bool | None = None
    """Whether it was built for buffers in GPU memory."""


class PortSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a port, from programs that query its driver; None means no answer."""

    netdev: str
    lossless: tuple[int, ...] | None = None
    """The lossless priorities."""
    dscp: tuple[tuple[int, int], ...] | None = None
    """Priority of each DSCP: pairs in rising order."""
    pause: tuple[bool, bool] | None = None
    """Whether it honours and sends pause frames for all its traffic."""
    tc_offload: bool | None = None
    """Whether it offloads tc flows; None also if the driver lacks the feature."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The document. None means not found; `problems` has the programs that gave no answer, with the reason."""

    format: int = 1
    pollers: tuple[Poller, ...] = ()
    ucx: Ucx | None = None
    mpi: Mpi | None = None
    ports: tuple[PortSettings, ...] = ()
    ofi_nccl: str | None = None
    """The library of aws-ofi-nccl."""
    problems: dict[str, str] = {}
    """`ucx: ucx_info gave no answer within 10 s`."""
