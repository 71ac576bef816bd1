"""libnccl: its functions, error texts and configuration. Only ranks may load it, because it loads CUDA.

Structures and values follow nccl.h of NCCL 2.18 to 2.30.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p

from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.native.library import fields, function
from railwright.native.nccl_errors import NcclError
from railwright.native.vendor_libraries import candidates

UNIQUE_ID_BYTES = 128
SWITCHED_LOG = "ncclResetDebugInit"
"""The function that rereads NCCL_DEBUG and similar variables. It exists since 2.24, left the header in 2.28, and is
still exported in 2.30."""

_LIBRARY = "libnccl.so.2"
_MAGIC, _UNDEFINED = 0xCAFEBEEF, -(2**31)
_NEWEST_CONFIG = 23007  # the newest version whose ncclConfig_t is known here


class UniqueId(Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", c_char * UNIQUE_ID_BYTES),)


class Config(Structure):
    """ncclConfig_t of 2.30. NCCL reads as many fields as `size` covers and its own version knows."""

    _fields_ = (
        ("size", c_size_t),
        *fields(c_uint, "magic", "version"),
        *fields(c_int, "blocking", "cga_cluster_size", "min_ctas", "max_ctas"),
        ("net_name", c_char_p),
        *fields(c_int, "split_share", "traffic_class"),
        ("comm_name", c_char_p),
        *fields(c_int, "collnet_enable", "cta_policy", "shrink_share", "nvls_ctas", "channels_per_net_peer"),
        *fields(c_int, "nvlink_centric_sched", "graph_usage_mode", "rma_contexts"),
        *fields(c_int, "max_p2p_peers", "graph_stream_ordering"),
    )


def _next_step() -> str:
    return f"{find_installation().add_extra('gpu')} (nvidia-nccl-cu12 for CUDA 12), or give library=PATH"


class Library:
    """A loaded libnccl. Raises CannotJudge if it cannot be loaded or lacks a function that every loop needs."""

    def __init__(self, named: str = "") -> None:
        self.path = candidates(_LIBRARY, named=named)[0]
        try:
            self._nccl = ctypes.CDLL(self.path)
        except OSError as error:
            # The step is in the message itself, because a record keeps no hint.
            step = "give another library=PATH" if named else _next_step()
            raise CannotJudge(f"NCCL cannot be loaded: {error}; {step}") from error
        if function("rw_nccl_bind", c_int, c_void_p)(self._nccl._handle):
            raise CannotJudge(f"{self.path} must be NCCL 2.7 or later")
        code = c_int()
        self._nccl.ncclGetVersion(byref(code))
        self.code = code.value
        """NCCL_VERSION_CODE, 22809 for 2.28.9."""

    @property
    def version(self) -> str:
        """The version, such as `2.28.9`."""
        return f"{self.code // 10000}.{self.code // 100 % 100}.{self.code % 100}"

    @property
    def handle(self) -> int:
        """The loader's handle of the library."""
        return self._nccl._handle

    def has(self, name: str) -> bool:
        """Report whether the library exports a function."""
        return hasattr(self._nccl, name)

    def call(self, name: str, *arguments: object, comm: c_void_p | None = None) -> None:
        """Call a function of NCCL. Raises NcclError with NCCL's error text."""
        result = getattr(self._nccl, name)(*arguments)
        if result:
            raise NcclError(name, result, self.error_text(result, comm))

    def error_text(self, result: int, comm: c_void_p | None = None) -> str:
        """Return NCCL's text for a result, with its last warning if it keeps one (2.13 and later)."""
        text = self._text("ncclGetErrorString", c_int(result)) or f"NCCL error {result}"
        warning = self._text("ncclGetLastError", comm) if self.has("ncclGetLastError") else ""
        return f"{text}: {warning}" if warning else text

    def _text(self, name: str, argument: object) -> str:
        ask = getattr(self._nccl, name)
        ask.restype = c_char_p
        text = ask(argument)
        return " ".join(text.decode(errors="replace").split())[:300] if text else ""

    def unique_id(self) -> bytes:
        """Create the identifier that all ranks of a communicator must share."""
        made = UniqueId()
        self.call("ncclGetUniqueId", byref(made))
        return bytes(made)

    def read_environment_again(self) -> None:
        """Make NCCL reread NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE at its next message."""
        reset = getattr(self._nccl, SWITCHED_LOG)
        reset.restype = None
        reset()

    def config(self, operation: str) -> Config:
        """Return the configuration of nccl-tests 2.19.6: NVLink-centric schedules (2.28), a ring's two peers (2.30)."""
        config = Config(size=ctypes.sizeof(Config), magic=_MAGIC, version=min(self.code, _NEWEST_CONFIG))
        for name, kind, *_ in Config._fields_[3:]:
            if kind is c_int:
                setattr(config, name, _UNDEFINED)
        if self.code >= 22800:
            config.nvlink_centric_sched = 1
        if self.code >= 23000 and operation == "send_recv":
            config.max_p2p_peers = 2
        return config
