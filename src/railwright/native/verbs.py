"""Ports, regions and queue pairs of RDMA devices through libibverbs (`verbs.c`).

Only ranks may load it, because a driver below it can hang. The package is not linked with any RDMA library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_void_p
from typing import NamedTuple

from railwright.errors import CannotJudge
from railwright.native.library import Closing, NativeError, fields, function, system_error

LIBRARY = "libibverbs.so.1"
MOST_QUEUE_PAIRS = 64
_NAMES_BYTES = 64 * 1024
_NO_DEVICE, _MISSING_SYMBOL = -1012, -1001
_MEANINGS = {
    -1010: "a message arrived with another length",
    -1011: "the device lost a completion, or reported one that was not due",
}
_LINK_LAYERS = {1: "InfiniBand", 2: "Ethernet"}
_ACTIVE = 4
MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
"""enum ibv_mtu."""
_GID_KINDS = {0: "", 1: "v1", 2: "v2"}
_HINTS = {
    errno.ENOMEM: "the limit of locked memory may be too low: check `ulimit -l`",
    errno.EACCES: "this process may not open /dev/infiniband/uverbs*",
    errno.EPERM: "this process may not open /dev/infiniband/uverbs*",
    errno.EOPNOTSUPP: "the device does not support it",
}


class Failure(Structure):
    """The layout of `struct rw_failure` in rdma.h."""

    _fields_ = (("call", c_char_p), ("lane", c_int), ("vendor", c_uint32))


class _Facts(Structure):
    """The layout of `struct rw_port_facts` in verbs.c."""

    _fields_ = (
        *fields(c_int, "state", "active_mtu", "link_layer", "lid", "gids", "reads", "responder_reads"),
        *fields(c_int, "most_requests", "most_completions"),
        ("most_message_bytes", c_uint32),
        ("firmware", c_char * 64),
    )


class _GidEntry(Structure):
    """The layout of `struct rwv_gid_entry` in verbs.h."""

    _fields_ = (("gid", c_uint8 * 16), *fields(c_uint32, "gid_index", "port_num", "gid_type", "ndev_ifindex"))


class _Peer(Structure):
    """The layout of `struct rw_peer` in verbs.c."""

    _fields_ = (
        *fields(c_uint32, "number", "psn", "own_psn"),
        *fields(c_int, "lid", "gid_index"),
        ("gid", c_uint8 * 16),
        *fields(c_int, "mtu", "traffic_class", "service_level", "reads", "responder_reads"),
    )


class Gid(NamedTuple):
    """An entry of a port's GID table."""

    place: int
    raw: bytes
    version: str
    """`v1` or `v2` of RoCE; empty for InfiniBand."""


class PortFacts(NamedTuple):
    """The state and capabilities of a port."""

    is_active: bool
    mtu: int
    """The active MTU as enum ibv_mtu, 1 to 5."""
    link_layer: str
    lid: int
    gids: int
    reads: int
    """The number of reads that a queue pair may have in flight."""
    responder_reads: int
    most_requests: int
    most_completions: int
    most_message_bytes: int
    firmware: str


class Peer(NamedTuple):
    """The other end of a queue pair, and the way to it."""

    number: int
    psn: int
    own_psn: int
    lid: int
    gid: bytes
    gid_index: int
    """The index of this side's GID; -1 without a global route."""
    mtu: int
    traffic_class: int
    service_level: int
    reads: int
    responder_reads: int


class Region(NamedTuple):
    """A registered part of memory."""

    address: int
    size_bytes: int
    local_key: int
    remote_key: int


def check_result(what: str, code: int) -> None:
    """Check the result of a call or loop. Raises NativeError with the call, or the status of the completion."""
    if code:
        failure = function("rw_verbs_failure", Failure)()
        raise NativeError(what, code, _explain(code, failure))


def _explain(code: int, failure: Failure) -> str:
    call = (failure.call or b"").decode()
    if code > 0:
        text = function("rw_verbs_status_text", c_char_p, c_int)(code)
        status = text.decode(errors="replace") if text else f"status {code}"
        return f"queue pair {failure.lane}: completion with error: {status} (vendor error {failure.vendor:#x})"
    if code == _MISSING_SYMBOL and call:
        return f"libibverbs has no {call}"
    if cause := system_error(code):
        hint = _HINTS.get(-code, "")
        return f"{call}: {cause}{f' ({hint})' if hint else ''}"
    return _MEANINGS.get(code, "")


