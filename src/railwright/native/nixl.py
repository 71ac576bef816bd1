"""NIXL through its plain C API: agents, memory registration, metadata and requests; `nixl.c` has the timed calls.

The Python package would require numpy and torch, and costs 0.7 to 2 us per transfer. Signatures follow
src/bindings/rust/wrapper.h of NIXL 1.5.2 (no wheel has the header).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.installation import find_installation
from railwright.native.library import NativeError, check_result, environment, fields, function, seconds_array
from railwright.native.nixl_memory import HOST, AnyBuffer, Memory, describe_memory, prepare_gpus
from railwright.native.vendor_libraries import find_in_wheels

Operation = Literal["READ", "WRITE"]
Blocks = Sequence[tuple[int, int]]
"""The (address, bytes) of each block."""
Storage = Literal["OBJECT", "FILE"]
Extents = Sequence[tuple[int, int, int]]
"""The (offset, bytes, container) of each extent; the container is a file descriptor or an object number."""
Address = tuple[str, int]
"""An IPv4 address in digits, and a port."""

_OPERATIONS: dict[Operation, int] = {"READ": 0, "WRITE": 1}
_STORAGE: dict[Storage, int] = {"OBJECT": 3, "FILE": 4}
LISTENER_DELAY_US = 100_000
"""The interval at which NIXL's thread polls its socket or its store: NIXL's default."""
_NO_SYNC, _STRICT_SYNC, _READ_WRITE_SYNC = 0, 1, 2
_ETCD_CLIENT = b"libetcd-cpp-api"
_STORE_VARIABLE, _NAMESPACE_VARIABLE, _OTHER_STORE_VARIABLE = (
    "NIXL_ETCD_ENDPOINTS",
    "NIXL_ETCD_NAMESPACE",
    "NIXL_TCPSTORE_ENDPOINT",
)
STATUS = {
    -1: "invalid parameter",
    -2: "the backend failed",
    -3: "invalid state",
    -4: "exception inside NIXL",
    -6: "agent or backend not found",
}


def explain_missing() -> str:
    """Return the reason why NIXL cannot be used, with the way to it."""
    if find_installation().installer == "image":
        return "NIXL is not in this image: build it by scripts/build-image without --without-nixl"
    return "NIXL is not installed: run `railwright setup nixl`"


class _AgentConfig(Structure):
    """The layout of `nixl_capi_agent_config_s`."""

    _fields_ = (
        *fields(c_bool, "enable_prog_thread", "enable_listen_thread"),
        *fields(c_int, "listen_port", "thread_sync"),
        ("num_workers", c_uint),
        *fields(c_uint64, "pthr_delay_us", "lthr_delay_us"),
        ("capture_telemetry", c_bool),
    )


def find_library() -> Path | None:
    """Find libnixl_capi.so of an installed nixl wheel without importing NIXL. Returns None if there is none."""
    return next(map(Path, find_in_wheels("libnixl_capi.so")), None)


def plugin_problem(backend: str) -> str:
    """Load the plugin of a backend. Returns the reason if it cannot be loaded, otherwise an empty string."""
    library = find_library()
    if library is None:
        return explain_missing()
    prepare_environment()
    if backend.startswith("GDS"):
        prepare_gpus(backend)
    try:
        ctypes.CDLL(str(library.parent / "plugins" / f"libplugin_{backend}.so"))
    except OSError as error:
        return str(error)
    return ""


def knows_etcd() -> bool:
    """Report whether the library was linked with etcd's client. Otherwise it ignores NIXL_ETCD_ENDPOINTS."""
    library = find_library()
    try:
        return library is not None and _ETCD_CLIENT in library.with_name("libnixl.so").read_bytes()
    except OSError:
        return False


def prepare_environment() -> None:
    """Set the variables that must be set before the library is loaded.

    `UCX_MODULES=^efa`: the wheel's EFA module loads the system's libibverbs in addition to the wheel's own, and the
    process then crashes at exit. The variable is unchanged if the user set it, or if an EFA device is present.
    """
    if not any(Path("/sys/class/infiniband").glob("*efa*")):
        os.environ.setdefault("UCX_MODULES", "^efa")


class Exchange(NamedTuple):
    """The methods by which an agent exchanges metadata itself: through its own socket, or through a store."""

    listen_port: int = 0
    """The TCP port that NIXL listens on (at every address of the host), 0 for no listener."""
    etcd: str = ""
    """The store's address, such as `http://127.0.0.1:2379`; empty for none."""
    namespace: str = ""
    """The prefix of this run's keys in the store."""


