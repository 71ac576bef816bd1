"""NIXL through its plain C API: agents, memory registration, metadata and requests; the timed calls are in `nixl.c`.

The C API is used because the Python package would pull in numpy and torch, and costs 0.7 to 2 us a transfer.
Signatures after src/bindings/rust/wrapper.h of NIXL 1.5.2 (the header is in no wheel).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import NativeError, checked, environment, fields, function, seconds_array
from railwright.native.nixl_memory import HOST, AnyBuffer, Memory, memory_of, prepare_gpus
from railwright.native.vendor_libraries import in_wheels

Operation = Literal["READ", "WRITE"]
Blocks = Sequence[tuple[int, int]]
"""Each (address, bytes)."""
Storage = Literal["OBJECT", "FILE"]
Extents = Sequence[tuple[int, int, int]]
"""Each (offset, bytes, what holds it: a file's descriptor or an object's number)."""
Address = tuple[str, int]
"""An IPv4 address in digits, and a port."""

_OPERATIONS: dict[Operation, int] = {"READ": 0, "WRITE": 1}
_STORAGE: dict[Storage, int] = {"OBJECT": 3, "FILE": 4}
LISTENER_DELAY_US = 100_000
"""How long NIXL's own thread sleeps between two looks at its socket or its store: NIXL's default."""
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


NOT_INSTALLED = "NIXL is not installed: run `railwright setup nixl`"


class _AgentConfig(Structure):
    """Laid out as `nixl_capi_agent_config_s`."""

    _fields_ = (
        *fields(c_bool, "enable_prog_thread", "enable_listen_thread"),
        *fields(c_int, "listen_port", "thread_sync"),
        ("num_workers", c_uint),
        *fields(c_uint64, "pthr_delay_us", "lthr_delay_us"),
        ("capture_telemetry", c_bool),
    )


def find_library() -> Path | None:
    """Where libnixl_capi.so of an installed nixl wheel is, without importing NIXL; None if there is none."""
    return next(map(Path, in_wheels("libnixl_capi.so")), None)


def plugin_problem(backend: str) -> str:
    """Why the plugin of a backend cannot be loaded, in the loader's own words, or an empty string. Loads it."""
    library = find_library()
    if library is None:
        return NOT_INSTALLED
    prepare_environment()
    if backend.startswith("GDS"):
        prepare_gpus(backend)
    try:
        ctypes.CDLL(str(library.parent / "plugins" / f"libplugin_{backend}.so"))
    except OSError as error:
        return str(error)
    return ""


def knows_etcd() -> bool:
    """Whether the library was linked with etcd's client: only then does it look at NIXL_ETCD_ENDPOINTS."""
    library = find_library()
    try:
        return library is not None and _ETCD_CLIENT in library.with_name("libnixl.so").read_bytes()
    except OSError:
        return False


def prepare_environment() -> None:
    """What must be set before the library is loaded.

    `UCX_MODULES=^efa`: the wheel's EFA module loads the system's libibverbs beside the wheel's own, and the process
    then crashes at exit. Left alone where the user set it, and where an EFA device is present.
    """
    if not any(Path("/sys/class/infiniband").glob("*efa*")):
        os.environ.setdefault("UCX_MODULES", "^efa")


class Exchange(NamedTuple):
    """How an agent can give its metadata away by itself: through its own socket, or through a store."""

    listen_port: int = 0
    """The TCP port that NIXL listens on (at every address of the host), 0 for no listener."""
    etcd: str = ""
    """The store's address, `http://127.0.0.1:2379`, empty for none."""
    namespace: str = ""
    """The prefix of this run's keys in the store."""


