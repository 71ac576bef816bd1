"""Files to and from GPU memory (`cufile.c`): by NVIDIA's cuFile, or through pinned buffers of our own.

cuFile reads its settings once in a process, when its driver is opened; so a process measures one way only.
It is opened only where that can end: libcufile 1.20 reads /proc/modules for ever where there is none, and with
nvidia-fs loaded but not given to the container it closes descriptor 0. Needs a GPU's context (`cuda.Device`).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Literal, NamedTuple

from railwright.errors import CannotJudge
from railwright.native import cuda, files, library
from railwright.native.cuda import DeviceBuffer, PinnedBuffer
from railwright.native.files import Pass
from railwright.native.library import Closing, NativeError, fields, flush_c_streams, function, seconds_array
from railwright.native.vendor_libraries import load

Way = Literal["gds", "cufile compat"]
LIBRARY = "libcufile.so.0"

_SETTINGS_VARIABLE, _FORCE_VARIABLE = "CUFILE_ENV_PATH_JSON", "CUFILE_FORCE_COMPAT_MODE"
_FIRST_OF_CUFILE = -5000
_LOGS, _MOST_LOG_BYTES = "cufile*.log", 2**20
"""Until 1.13 its name was cufile.log, since then process and time stand in it."""
_NOT_IN_UDEV = "udev property not found: ID_FS_USAGE "
_ERRORS = {  # cufile.h of 1.20
    -5001: "the nvidia-fs driver is not loaded",
    -5004: "the version of the nvidia-fs driver does not fit",
    -5007: "GPUDirect Storage is not supported on this platform",
    -5008: "GPUDirect Storage is not supported on this file",
    -5009: "GPUDirect Storage is not supported on this GPU",
    -5010: "the nvidia-fs driver refused a call",
    -5011: "the CUDA driver refused a call",
    -5016: "more memory than cuFile may pin",
    -5018: "this type of file is not supported",
    -5019: "the file's open flags are not supported",
    -5020: "the file is not open for direct I/O",
    -5025: "no right to use the driver or the file",
    -5027: "it does not take this file",
    -5030: "cuFile's internal error",
    -5031: "cuFile could not open the file anew",
    -5033: "the nvidia-fs driver could not be initialised",
    -5034: "GPUDirect Storage is switched off for this file",
    -5036: "GPU memory could not be pinned",
    -5048: "an internal error of the nvidia-fs driver",
}
_P2P_SUPPORTED = 1 << 4
"""Of the feature flags, CU_FILE_P2P_SUPPORTED."""


class Properties(NamedTuple):
    """What cuFile says of itself."""

    nvidia_fs: str
    """The version of the nvidia-fs driver, `0.0` where there is none."""
    compatible: bool
    """Whether it may fall back to POSIX reads and writes."""
    version: int
    """libcufile's own, like 1150; 0 where it cannot say."""
    p2pdma: bool = False
    """Whether it can move data by PCI P2PDMA here."""


def unusable() -> str:
    """Why cuFile's driver must not be opened here, or an empty string."""
    modules = Path("/proc/modules")
    if not modules.exists():
        return "/proc/modules does not exist, and libcufile would wait for it without end"
    try:
        loaded = any(line.startswith("nvidia_fs ") for line in modules.read_text("ascii", "replace").splitlines())
    except OSError as error:
        return f"/proc/modules cannot be read: {error.strerror}"
    if loaded and not any(Path("/dev").glob("nvidia-fs*")):
        return "nvidia-fs is loaded, but there is no /dev/nvidia-fs*: the container was not given it"
    return ""


def write_settings(folder: Path, way: Way | None) -> Path:
    """Our own cufile.json, in force for this process; its log goes to the same folder.

    Without a way cuFile may choose, as it does by its defaults. Must be called before the library is loaded.
    """
    compatible = way != "gds"
    properties: dict[str, object] = {"allow_compat_mode": compatible, "use_pci_p2pdma": True}
    os.environ.pop(_FORCE_VARIABLE, None)
    if way == "cufile compat":
        properties["force_compat_mode"] = True
        os.environ[_FORCE_VARIABLE] = "true"
    settings = {
        "logging": {"dir": str(folder), "level": "INFO"},
        "profile": {"nvtx": False, "cufile_stats": 0},
        "properties": properties,
    }
    path = folder / "cufile.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    os.environ[_SETTINGS_VARIABLE] = str(path)
    return path


def meaning(code: int) -> str:
    """What an error of a pass or of cuFile says; empty where only CUDA or the loops know."""
    if code < _FIRST_OF_CUFILE:
        return f"{_ERRORS.get(code, 'an error of cuFile')} (cuFile error {-code})"
    return files.meaning(code)


def checked(what: str, code: int) -> None:
    """Raises NativeError for what a call returned, in words."""
    if code > 0:
        cuda.checked(what, code)
    library.checked(what, code, meaning(code))


def find() -> ctypes.CDLL:
    """The library. Raises CannotJudge with the loader's words."""
    try:
        return load(LIBRARY)
    except OSError as error:
        hint = "install the nvidia-cufile wheel, or CUDA's libcufile"
        raise CannotJudge(f"cuFile is not installed: {error}", hint=hint) from error


def attach() -> bool:
    """Look at a driver that another library of this process has opened; False where there is no libcufile."""
    try:
        library = find()
    except CannotJudge:
        return False
    return not function("rw_cufile_bind", c_int, c_void_p)(library._handle)


def log(folder: Path) -> str:
    """What cuFile wrote in its log there, at most 1 MiB of it; empty where it wrote none."""
    flush_c_streams()
    found = ""
    for path in sorted(folder.glob(_LOGS)):
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            found += file.read(_MOST_LOG_BYTES - len(found))
    return found


