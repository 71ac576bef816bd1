"""The binding of CUDA's driver, with a stand-in for libcuda in a child process: the same calls without a GPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from tests.stand_ins import environment

from railwright.native import cuda
from railwright.native.cuda_copies import CHAIN_STRIDE_BYTES
from railwright.native.library import function
from railwright.native.memory import Buffer

FOLDER = Path(cuda.__file__).parent
ADDRESSES = ("0000:1b:00.0", "0000:43:00.0")


@pytest.fixture
def child(stand_ins):
    """Return a function that runs code in a separate Python with two stand-in GPUs and returns its output."""

    def run(code: str, *, folder: Path = stand_ins, fails: bool = False, **faults: str) -> str:
        opened = f'from railwright.native import cuda, memory\na, b = "{ADDRESSES[0]}", "{ADDRESSES[1]}"\n'
        done = subprocess.run(
            [sys.executable, "-c", opened + textwrap.dedent(code)],
            env=os.environ | environment(folder, *ADDRESSES, **faults),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_the_ptx_that_travels_was_made_from_the_source_beside_it():
    text = cuda.KERNELS.read_text("ascii")
    names, hashed = re.match(r"// made by scripts/write-ptx from ([\w., ]+), sha256 ([0-9a-f]{64})\n", text).groups()
    source = b"".join((FOLDER / name).read_bytes() for name in names.split(", "))
    assert set(re.findall(rb'^#include "(.+)"$', source, re.MULTILINE)) == {
        one.encode() for one in names.split(", ")[1:]
    }
    assert hashed == hashlib.sha256(source).hexdigest(), "run scripts/write-ptx"
    kernels = re.findall(rb"^KERNEL (\w+)\(", source, re.MULTILINE)
    kernels = [name.decode() for name in kernels]
    assert kernels == re.findall(r"^\.visible \.entry (\w+)\(", text, re.MULTILINE)


def test_old_drivers_and_gpus_take_the_ptx():
    text = cuda.KERNELS.read_text("ascii")
    major, minor = re.search(r"^\.version (\d+)\.(\d+)$", text, re.MULTILINE).groups()
    assert (int(major), int(minor)) <= (7, 0)
    assert re.search(r"^\.target sm_70$", text, re.MULTILINE)


def test_a_copying_thread_has_eight_loads_of_16_bytes_in_flight():
    body = cuda.KERNELS.read_text("ascii").split(".entry copy(")[1].split("\n}")[0]
    accesses = re.findall(r"(ld|st)\.global\.v4", body)
    assert accesses[:16] == ["ld"] * 8 + ["st"] * 8
    assert ".local" not in body, "vectors must stay in registers"


def test_every_kernel_argument_is_as_wide_as_launch_sends_it():
    parameters = re.findall(r"\.param \.(\w+) \w+_param_\d+", cuda.KERNELS.read_text("ascii"))
    assert set(parameters) == {"u64", "f32"}


@pytest.mark.parametrize("size", [1, 7, 8, 4097, 1 << 20])
def test_a_gpu_and_the_host_have_the_same_pattern(child, size):
    said = child(f"""
        with cuda.Device(a) as gpu, cuda.DeviceBuffer(gpu, {size}) as there, memory.Buffer({size}) as here:
            import ctypes
            there.fill(5, position=64)
            here.fill(5, position=64)
            print(ctypes.string_at(here.address, {size}) == there.read({size}), there.count_wrong(5, position=64))
    """)
    assert said == "True 0\n"


def test_wrong_bytes_are_counted_one_by_one(child):
    said = child("""
        with cuda.Device(a) as gpu, cuda.DeviceBuffer(gpu, 1003) as there:
            there.fill(7)
            right = there.read(1003)
            for position in (0, 8, 9, 1002):
                there.write(bytes([right[position] ^ 0x80]), position)
            print(there.count_wrong(7), there.count_wrong(7, 8), there.verify(7, 1002).bytes_wrong)
    """)
    assert said == "4 1 3\n"


def test_pinned_memory_is_a_buffer_that_gpus_see(child):
    said = child("""
        with cuda.Device(a) as gpu, cuda.PinnedBuffer(gpu, 5000) as pinned:
            pinned.fill(3)
            print(isinstance(pinned, memory.Buffer), pinned.verify(3, 5000).bytes_wrong)
            print(gpu.count("count_wrong", pinned.device_address, 5000, 3, 0))
    """)
    assert said == "True 0\n0\n"


def test_a_device_is_found_by_its_address_and_not_by_its_number(child):
    said = child("""
        with cuda.Device(b) as second, cuda.Device(a) as first:
            print(second.ordinal, first.ordinal, second.address, cuda.device_count(), cuda.driver_version())
            second.enable_peer(first)
            second.enable_peer(first)
            print(second.can_access(first), second.context != first.context)
    """)
    assert said == f"1 0 {ADDRESSES[1]} 2 13.0\nTrue True\n"


def test_collectives_are_checked_on_the_gpu_by_the_pattern_that_mpi_s_are(child):
    said = child("""
        import ctypes, struct
        from railwright.native.library import function
        class Collective(ctypes.Structure):
            _fields_ = [(name, ctypes.c_ssize_t) for name in ("comm", "type", "sum")] + [
                (name, ctypes.c_int) for name in ("kind", "count", "rank", "ranks")]
        sums = Collective(kind=0, count=1000, rank=2, ranks=3)
        with cuda.Device(a) as gpu, cuda.DeviceBuffer(gpu, 4000) as there, memory.Buffer(4000) as here:
            fill = function("rw_collective_fill", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
            with memory.Buffer(4000) as into:
                fill(ctypes.byref(sums), here.address, into.address)
            cuda.launch(gpu, "collective_fill", 4, 128, there.address, 1000, 2, 0)
            gpu.synchronize()
            print(there.read(4000) == ctypes.string_at(here.address, 4000))
            def floats(data): return struct.unpack("1000f", data)
            parts = []
            for rank in range(3):
                cuda.launch(gpu, "collective_fill", 4, 128, there.address, 1000, rank, 0)
                gpu.synchronize()
                parts.append(floats(there.read(4000)))
            there.write(struct.pack("1000f", *map(sum, zip(*parts))))
            wrong = function("rw_collective_wrong", ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
            ctypes.memmove(here.address, there.read(4000), 4000)
            print(wrong(ctypes.byref(sums), here.address), gpu.count("collective_wrong", there.address, 0, 1000, 2, 3))
            there.write(bytes(8), 400)
            print(gpu.count("collective_wrong", there.address, 0, 1000, 2, 3))
    """)
    assert said == "True\n0 0\n2\n"


@pytest.mark.parametrize(("code", "words"), [("100", "no CUDA-capable device is detected"), ("803", "unsupported")])
def test_why_no_gpu_can_be_used_is_said_in_the_driver_s_words(child, code, words):
    said = child("print(cuda.explain_missing_gpu())\nprint(cuda.explain_missing_gpu())", STANDIN_CUDA_INIT=code)
    assert said.count(words) == 2
    assert said.startswith("the NVIDIA driver cannot be used: ")
    said = child("cuda.Device(a)", fails=True, STANDIN_CUDA_INIT=code)
    assert "CannotJudge: the NVIDIA driver cannot be used" in said


def test_a_driver_that_lacks_a_function_is_too_old(child, tmp_path):
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"], input=b"int cuInit;", check=True)
    said = child("print(cuda.explain_missing_gpu())", folder=tmp_path)
    assert said == "the NVIDIA driver is too old: its libcuda.so.1 has no cuDriverGetVersion\n"


def test_a_gpu_that_cuda_does_not_show_is_named_with_what_may_hide_it(child):
    said = child('cuda.Device("0000:99:00.0")', fails=True)
    assert "CannotJudge: CUDA shows no GPU at 0000:99:00.0\nhint: CUDA_VISIBLE_DEVICES may hide it" in said


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("STANDIN_CUDA_NO_MEMORY", "cuda.DeviceBuffer(gpu, 1 << 30)", "cannot allocate 1 GiB on Stand-in GPU 0 at"),
        ("STANDIN_CUDA_NO_PIN", "cuda.PinnedBuffer(gpu, 1 << 20)", "cannot pin 1 MiB of host memory: out of memory"),
        ("STANDIN_CUDA_BAD_PTX", "gpu.kernel('fill')", "compilation failed (CUDA error 218): ptxas application"),
        ("NONE", "gpu.kernel('nothing')", "kernel nothing: named symbol not found (CUDA error 500)"),
        ("NONE", "cuda.DeviceBuffer(gpu, 4096).write(bytes(5000))", "write GPU memory: invalid argument"),
    ],
)  # fmt: skip
def test_what_the_driver_refuses_is_an_error_with_the_driver_s_words(child, fault, code, words):
    assert words in child(f"gpu = cuda.Device(a)\n{code}", fails=True, **{fault: "1"})


def test_a_chain_leads_once_through_all_of_its_memory():
    slots = 512
    with Buffer(slots * CHAIN_STRIDE_BYTES) as image:
        base = 1 << 40
        arguments = (image.address, base, slots, CHAIN_STRIDE_BYTES, 3)
        function("rw_chain_write", None, ctypes.c_void_p, *[ctypes.c_uint64] * 4)(*arguments)
        follow = function("rw_chain_follow", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        seen = [follow(image.address, base, loads) for loads in range(slots)]
        assert sorted(seen) == [base + slot * CHAIN_STRIDE_BYTES for slot in range(slots)]
        assert follow(image.address, base, slots) == base
        steps = {after - before for before, after in pairwise(seen)}
        assert len(steps) > slots // 4, "an order that a prefetcher knows would measure the prefetcher"


def test_a_gpu_says_how_much_of_its_memory_is_free(child):
    assert child("with cuda.Device(a) as gpu: print(gpu.free_bytes())") == f"{1 << 30}\n"
