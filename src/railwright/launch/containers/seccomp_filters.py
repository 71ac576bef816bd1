"""The seccomp filters of a running process, read by ptrace(2) as CRIU does."""

from __future__ import annotations

import base64
import ctypes
import errno
import os
import struct
from collections.abc import Iterator

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBC.ptrace.restype = ctypes.c_long
_DETACH, _SEIZE, _INTERRUPT, _GET_FILTER = 17, 0x4206, 0x4207, 0x420C  # linux/ptrace.h
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter, linux/filter.h
_RETURN_CONSTANT = 0x06  # BPF_RET | BPF_K
_ACTION, _ASK_SUPERVISOR = 0xFFFF0000, 0x7FC00000  # SECCOMP_RET_ACTION, SECCOMP_RET_USER_NOTIF of linux/seccomp.h
_MAX_FILTERS = 256


def read_filters(pid: int) -> tuple[str, ...]:
    """Read the filters of a process, oldest first, each as base64 of its instructions.

    The process is stopped while the filters are copied, as by a debugger. Raises OSError if that is not permitted: it
    requires CAP_SYS_ADMIN, a kernel with CONFIG_CHECKPOINT_RESTORE, and no other tracer.
    """
    _call_ptrace(_SEIZE, pid)
    try:
        _call_ptrace(_INTERRUPT, pid)
        os.waitpid(pid, 0x40000000)  # __WALL: also waits for threads that are not ours
        return tuple(base64.b64encode(instructions).decode("ascii") for instructions in _iterate_filters(pid))
    finally:
        _LIBC.ptrace(_DETACH, pid, None, None)


def uses_supervisor(filters: tuple[str, ...]) -> bool:
    """Report whether a filter delegates calls to a supervisor.

    The supervisor does not know us, so that such calls fail with ENOSYS.
    """
    return any(
        code == _RETURN_CONSTANT and value & _ACTION == _ASK_SUPERVISOR
        for instructions in filters
        for code, _, _, value in _INSTRUCTION.iter_unpack(base64.b64decode(instructions))
    )


def _iterate_filters(pid: int) -> Iterator[bytes]:
    for number in range(_MAX_FILTERS):
        try:
            count = _call_ptrace(_GET_FILTER, pid, number)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        instructions = ctypes.create_string_buffer(count * _INSTRUCTION.size)
        _call_ptrace(_GET_FILTER, pid, number, instructions)
        yield instructions.raw


def _call_ptrace(request: int, pid: int, number: int = 0, data: ctypes.Array[ctypes.c_char] | None = None) -> int:
    answer: int = _LIBC.ptrace(request, pid, number, data)
    if answer < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
    return answer