def why(folder: Path) -> str:
    """What its log there says of a refusal, as a clause behind that; empty where it says nothing.

    The first error causes those behind it. One is told in plain words: libcufile refuses every file on a drive whose
    file system udev's database does not tell, and without the host's /run/udev a container has no such database.
    """
    lines = [line for line in log(folder).splitlines() if " ERROR " in line]
    drive = next((line.partition(_NOT_IN_UDEV)[2].strip() for line in lines if _NOT_IN_UDEV in line), "")
    if drive:
        return f"; udev's database does not tell the file system on {drive[:40]}: give the container /run/udev"
    first = lines[0].partition(" ERROR ")[2].strip()[:200] if lines else ""
    return f"; its log: {first}" if first else ""


class CuFile(Closing):
    """cuFile's driver, open, with one file and one GPU's memory registered. A context manager.

    Raises CannotJudge where it is missing or would hang, NativeError for what it refuses.
    """

    def __init__(self, folder: Path, way: Way, fd: int, buffer: DeviceBuffer) -> None:
        reason = unusable()
        if reason:
            raise CannotJudge(f"cuFile cannot be used: {reason}")
        write_settings(folder, way)
        self._library = find()
        bind = function("rw_cufile_bind", c_int, c_void_p)
        checked("cuFile", bind(self._library._handle))
        buffer.device.make_current()
        checked("cuFile driver", function("rw_cufile_open", c_int)())
        self._folder, self._buffer = folder, buffer
        self.handles: dict[int, int] = {}
        """cuFile's own of each file that it knows."""
        self.register(fd)
        register_buffer = function("rw_cufile_register_buffer", c_int, c_void_p, c_uint64, c_size_t)
        code = register_buffer(buffer.device.context, buffer.address, buffer.size_bytes)
        checked("cuFile on the GPU's memory", code)

    def register(self, fd: int) -> None:
        """Make one more file known. Raises NativeError where cuFile does not take it."""
        handle = c_void_p()
        code = function("rw_cufile_register", c_int, c_int, POINTER(c_void_p))(fd, byref(handle))
        if code:
            raise NativeError("cuFile on the test file", code, f"{meaning(code)}{why(self._folder)}")
        assert handle.value is not None
        self.handles[fd] = handle.value

    def close(self) -> None:
        """Let go of memory and files, and close the driver."""
        function("rw_cufile_deregister_buffer", None, c_uint64)(self._buffer.address)
        for handle in self.handles.values():
            function("rw_cufile_deregister", None, c_void_p)(handle)
        function("rw_cufile_close", c_int)()


def properties() -> Properties:
    """What the open driver says of itself, whoever opened it. Needs `rw_cufile_bind`. Raises NativeError."""
    values = (c_uint * 6)()
    checked("cuFile properties", function("rw_cufile_properties", c_int, POINTER(c_uint))(values))
    allow_compat_mode = 1 << 1
    return Properties(
        nvidia_fs=f"{values[0]}.{values[1]}",
        compatible=bool(values[3] & allow_compat_mode),
        version=values[5],
        p2pdma=bool(values[4] & _P2P_SUPPORTED),
    )


class _Pass(Structure):
    """Laid out as `struct rw_gpu_pass` in cufile.c."""

    _fields_ = (
        *fields(c_int, "files", "workers", "write", "count"),
        ("bytes", c_int64),
        ("at", c_void_p),
        *fields(c_int64, "shift", "stride"),
        *fields(POINTER(c_int), "fds", "cpus"),
        ("context", c_void_p),
        ("handles", POINTER(c_void_p)),
        ("device", c_uint64),
        ("pinned", c_void_p),
        ("latencies", POINTER(c_double)),
        *fields(c_double, "elapsed", "cpu"),
    )


def gpu_pass(
    fds: Sequence[int],
    buffer: DeviceBuffer,
    through: CuFile | PinnedBuffer,
    offsets: array.array[int],
    size_bytes: int,
    cpus: Sequence[int],
    *,
    write: bool,
    shift: int = 0,
    stride: int = 0,
) -> Pass:
    """Read or write `size_bytes` at each offset of each file.

    A block's place in the GPU's memory is its offset and `shift`, and `stride` more for each file before its own.
    There is one worker on each of `cpus`, round and round over the files, with one operation at a time: by cuFile,
    which must know the files, or through a pinned buffer that has room for each of them. The data is the caller's to
    lay down and to check. Raises NativeError with the cause.
    """
    if len(offsets):
        first, last = min(offsets) + shift, max(offsets) + size_bytes + shift + (len(fds) - 1) * stride
        if first < 0 or last > buffer.size_bytes or stride < 0 or len(cpus) < len(fds):
            raise ValueError("a block lies beyond the GPU's memory, or a file has no worker")  # C would go beyond it
    one = _Pass(files=len(fds), workers=len(cpus), write=int(write), count=len(offsets), bytes=size_bytes,
                shift=shift, stride=stride)  # fmt: skip
    one.fds = (c_int * len(fds))(*fds)
    if isinstance(through, CuFile):
        one.handles = (c_void_p * len(fds))(*(through.handles[fd] for fd in fds))
    elif through.size_bytes < len(cpus) * size_bytes:
        raise ValueError("the pinned buffer has no room for each worker")
    else:
        one.pinned = through.address
    bound = (c_int * len(cpus))(*cpus)
    latencies = seconds_array(len(offsets) * len(fds))
    one.at, one.cpus, one.latencies = offsets.buffer_info()[0], bound, latencies
    one.context, one.device = buffer.device.context, buffer.address
    checked("write" if write else "read", function("rw_gpu_file_pass", c_int, POINTER(_Pass))(byref(one)))
    return Pass(one.elapsed, list(latencies), 0, 0.0, one.cpu)
