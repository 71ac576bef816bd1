"""Our loops and perftest over Soft-RoCE in the emulated machine of the node network: equal packets, and right data.

Emulation drops packets, so requests are counted by distinct PSN. No times are compared.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKETS = re.compile(r"(perftest|ours) (\S+) opcode (\d+) distinct (\d+) packets (\d+) payload (\d+)")
CHECKED = re.compile(r"ours (\S+) (client|server) requests (\d+) checked (\d+) wrong (\d+)")
ACKNOWLEDGEMENT = 17
REQUESTS = 40
MODES = [
    f"{operation}-{size}-{pairs}"
    for operation, size, pairs in itertools.product(("write", "read", "send"), (256, 65536), (1, 4))
]

pytestmark = [pytest.mark.machine, pytest.mark.long]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the guest."""
    machine = subprocess.run([ROOT / "node/test/vm/build"], check=True, capture_output=True, text=True).stdout.strip()
    share, at = tmp_path_factory.mktemp("share"), Path(machine)
    for name in ("rdma_ends", "rdma_watch"):
        flags = ("-O2", "-I", str(ROOT / "src/railwright/native"))
        subprocess.run(
            ["cc", "-std=gnu11", *flags, "-o", str(share / name), str(HERE / f"{name}.c"), "-ldl", "-pthread"],
            check=True,
        )
    guest = share / "guest"
    guest.write_text((HERE / "soft_roce_guest").read_text())
    guest.chmod(0o755)
    (share / "arguments").write_text("\n")
    command = [
        *(at / "qemu/lib/ld-linux-x86-64.so.2", "--library-path", at / "qemu/lib", at / "qemu/qemu-system-x86_64"),
        *("-L", at / "qemu/share", "-machine", "q35", "-cpu", "max", "-smp", "1", "-m", "2048"),
        *("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=on", "-nodefaults", "-no-user-config"),
        *("-display", "none", "-no-reboot", "-serial", f"file:{share.parent / 'console.log'}", "-serial", "stdio"),
        *("-kernel", at / "vmlinux", "-initrd", at / "initrd", "-append"),
        "console=ttyS0 panic=-1 mitigations=off quiet loglevel=3 net.ifnames=0",
        *("-drive", f"if=none,id=image,format=raw,readonly=on,file={at / 'root.ext4'}"),
        *("-device", "virtio-blk-pci,drive=image", "-virtfs"),
        f"local,mount_tag=host,security_model=none,readonly=on,path={share}",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=1500).stdout


def test_twelve_modes_send_the_packets_of_perftest(told: str) -> None:
    packets: dict[str, dict[str, dict[int, tuple[int, int]]]] = defaultdict(lambda: {"perftest": {}, "ours": {}})
    for who, mode, opcode, distinct, _, payload in PACKETS.findall(told):
        packets[mode][who][int(opcode)] = (int(distinct), int(payload))
    assert sorted(packets) == sorted(MODES), told[-2000:]
    for mode, both in packets.items():
        requests = [{code: one for code, one in both[who].items() if code != ACKNOWLEDGEMENT} for who in both]
        assert requests[0] == requests[1], mode
    assert len(re.findall(r"(?:perftest|ours) \S+ status 0", told)) == 2 * len(MODES)


def test_every_byte_was_checked_on_the_target(told: str) -> None:
    found = CHECKED.findall(told)
    assert len(found) == 2 * len(MODES)
    for mode, side, requests, checked, wrong in found:
        operation, _, pairs = mode.split("-")
        assert int(requests) == (REQUESTS * int(pairs) if side == "client" else 0)
        assert (int(checked) > 0) == (side == ("client" if operation == "read" else "server"))
        assert wrong == "0"