class Agent:
    """A NIXL agent with one backend. It keeps its resources until it is closed or the process ends."""

    def __init__(
        self,
        name: str,
        backend: str = "UCX",
        *,
        progress_thread: bool,
        threads: int = 1,
        parameters: Mapping[str, str] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Raises CannotJudge without NIXL, and NativeError if NIXL refuses a call.

        `parameters` are the backend's. `threads` is the number of posting threads. With more than one, UCX gets a
        worker for each, as in nixlbench.
        """
        library = find_library()
        if library is None:
            raise CannotJudge(explain_missing())
        prepare_environment()
        self._library = ctypes.CDLL(str(library))
        check_result("NIXL", function("rw_nixl_bind", c_int, c_void_p)(self._library._handle))
        # NIXL's own thread that loads metadata needs the agent's locks; nixlbench's threads share them.
        exchange = exchange or Exchange()
        serves_itself = bool(exchange.listen_port or exchange.etcd)
        config = _AgentConfig(
            enable_prog_thread=progress_thread,
            enable_listen_thread=bool(exchange.listen_port),
            listen_port=exchange.listen_port,
            thread_sync=_STRICT_SYNC if serves_itself else _READ_WRITE_SYNC if threads > 1 else _NO_SYNC,
            num_workers=1,
            lthr_delay_us=LISTENER_DELAY_US,
        )
        self.name = name
        self._threads = threads
        self._agent, self._backend = c_void_p(), c_void_p()
        # NIXL reads the store's address from the environment only when an agent is created.
        store: dict[str, str | None] = {_STORE_VARIABLE: None, _NAMESPACE_VARIABLE: None, _OTHER_STORE_VARIABLE: None}
        if exchange.etcd:
            store |= {_STORE_VARIABLE: exchange.etcd, _NAMESPACE_VARIABLE: exchange.namespace}
        with environment(store):
            self._call("create_configured_agent", name.encode(), byref(config), byref(self._agent))
        self._create_backend(backend, dict(parameters or {}))
        self._options = self._new_options()

    def _create_backend(self, backend: str, parameters: dict[str, str]) -> None:
        if self._threads > 1 and backend == "UCX":
            parameters.setdefault("num_workers", str(self._threads + 1))
        memories, settings = c_void_p(), c_void_p()
        self._call("get_plugin_params", self._agent, backend.encode(), byref(memories), byref(settings))
        for key, value in parameters.items():
            self._call("params_add", settings, key.encode(), value.encode())
        try:
            self._call("create_backend", self._agent, backend.encode(), settings, byref(self._backend))
        except NativeError as error:
            limited = os.environ.get("UCX_TLS", "") if backend == "UCX" else ""
            why = f"the backend failed, with UCX_TLS={limited[:80]} in the environment" if limited else ""
            raise NativeError(
                f"NIXL create_backend {backend}", error.code, why or STATUS.get(error.code, "")
            ) from error

    def _new_options(self) -> c_void_p:
        options = c_void_p()
        self._call("create_opt_args", byref(options))
        self._call("opt_args_add_backend", options, self._backend)
        return options

    def close(self) -> None:
        """Close the agent with its threads and sockets. All its requests must have been released."""
        self._call("destroy_agent", self._agent)

    def register(self, buffer: AnyBuffer) -> None:
        """Register host or GPU memory with the backend. The GPU's context must be current in the thread."""
        memory = describe_memory(buffer)
        self._register(memory.kind, [(buffer.address, buffer.size_bytes, memory.device, b"")])

    def register_files(self, files: Sequence[tuple[int, int]]) -> None:
        """Register open files, each (descriptor, bytes). NIXL reads and writes them with their open flags."""
        self._register(_STORAGE["FILE"], [(0, size_bytes, fd, b"") for fd, size_bytes in files])

    def register_objects(self, keys: Sequence[str], size_bytes: int) -> None:
        """Register objects of a store. The n-th key is object number n."""
        objects = [(0, size_bytes, number, key.encode()) for number, key in enumerate(keys)]
        self._register(_STORAGE["OBJECT"], objects)

    def _register(self, kind: int, regions: Sequence[tuple[int, int, int, bytes]]) -> None:
        """Register regions of (address, bytes, device, backend-specific data)."""
        memory = c_void_p()
        self._call("create_reg_dlist", c_int(kind), byref(memory))
        for address, size_bytes, device, note in regions:
            self._call(
                *("reg_dlist_add_desc", memory, c_void_p(address), c_size_t(size_bytes), c_uint64(device)),
                *(note or None, c_size_t(len(note))),
            )
        self._call("register_mem", self._agent, memory, self._options)

    def metadata(self) -> bytes:
        """Return the metadata that a peer needs to access this agent's registered memory."""
        data, size = c_void_p(), c_size_t()
        self._call("get_local_md", self._agent, byref(data), byref(size))
        return ctypes.string_at(data, size.value)

    def load(self, metadata: bytes) -> str:
        """Load a peer's metadata. Returns the peer's name."""
        name = c_char_p()
        self._call("load_remote_md", self._agent, metadata, c_size_t(len(metadata)), byref(name))
        return (name.value or b"").decode()

    def connect_to(self, peer: str) -> None:
        """Connect to a peer whose metadata is loaded."""
        self._call("agent_make_connection", self._agent, peer.encode(), self._options)

    def knows(self, peer: str) -> bool:
        """Report whether a peer's metadata has arrived."""
        return int(self._library.nixl_capi_check_remote_md(self._agent, peer.encode(), None)) == 0

    def send_metadata(self, to: Address | None = None) -> None:
        """Send the metadata to the agent that listens at an address, or to the store, asynchronously."""
        self._call("send_local_md", self._agent, self._address_options(to))

    def fetch_metadata(self, peer: str, from_: Address | None = None) -> None:
        """Request a peer's metadata from the agent at an address, or from the store. `knows` reports its arrival."""
        self._call("fetch_remote_md", self._agent, peer.encode(), self._address_options(from_))

    def withdraw_metadata(self) -> None:
        """Remove the metadata from the store."""
        self._call("invalidate_local_md", self._agent, self._address_options(None))

    def _address_options(self, address: Address | None) -> c_void_p:
        options = c_void_p()
        self._call("create_opt_args", byref(options))
        if address is not None:
            self._call("opt_args_set_ip_addr", options, address[0].encode())
            self._call("opt_args_set_port", options, ctypes.c_uint16(address[1]))
        return options

    def request_blocks(
        self,
        operation: Operation,
        local: Blocks,
        remote: Blocks,
        peer: str,
        *,
        worker: int = 0,
        memories: tuple[Memory, Memory] = (HOST, HOST),
    ) -> Request:
        """Prepare a transfer of the n-th block of `local` with the n-th of `remote`, each (address, bytes).

        `worker` selects one of the backend's workers, one for each of the agent's `threads`. `memories` are the local
        and the remote one. The agent is also a peer of itself, for a transfer within its own memory.
        """
        ours, theirs = (self._blocks(memory, of) for memory, of in zip(memories, (local, remote), strict=True))
        return self._request(operation, ours, theirs, peer, worker)

    def request_storage(
        self,
        operation: Operation,
        local: Blocks,
        kind: Storage,
        extents: Extents,
        *,
        worker: int = 0,
        memory: Memory = HOST,
    ) -> Request:
        """Prepare a transfer between memory and files or objects that this agent has registered."""
        theirs = self._descriptors(_STORAGE[kind], extents)
        return self._request(operation, self._blocks(memory, local), theirs, self.name, worker)

    def _blocks(self, memory: Memory, blocks: Blocks) -> c_void_p:
        return self._descriptors(memory.kind, [(address, size_bytes, memory.device) for address, size_bytes in blocks])

    def _request(self, operation: Operation, ours: c_void_p, theirs: c_void_p, peer: str, worker: int) -> Request:
        options, handle = self._options, c_void_p()
        if self._threads > 1:
            note = f"worker_id={worker}".encode()
            options = self._new_options()
            self._call("opt_args_set_custom_param", options, note, c_size_t(len(note)))
        self._call(
            *("create_xfer_req", self._agent, c_int(_OPERATIONS[operation])),
            *(ours, theirs, peer.encode(), byref(handle), options),
        )
        for list_ in (ours, theirs):
            self._call("destroy_xfer_dlist", list_)
        return Request(self._agent, handle, self._library)

    def _descriptors(self, kind: int, blocks: Extents) -> c_void_p:
        descriptors = c_void_p()
        self._call("create_xfer_dlist", c_int(kind), byref(descriptors))
        for address, size_bytes, device in blocks:
            self._call("xfer_dlist_add_desc", descriptors, c_void_p(address), c_size_t(size_bytes), c_uint64(device))
        return descriptors

    def _call(self, name: str, *arguments: object) -> None:
        call(self._library, name, *arguments)


def call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Call a function of NIXL. Raises NativeError with a description."""
    code = getattr(library, f"nixl_capi_{name}")(*arguments)
    check_transfer(f"NIXL {name}", min(code, 0))


def check_transfer(what: str, code: int) -> None:
    """Check the return value of a transfer loop. Raises NativeError, with NIXL's text for an error of NIXL."""
    check_result(what, code, STATUS.get(code, ""))


class Request:
    """A prepared transfer that can be posted repeatedly, here or by a crew of threads (`nixl_crew`)."""

    def __init__(self, agent: c_void_p, handle: c_void_p, library: ctypes.CDLL) -> None:
        self._agent, self._handle, self._library = agent, handle, library

    def release(self) -> None:
        """Release the request. Raises NativeError while it is in flight."""
        call(self._library, "release_xfer_req", self._agent, self._handle)
        call(self._library, "destroy_xfer_req", self._handle)

    def time(self, *, warm: int, iterations: int, patience_s: float) -> tuple[list[float], list[float]]:
        """Time iterations from post to done, and their post calls alone. Raises NativeError."""
        seconds, posts = seconds_array(iterations), seconds_array(iterations)
        loop = function(
            "rw_nixl_transfer", c_int, c_void_p, c_void_p, c_int, c_int, c_double, POINTER(c_double), POINTER(c_double)
        )
        code = loop(self._agent, self._handle, warm, iterations, patience_s, seconds, posts)
        check_transfer("NIXL transfer", code)
        return list(seconds), list(posts)