class Agent:
    """One NIXL agent with one backend. Keeps what it created until it is closed or the process ends."""

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
        """Raises CannotJudge without NIXL, NativeError for what NIXL refuses (`parameters` are the backend's own).

        `threads` is how many threads will post: with more than one, UCX gets a worker for each, as in nixlbench.
        """
        library = find_library()
        if library is None:
            raise CannotJudge("NIXL is not installed", hint="run `railwright setup nixl`")
        prepare_environment()
        self._library = ctypes.CDLL(str(library))
        checked("NIXL", function("rw_nixl_bind", c_int, c_void_p)(self._library._handle))
        # A thread of NIXL's own that loads metadata needs the agent's locks; nixlbench's threads share them.
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
        # NIXL reads the store's address from the environment when an agent is made, and uses it for nothing else.
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
        """End the agent with its threads and sockets; all its requests must have been released."""
        self._call("destroy_agent", self._agent)

    def register(self, buffer: AnyBuffer) -> None:
        """Register a host's or a GPU's memory with the backend; the GPU's context must be the thread's current one."""
        memory = memory_of(buffer)
        self._register(memory.kind, [(buffer.address, buffer.size_bytes, memory.device, b"")])

    def register_files(self, files: Sequence[tuple[int, int]]) -> None:
        """Register open files, each (descriptor, bytes): NIXL reads and writes them as they were opened."""
        self._register(_STORAGE["FILE"], [(0, size_bytes, fd, b"") for fd, size_bytes in files])

    def register_objects(self, keys: Sequence[str], size_bytes: int) -> None:
        """Register objects of a store; the n-th key is object number n."""
        objects = [(0, size_bytes, number, key.encode()) for number, key in enumerate(keys)]
        self._register(_STORAGE["OBJECT"], objects)

    def _register(self, kind: int, regions: Sequence[tuple[int, int, int, bytes]]) -> None:
        """Each region is (address, bytes, device, what the backend wants to know of it)."""
        memory = c_void_p()
        self._call("create_reg_dlist", c_int(kind), byref(memory))
        for address, size_bytes, device, note in regions:
            self._call(
                *("reg_dlist_add_desc", memory, c_void_p(address), c_size_t(size_bytes), c_uint64(device)),
                *(note or None, c_size_t(len(note))),
            )
        self._call("register_mem", self._agent, memory, self._options)

    def metadata(self) -> bytes:
        """What a peer needs to reach this agent's registered memory."""
        data, size = c_void_p(), c_size_t()
        self._call("get_local_md", self._agent, byref(data), byref(size))
        return ctypes.string_at(data, size.value)

    def load(self, metadata: bytes) -> str:
        """Load a peer's metadata; the peer's name."""
        name = c_char_p()
        self._call("load_remote_md", self._agent, metadata, c_size_t(len(metadata)), byref(name))
        return (name.value or b"").decode()

    def connect_to(self, peer: str) -> None:
        """Connect to a peer whose metadata is there."""
        self._call("agent_make_connection", self._agent, peer.encode(), self._options)

    def knows(self, peer: str) -> bool:
        """Whether a peer's metadata has arrived."""
        return int(self._library.nixl_capi_check_remote_md(self._agent, peer.encode(), None)) == 0

    def send_metadata(self, to: Address | None = None) -> None:
        """Give the metadata to the agent that listens at an address, or to the store; NIXL does so in its own time."""
        self._call("send_local_md", self._agent, self._routed(to))

    def fetch_metadata(self, peer: str, from_: Address | None = None) -> None:
        """Ask the agent that listens at an address, or the store, for a peer's metadata; `knows` says when it came."""
        self._call("fetch_remote_md", self._agent, peer.encode(), self._routed(from_))

    def withdraw_metadata(self) -> None:
        """Take the metadata out of the store again."""
        self._call("invalidate_local_md", self._agent, self._routed(None))

    def _routed(self, address: Address | None) -> c_void_p:
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
        """A transfer of many blocks, the n-th of `local` with the n-th of `remote`, each (address, bytes).

        `worker` is which of the backend's workers takes it, one for each of the agent's `threads`; `memories` are the
        local and the remote one. The agent's own name is a peer too: then both are its own.
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
        """A transfer between a memory and files or objects that this agent has registered."""
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
    """Call one of NIXL's functions. Raises NativeError in words."""
    code = getattr(library, f"nixl_capi_{name}")(*arguments)
    checked_transfer(f"NIXL {name}", min(code, 0))


def checked_transfer(what: str, code: int) -> None:
    """Raises NativeError for what a loop over transfers returned, in NIXL's words where the error is NIXL's."""
    checked(what, code, STATUS.get(code, ""))


class Request:
    """A prepared transfer that can be posted again and again, here or by a crew of threads (`nixl_crew`)."""

    def __init__(self, agent: c_void_p, handle: c_void_p, library: ctypes.CDLL) -> None:
        self._agent, self._handle, self._library = agent, handle, library

    def release(self) -> None:
        """Give it back; it cannot be posted any more. Raises NativeError while it is in flight."""
        call(self._library, "release_xfer_req", self._agent, self._handle)
        call(self._library, "destroy_xfer_req", self._handle)

    def time(self, *, warm: int, iterations: int, patience_s: float) -> tuple[list[float], list[float]]:
        """Seconds from post to done, and of the post call alone, of each timed iteration. Raises NativeError."""
        seconds, posts = seconds_array(iterations), seconds_array(iterations)
        loop = function(
            "rw_nixl_transfer", c_int, c_void_p, c_void_p, c_int, c_int, c_double, POINTER(c_double), POINTER(c_double)
        )
        code = loop(self._agent, self._handle, warm, iterations, patience_s, seconds, posts)
        checked_transfer("NIXL transfer", code)
        return list(seconds), list(posts)