def bind() -> str:
    """Load libibverbs and bind its functions. Returns its name. Raises CannotJudge if it is absent or too old."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CannotJudge(f"libibverbs cannot be loaded: {error}; install rdma-core (Debian: libibverbs1)") from error
    if function("rw_verbs_bind", c_int, c_void_p)(library._handle):
        name = (function("rw_verbs_failure", Failure)().call or b"").decode()
        raise CannotJudge(f"libibverbs has no {name}; rdma-core 33 or later is needed")
    return LIBRARY


def list_devices() -> list[str]:
    """Return the names of the RDMA devices that this process sees, sorted. Raises NativeError."""
    names = ctypes.create_string_buffer(_NAMES_BYTES)
    check_result("RDMA devices", function("rw_verbs_devices", c_int, c_char_p, c_size_t)(names, _NAMES_BYTES))
    return sorted(names.value.decode(errors="replace").split())


def has_dmabuf() -> bool:
    """Report whether libibverbs can register DMA buffers (rdma-core 34 and later)."""
    return bool(function("rw_verbs_has_dmabuf", c_int)())


class Port(Closing):
    """An open port of an RDMA device. A context manager; closing it releases all that it registered and created."""

    def __init__(self, device: str, number: int) -> None:
        self.name = f"{device}:{number}"
        facts, handle = _Facts(), c_void_p()
        open_port = function("rw_port_open", c_int, c_char_p, c_int, POINTER(_Facts), POINTER(c_void_p))
        code = open_port(device.encode(), number, byref(facts), byref(handle))
        if code == _NO_DEVICE:
            raise CannotJudge(
                f"no RDMA device is named {device[:64]!r}; there is {', '.join(list_devices()) or 'none'}"
            )
        check_result(self.name, code)
        self._handle = handle
        self.facts = PortFacts(
            is_active=facts.state == _ACTIVE,
            mtu=facts.active_mtu,
            link_layer=_LINK_LAYERS.get(facts.link_layer, "unknown"),
            lid=facts.lid,
            gids=facts.gids,
            reads=facts.reads,
            responder_reads=facts.responder_reads,
            most_requests=facts.most_requests,
            most_completions=facts.most_completions,
            most_message_bytes=facts.most_message_bytes,
            firmware=facts.firmware.decode(errors="replace"),
        )

    def __exit__(self, *error: object) -> None:
        # The first error is the cause of what fails after it.
        with contextlib.suppress(NativeError) if error[0] is not None else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """Release everything. Raises NativeError if the device did not release a part. A second call has no effect."""
        handle, self._handle = self._handle, c_void_p()
        if handle.value:
            check_result(self.name, function("rw_port_close", c_int, c_void_p)(handle))

    def _call(self, name: str, *arguments: object, kinds: tuple[object, ...]) -> None:
        call: Callable[..., int] = function(name, c_int, c_void_p, *kinds)
        check_result(self.name, call(self._handle, *arguments))

    def list_gids(self) -> list[Gid]:
        """Return the entries of the GID table that hold an address. Raises NativeError."""
        found = []
        read = function("rw_port_gid", c_int, c_void_p, c_uint32, POINTER(_GidEntry))
        for index in range(min(self.facts.gids, 256)):
            entry = _GidEntry()
            code = read(self._handle, index, byref(entry))
            if code in (-errno.ENODATA, -errno.EINVAL):
                continue
            check_result(self.name, code)
            if any(entry.gid):
                found.append(Gid(index, bytes(entry.gid), _GID_KINDS.get(entry.gid_type, "")))
        return found

    def create_completions(self, entries: int) -> None:
        """Create the completion queue of all queue pairs. Raises NativeError."""
        self._call("rw_port_completions", entries, kinds=(c_int,))

    def register(self, address: int, size_bytes: int, *, dmabuf: int = -1, relaxed: bool = False) -> Region:
        """Register memory; that of a DMA buffer by its descriptor. Raises NativeError."""
        region = c_void_p()
        kinds = (c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p))
        self._call("rw_port_register", address, size_bytes, dmabuf, int(relaxed), byref(region), kinds=kinds)
        keys = (c_uint32 * 2)()
        function("rw_region_keys", None, c_void_p, POINTER(c_uint32))(region, keys)
        return Region(address, size_bytes, keys[0], keys[1])

    def create_queue_pair(self, sends: int, receives: int, inline_bytes: int) -> QueuePair:
        """Create a reliable queue pair, in the state INIT. Raises NativeError."""
        handle = c_void_p()
        kinds = (c_int, c_int, c_int, POINTER(c_void_p))
        self._call("rw_port_queue_pair", sends, receives, inline_bytes, byref(handle), kinds=kinds)
        assert handle.value is not None
        return QueuePair(handle.value, function("rw_queue_pair_number", c_uint32, c_void_p)(handle))

    def connect(self, pair: QueuePair, peer: Peer) -> None:
        """Connect a queue pair with its peer. Raises NativeError."""
        to = _Peer(**{name: getattr(peer, name) for name in peer._fields if name != "gid"})
        to.gid[:] = peer.gid
        self._call("rw_port_connect", c_void_p(pair.handle), byref(to), kinds=(c_void_p, POINTER(_Peer)))


class QueuePair(NamedTuple):
    """A queue pair of a port."""

    handle: int
    number: int


def draw_psn() -> int:
    """Draw the first packet sequence number of a queue pair, which has 24 bits."""
    return int.from_bytes(os.urandom(3), "big")
