"""Files to and from GPU memory (`cufile.c`): by NVIDIA's cuFile, or through our own pinned buffers.

cuFile reads its settings once per process, when its driver is opened, so a process measures only one `Way`. The driver
is opened only if that terminates: libcufile 1.20 reads /proc/modules forever if the file is missing. With nvidia-fs
loaded but not passed to the container, it closes descriptor 0. Needs a GPU's context (`cuda.Device`).
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
from railwright.writing import write_file

Way = Literal["gds", "cufile compat"]
LIBRARY = "libcufile.so.0"

_SETTINGS_VARIABLE, _FORCE_VARIABLE = "CUFILE_ENV_PATH_JSON", "CUFILE_FORCE_COMPAT_MODE"
_FIRST_OF_CUFILE = -5000
_LOGS, _MOST_LOG_BYTES = "cufile*.log", 2**20
"""The log is named cufile.log until 1.13. Later names include process and time."""
_NOT_IN_UDEV = "udev property not found: ID_FS_USAGE "
_ERRORS = {  # cufile.h of 1.20
    -5001: "the nvidia-fs driver is not loaded",
    -5004: "the version of the nvidia-fs driver does not match",
    -5007: "GPUDirect Storage is not supported on this platform",
    -5008: "GPUDirect Storage is not supported on this file",
    -5009: "GPUDirect Storage is not supported on this GPU",
    -5010: "the nvidia-fs driver refused a call",
    -5011: "the CUDA driver refused a call",
    -5016: "more memory than cuFile may pin",
    -5018: "this type of file is not supported",
    -5019: "the file's open flags are not supported",
    -5020: "the file is not open for direct I/O",
    -5025: "no permission to use the driver or the file",
    -5027: "cuFile does not support this file",
    -5030: "cuFile's internal error",
    -5031: "cuFile could not reopen the file",
    -5033: "the nvidia-fs driver could not be initialised",
    -5034: "GPUDirect Storage is switched off for this file",
    -5036: "GPU memory could not be pinned",
    -5048: "an internal error of the nvidia-fs driver",
}
_P2P_SUPPORTED = 1 << 4
"""CU_FILE_P2P_SUPPORTED in the feature flags."""


class Properties(NamedTuple):
    """The properties that cuFile reports."""

    nvidia_fs: str
    """The version of the nvidia-fs driver, `0.0` if there is none."""
    compatible: bool
    """Whether it may fall back to POSIX reads and writes."""
    version: int
    """The version of libcufile, such as 1150; 0 if it does not report one."""
    p2pdma: bool = False
    """Whether it can move data by PCI P2PDMA on this machine."""


def explain_unusable() -> str:
    """Explain why cuFile's driver must not be opened here. Returns an empty string if it may."""
    modules = Path("/proc/modules")
    if not modules.exists():
        return "/proc/modules does not exist, and libcufile would wait for it forever"
    try:
        loaded = any(line.startswith("nvidia_fs ") for line in modules.read_text("ascii", "replace").splitlines())
    except OSError as error:
        return f"/proc/modules cannot be read: {error.strerror}"
    if loaded and not any(Path("/dev").glob("nvidia-fs*")):
        return "nvidia-fs is loaded, but there is no /dev/nvidia-fs*: the container has no access to it"
    return ""


def write_settings(folder: Path, way: Way | None) -> Path:
    """Write our cufile.json, which applies to this process, with its log in the same folder.

    Without a way, cuFile makes its default choice. Must be called before the library is loaded.
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
    write_file(path, json.dumps(settings))
    os.environ[_SETTINGS_VARIABLE] = str(path)
    return path


def meaning(code: int) -> str:
    """Describe an error of a pass or of cuFile. Returns an empty string if only CUDA or the loops know it."""
    if code < _FIRST_OF_CUFILE:
        return f"{_ERRORS.get(code, 'an error of cuFile')} (cuFile error {-code})"
    return files.meaning(code)


def check_result(what: str, code: int) -> None:
    """Check the result of a call. Raises NativeError with a description."""
    if code > 0:
        cuda.check_result(what, code)
    library.check_result(what, code, meaning(code))


def find() -> ctypes.CDLL:
    """Load the library. Raises CannotJudge with the loader's error text."""
    try:
        return load(LIBRARY)
    except OSError as error:
        hint = "install the nvidia-cufile wheel, or CUDA's libcufile"
        raise CannotJudge(f"cuFile is not installed: {error}", hint=hint) from error


def attach() -> bool:
    """Attach to a driver that another library of this process has opened. Returns False if there is no libcufile."""
    try:
        library = find()
    except CannotJudge:
        return False
    return not function("rw_cufile_bind", c_int, c_void_p)(library._handle)


def log(folder: Path) -> str:
    """Read cuFile's log in the folder, at most 1 MiB. Returns an empty string if there is none."""
    flush_c_streams()
    found = ""
    for path in sorted(folder.glob(_LOGS)):
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            found += file.read(_MOST_LOG_BYTES - len(found))
    return found


