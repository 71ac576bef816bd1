"""NIXL through its plain C API: agents, memory registration, metadata and requests; the timed calls are in `nixl.c`.

The C API is used because the Python package would pull in numpy and torch, and costs 0.7 to 2 us a transfer.
Signatures after src/bindings/rust/wrapper.h of NIXL 1.5.2 (the header is in no wheel).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Literal

from railwright.errors import CannotJudge
from railwright.native.library import NativeError, function, seconds_array
from railwright.native.memory import Buffer

Operation = Literal["READ", "WRITE"]
Blocks = Sequence[tuple[int, int]]
"""Each (address, bytes)."""

_OPERATIONS: dict[Operation, int] = {"READ": 0, "WRITE": 1}
_DRAM = 0
_STATUS = {
    -1: "invalid parameter",
    -2: "the backend failed",
    -3: "invalid state",
    -4: "exception inside NIXL",
    -6: "agent or backend not found",
}


class _AgentConfig(Structure):
    """Laid out as `nixl_capi_agent_config_s`."""

    _fields_ = (
        ("enable_prog_thread", c_bool),
        ("enable_listen_thread", c_bool),
        ("listen_port", c_int),
        ("thread_sync", c_int),
        ("num_workers", c_uint),
        ("pthr_delay_us", c_uint64),
        ("lthr_delay_us", c_uint64),
        ("capture_telemetry", c_bool),
    )


def find_library() -> Path | None:
    """Where libnixl_capi.so of an installed nixl wheel is, without importing NIXL; None if there is none."""
    for package in ("nixl_cu13", "nixl_cu12"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            found = Path(location).parent / f".{package}.mesonpy.libs" / "libnixl_capi.so"
            if found.exists():
                return found
    return None


def prepare_environment() -> None:
    """What must be set before the library is loaded.

    `UCX_MODULES=^efa`: the wheel's EFA module loads the system's libibverbs beside the wheel's own, and the process
    then crashes at exit. Left alone where the user set it, and where an EFA device is present.
    """
    efa = any("efa" in entry.name for entry in _entries("/sys/class/infiniband"))
    if not efa:
        os.environ.setdefault("UCX_MODULES", "^efa")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


class Agent:
    """One NIXL agent with one backend. Keeps what it created until the process ends, as NIXL's own tools do."""

    def __init__(self, name: str, backend: str = "UCX", *, progress_thread: bool) -> None:
        library = find_library()
        if library is None:
            raise CannotJudge("NIXL is not installed", hint="run `railwright setup nixl`")
        prepare_environment()
        self._library = ctypes.CDLL(str(library))
        code = function("rw_nixl_bind", c_int, c_void_p)(self._library._handle)
        if code:
            raise NativeError("NIXL", code)
        config = _AgentConfig(enable_prog_thread=progress_thread, num_workers=1)
        self.name = name
        self._agent, self._backend, self._options = c_void_p(), c_void_p(), c_void_p()
        self._call("create_configured_agent", name.encode(), byref(config), byref(self._agent))
        memories, parameters = c_void_p(), c_void_p()
        self._call("get_plugin_params", self._agent, backend.encode(), byref(memories), byref(parameters))
        self._call("create_backend", self._agent, backend.encode(), parameters, byref(self._backend))
        self._call("create_opt_args", byref(self._options))
        self._call("opt_args_add_backend", self._options, self._backend)

    def register(self, buffer: Buffer) -> None:
        """Register host memory with the backend."""
        memory = c_void_p()
        self._call("create_reg_dlist", c_int(_DRAM), byref(memory))
        self._call(
            "reg_dlist_add_desc",
            memory,
            c_void_p(buffer.address),
            c_size_t(buffer.size_bytes),
            c_uint64(0),
            None,
            c_size_t(0),
        )
        self._call("register_mem", self._agent, memory, self._options)

    def metadata(self) -> bytes:
        """What a peer needs to reach this agent's registered memory."""
        data, size = c_void_p(), c_size_t()
        self._call("get_local_md", self._agent, byref(data), byref(size))
        return ctypes.string_at(data, size.value)

    def connect(self, metadata: bytes) -> str:
        """Load a peer's metadata and connect to it; the peer's name."""
        name = c_char_p()
        self._call("load_remote_md", self._agent, metadata, c_size_t(len(metadata)), byref(name))
        peer = (name.value or b"").decode()
        self._call("agent_make_connection", self._agent, peer.encode(), self._options)
        return peer

    def request(
        self, operation: Operation, local_address: int, remote_address: int, size_bytes: int, peer: str, blocks: int = 1
    ) -> Request:
        """A transfer of `blocks` consecutive blocks of `size_bytes` each, between host memories."""
        ours, theirs = (
            [(address + block * size_bytes, size_bytes) for block in range(blocks)]
            for address in (local_address, remote_address)
        )
        return self.request_blocks(operation, ours, theirs, peer)

    def request_blocks(self, operation: Operation, local: Blocks, remote: Blocks, peer: str) -> Request:
        """A transfer of many blocks, the n-th of `local` with the n-th of `remote`, each (address, bytes)."""
        ours, theirs = self._descriptors(local), self._descriptors(remote)
        handle = c_void_p()
        self._call(
            "create_xfer_req",
            self._agent,
            c_int(_OPERATIONS[operation]),
            ours,
            theirs,
            peer.encode(),
            byref(handle),
            self._options,
        )
        return Request(self._agent, handle)

    def _descriptors(self, blocks: Blocks) -> c_void_p:
        descriptors = c_void_p()
        self._call("create_xfer_dlist", c_int(_DRAM), byref(descriptors))
        for address, size_bytes in blocks:
            self._call("xfer_dlist_add_desc", descriptors, c_void_p(address), c_size_t(size_bytes), c_uint64(0))
        return descriptors

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, f"nixl_capi_{name}")(*arguments)
        if code < 0:
            raise NativeError(f"NIXL {name}", code, _STATUS.get(code, ""))


class Request:
    """A prepared transfer that can be posted again and again."""

    def __init__(self, agent: c_void_p, handle: c_void_p) -> None:
        self._agent, self._handle = agent, handle

    def time(self, *, warm: int, iterations: int, patience_s: float) -> tuple[list[float], list[float]]:
        """Seconds from post to done, and of the post call alone, of each timed iteration. Raises NativeError."""
        seconds, posts = seconds_array(iterations), seconds_array(iterations)
        loop = function(
            "rw_nixl_transfer", c_int, c_void_p, c_void_p, c_int, c_int, c_double, POINTER(c_double), POINTER(c_double)
        )
        code = loop(self._agent, self._handle, warm, iterations, patience_s, seconds, posts)
        if code:
            raise NativeError("NIXL transfer", code, _STATUS.get(code, ""))
        return list(seconds), list(posts)
