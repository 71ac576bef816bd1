"""A stand-in for a container's process: it sets up its own /dev, /sys, limits and filters, and becomes `sleep`.

It is started in new namespaces (`unshare`). The argument is `cgroup.procs` of the control group to join.
"""

import ctypes
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

_IO_URING_SETUP, _FAILS_WITH_EPERM, _ALLOWED = 425, 0x00050001, 0x7FFF0000
_SYS_PTRACE, _IPC_LOCK = 19, 14
libc = ctypes.CDLL(None, use_errno=True)


def run(*words):
    subprocess.run(words, check=True)


def filter_io_uring():
    """Make io_uring_setup fail, as Docker's default profile does, and allow all other calls."""
    instructions = b"".join(
        struct.pack("=HBBI", *one)
        for one in ((0x20, 0, 0, 0), (0x15, 0, 1, _IO_URING_SETUP), (0x06, 0, 0, _FAILS_WITH_EPERM),
                    (0x06, 0, 0, _ALLOWED))
    )  # fmt: skip
    kept = ctypes.create_string_buffer(instructions)
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(kept))
    assert libc.prctl(22, 2, program, 0, 0) == 0


Path(sys.argv[1]).write_text(str(os.getpid()))
run("mount", "-t", "tmpfs", "-o", "size=1m", "devices", "/dev")
for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
    os.mknod(f"/dev/{name}", 0o20666, os.makedev(1, minor))
Path("/dev/shm").mkdir()
run("mount", "-t", "tmpfs", "-o", "size=48m", "shm", "/dev/shm")
run("mount", "--rbind", "/sys/fs/cgroup", "/mnt")
run("mount", "-t", "sysfs", "sysfs", "/sys")
run("mount", "--rbind", "/mnt", "/sys/fs/cgroup")
run("mount", "-t", "tmpfs", "none", "/sys/firmware")
run("ip", "link", "set", "lo", "up")
run("hostname", "box")
resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**16, 2**16))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for capability in (_SYS_PTRACE, _IPC_LOCK):
    assert libc.prctl(24, capability, 0, 0, 0) == 0
filter_io_uring()
os.execvp("sleep", ["sleep", "3600"])  # exec, because some limits apply only from a program's start
