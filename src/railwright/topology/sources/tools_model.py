"""What programs of a machine say of its software, as a document beside its files: `tools/probe.json`."""

from __future__ import annotations

import msgspec

TOOLS = "tools/probe.json"
MOST = 1024
"""Of anything in the document."""


class Poller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running program that asks NVIDIA's driver again and again."""

    program: str
    interval_s: float | None = None
    """By its command line, or what it does where that says nothing; None where nobody knows."""


class Ucx(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `ucx_info` lists."""

    version: str = ""
    transports: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Those of the network: `mlx5_0:1`."""


class Mpi(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The MPI whose program is found first."""

    name: str
    cuda: bool | None = None
    """Whether it was built for buffers in GPU memory."""


class PortSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a port is set to, by programs that ask its driver; None: they did not say."""

    netdev: str
    lossless: tuple[int, ...] | None = None
    """The lossless priorities."""
    dscp: tuple[tuple[int, int], ...] | None = None
    """Which DSCP has which priority: pairs, rising."""
    pause: tuple[bool, bool] | None = None
    """Whether it heeds and sends pauses of all its traffic."""
    tc_offload: bool | None = None
    """Whether it takes flows of tc; None also where the driver has none of that."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The document. What is None was not found; what is in `problems` could not be asked, with the reason."""

    format: int = 1
    pollers: tuple[Poller, ...] = ()
    ucx: Ucx | None = None
    mpi: Mpi | None = None
    ports: tuple[PortSettings, ...] = ()
    ofi_nccl: str | None = None
    """The library of aws-ofi-nccl."""
    problems: dict[str, str] = {}
    """`ucx: ucx_info gave no answer within 10 s`."""