def find_refusal(folder: Path) -> str:
    """Return the reason for a refusal from the log, as a clause to append. Returns an empty string if there is none.

    The first error causes the later ones. One error is explained: libcufile refuses every file on a drive whose file
    system is not in udev's database, and a container has no such database without the host's /run/udev.
    """
    lines = [line for line in log(folder).splitlines() if " ERROR " in line]
    drive = next((line.partition(_NOT_IN_UDEV)[2].strip() for line in lines if _NOT_IN_UDEV in line), "")
    if drive:
        return f"; udev's database lacks the file system on {drive[:40]}: give the container access to /run/udev"
    first = lines[0].partition(" ERROR ")[2].strip()[:200] if lines else ""
    return f"; its log: {first}" if first else ""


class CuFile(Closing):
    """The open cuFile driver, with the registered files and memory of one GPU. A context manager.

    Raises CannotJudge if cuFile is missing or would hang, and NativeError if it refuses a call.
    """

    def __init__(self, folder: Path, way: Way, fd: int, buffer: DeviceBuffer) -> None:
        reason = explain_unusable()
        if reason:
            raise CannotJudge(f"cuFile cannot be used: {reason}")
        write_settings(folder, way)
        self._library = find()
        bind = function("rw_cufile_bind", c_int, c_void_p)
        check_result("cuFile", bind(self._library._handle))
        buffer.device.make_current()
        check_result("cuFile driver", function("rw_cufile_open", c_int)())
        self._folder, self._buffer = folder, buffer
        self.handles: dict[int, int] = {}
        """The cuFile handle of each registered file."""
        self.register(fd)
        register_buffer = function("rw_cufile_register_buffer", c_int, c_void_p, c_uint64, c_size_t)
        code = register_buffer(buffer.device.context, buffer.address, buffer.size_bytes)
        check_result("cuFile on the GPU's memory", code)

    def register(self, fd: int) -> None:
        """Register another file. Raises NativeError if cuFile does not accept it."""
        handle = c_void_p()
        code = function("rw_cufile_register", c_int, c_int, POINTER(c_void_p))(fd, byref(handle))
        if code:
            raise NativeError("cuFile on the test file", code, f"{meaning(code)}{find_refusal(self._folder)}")
        assert handle.value is not None
        self.handles[fd] = handle.value

    def close(self) -> None:
        """Deregister memory and files, and close the driver."""
        function("rw_cufile_deregister_buffer", None, c_uint64)(self._buffer.address)
        for handle in self.handles.values():
            function("rw_cufile_deregister", None, c_void_p)(handle)
        function("rw_cufile_close", c_int)()


def properties() -> Properties:
    """Return the properties of the open driver, whichever library opened it. Needs `rw_cufile_bind`.

    Raises NativeError.
    """
    values = (c_uint * 6)()
    check_result("cuFile properties", function("rw_cufile_properties", c_int, POINTER(c_uint))(values))
    allow_compat_mode = 1 << 1
    return Properties(
        nvidia_fs=f"{values[0]}.{values[1]}",
        compatible=bool(values[3] & allow_compat_mode),
        version=values[5],
        p2pdma=bool(values[4] & _P2P_SUPPORTED),
    )


class _Pass(Structure):
    """The layout of `struct rw_gpu_pass` in cufile.c."""

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

    The position of a block in the GPU's memory is its offset plus `shift`, plus `stride` for each earlier file. Each of
    `cpus` has a worker with one operation at a time, which cycles through the files. Operations go by cuFile, where the
    files must be registered, or through a pinned buffer with room for each worker. The caller prepares and checks the
    data. Raises NativeError with the cause.
    """
    if len(offsets):
        first, last = min(offsets) + shift, max(offsets) + size_bytes + shift + (len(fds) - 1) * stride
        if first < 0 or last > buffer.size_bytes or stride < 0 or len(cpus) < len(fds):
            # the C loop would run past the end of the memory
            raise ValueError("every block must lie within the GPU's memory, and every file must have a worker")
    one = _Pass(files=len(fds), workers=len(cpus), write=int(write), count=len(offsets), bytes=size_bytes,
                shift=shift, stride=stride)  # fmt: skip
    one.fds = (c_int * len(fds))(*fds)
    if isinstance(through, CuFile):
        one.handles = (c_void_p * len(fds))(*(through.handles[fd] for fd in fds))
    elif through.size_bytes < len(cpus) * size_bytes:
        raise ValueError("the pinned buffer must have room for each worker")
    else:
        one.pinned = through.address
    bound = (c_int * len(cpus))(*cpus)
    latencies = seconds_array(len(offsets) * len(fds))
    one.at, one.cpus, one.latencies = offsets.buffer_info()[0], bound, latencies
    one.context, one.device = buffer.device.context, buffer.address
    check_result("write" if write else "read", function("rw_gpu_file_pass", c_int, POINTER(_Pass))(byref(one)))
    return Pass(one.elapsed, list(latencies), 0, 0.0, one.cpu)
