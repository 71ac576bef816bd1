"""A setting is its value, absent, or unreadable; these three are never confused."""

import json

import pytest

from railwright.topology.settings import NONE
from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture

from .machines import files_of, write_archive, write_tree

GROUPS = "sys/kernel/iommu_groups"
CPUS = "sys/devices/system/cpu"
SETTINGS = {
    "sys/kernel/mm/transparent_hugepage/enabled": b"always madvise [never]\n",
    "proc/sys/kernel/numa_balancing": b"1\n",
    f"{CPUS}/isolated": b"2-3\n",
    f"{CPUS}/cpufreq/policy0/scaling_governor": b"powersave\n",
    f"{CPUS}/cpufreq/policy1/scaling_governor": b"performance\n",
    f"{CPUS}/cpufreq/policy2/scaling_governor": b"powersave\n",
    f"{CPUS}/cpu0/cpuidle/state0/name": b"POLL\n",
    f"{CPUS}/cpu0/cpuidle/state0/latency": b"0\n",
    f"{CPUS}/cpu0/cpuidle/state0/disable": b"0\n",
    f"{CPUS}/cpu0/cpuidle/state1/name": b"C1E\n",
    f"{CPUS}/cpu0/cpuidle/state1/latency": b"2\n",
    f"{CPUS}/cpu0/cpuidle/state1/disable": b"0\n",
    f"{CPUS}/cpu0/cpuidle/state2/name": b"C6\n",
    f"{CPUS}/cpu0/cpuidle/state2/latency": b"290\n",
    f"{CPUS}/cpu0/cpuidle/state2/disable": b"1\n",
    "proc/self/limits": b"Limit  Soft Limit  Hard Limit  Units\n"
    b"Max locked memory         67108864             unlimited            bytes     \n",
    "proc/self/status": b"Name:\trank\nUid:\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n"
    b"Cpus_allowed_list:\t0-3,8\n",
    "sys/module/nvme_core/parameters/multipath": b"Y\n",
    "proc/driver/nvidia/params": b'ResmanDebugLevel: 4294967295\nRegistryDwords: "RMForceStaticBar1=1;"\n',
    "proc/sys/kernel/yama/ptrace_scope": b"1\n",
    "proc/sys/kernel/io_uring_disabled": b"2\n",
    "sys/fs/cgroup/cpu.max": b"150000 100000\n",
    "sys/fs/cgroup/rdma.max": b"mlx5_0 hca_handle=2 hca_object=max\nmlx5_1 hca_handle=max hca_object=max\n",
    "sys/module/ib_core/parameters/netns_mode": b"N\n",
    "proc/self/mounts": b"nfs-home:/secret /home nfs rw 0 0\nshm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0\n",
    "proc/meminfo": b"MemTotal:       2147483648 kB\nHugetlb:         2097152 kB\n",
    "dev/infiniband/uverbs0": b"",
    "dev/infiniband/uverbs1": b"",
    "dev/infiniband/rdma_cm": b"",
    "sys/module/mlx5_core/version": b"24.10-0.7.0\n",
    "sys/kernel/mm/memory_peers/nv_mem/num_alloc_mrs": b"1288\n",
    "sys/kernel/mm/memory_peers/nv_mem/num_dealloc_mrs": b"1280\n",
    "sys/kernel/mm/memory_peers/nvidia-fs/num_alloc_mrs": b"3\n",
    "sys/kernel/mm/memory_peers/nvidia-fs/num_dealloc_mrs": b"0\n",
    "proc/driver/nvidia/version": b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build"
    b"  (builder@secret-build-host)  Tue Mar  5\nGCC version:  gcc version 12.2.0\n",
}
TOLD = {
    "thp": "never",
    "hugepages_bytes": 2 * 2**30,
    "numa_balancing": 1,
    "cpu_governor": "powersave (2), performance (1)",
    "cpu_frequency_driver": None,
    "cpu_energy_preference": None,
    "idle_state": "C1E",
    "idle_exit_s": pytest.approx(2e-6),
    "isolated_cpus": "2-3",
    "memlock_bytes": 64 * 2**20,
    "may_lock_memory": False,
    "dev_shm_bytes": 64 * 2**20,
    "ofed": "24.10-0.7.0",
    "nvidia_module": "open",
    "verbs_devices": 2,
    "peer_clients": "nv_mem nvidia-fs",
    "peer_regions": 8,
    "ovs_hw_offload": "none",
    "nvme_multipath": "Y",
    "static_bar1": True,
    "cpus_allowed": "0-3,8",
    "may_trace": False,
    "seccomp": "filter",
    "ptrace_scope": 1,
    "io_uring_disabled": 2,
    "cpu_quota": 1.5,
    "rdma_netns": "exclusive",
    "rdma_limit": "mlx5_0 hca_handle=2",
}


def with_settings(held, **changed):
    """Return the files of a captured machine with these settings, in today's format."""
    return {**files_of("8gpu-pcie"), "capture.json": json.dumps({"format": 2}).encode(), **held, **changed}


def facts_of(topology):
    (host,) = topology.of_kind("host")
    return host.facts


def not_read(topology):
    return [(item.what, item.why) for item in topology.unknown if item.what.startswith("setting")]


def read(tmp_path, files):
    return load(str(write_archive(tmp_path / "machine.jsonl", files)))


def test_each_setting_is_read(tmp_path):
    topology = read(tmp_path, with_settings(SETTINGS))
    facts = facts_of(topology)
    without_frequency_files = {name for name, value in TOLD.items() if value is None}
    assert {name: facts[name] for name in TOLD if name in facts and name not in without_frequency_files} == {
        name: value for name, value in TOLD.items() if value is not None
    }
    # Its policies are there and these files of them are not.
    assert {facts[name] for name in without_frequency_files} == {NONE}
    assert not_read(topology) == []


def test_missing_features_are_none(tmp_path):
    facts = facts_of(read(tmp_path, with_settings({})))
    assert {name: facts[name] for name in TOLD if facts.get(name) != NONE} == {}


def test_settings_missing_from_an_older_capture_are_not_none(tmp_path):
    topology = read(tmp_path, files_of("8gpu-pcie"))
    assert not TOLD.keys() & facts_of(topology).keys()
    ((what, why),) = not_read(topology)
    assert (what.endswith("more"), why) == (True, "the capture does not hold it")


def test_unreadable_settings_are_not_none(tmp_path):
    refused = {"format": 2, "unreadable": {"proc/self/limits": "permission denied"}}
    topology = read(tmp_path, with_settings({}, **{"capture.json": json.dumps(refused).encode()}))
    assert "memlock_bytes" not in facts_of(topology)
    assert not_read(topology) == [("setting of memlock_bytes", "/proc/self/limits permission denied")]


@pytest.mark.parametrize(
    ("path", "odd", "name"),
    [
        ("sys/kernel/mm/transparent_hugepage/enabled", b"\x00\xff", "thp"),
        ("proc/sys/kernel/numa_balancing", b"yes\n", "numa_balancing"),
        (f"{CPUS}/isolated", b"all of them\n", "isolated_cpus"),
        (f"{CPUS}/cpufreq/policy0/scaling_governor", b"\x1b[31m\n", "cpu_governor"),
        (f"{CPUS}/cpu0/cpuidle/state1/latency", b"soon\n", "idle_state"),
        ("proc/self/limits", b"Max open files 3 3\n", "memlock_bytes"),
        ("proc/self/status", b"CapEff:\t?\n", "may_lock_memory"),
        ("proc/driver/nvidia/version", b"NVIDIA\n", "nvidia_module"),
        ("sys/kernel/mm/memory_peers/nv_mem/num_alloc_mrs", b"\n", "peer_regions"),
    ],
)
def test_garbage_gives_no_setting(tmp_path, path, odd, name):
    topology = read(tmp_path, with_settings(SETTINGS, **{path: odd}))
    assert name not in facts_of(topology)
    assert any(name in what for what, _ in not_read(topology))


def test_a_capture_of_settings_holds_them_and_redacted_no_more(tmp_path):
    root = open_capture(write_tree(tmp_path / "machine", with_settings(SETTINGS)))
    capture(root, tmp_path / "again.jsonl", redact=True)
    again = load(str(tmp_path / "again.jsonl"))
    assert facts_of(again) == facts_of(load(str(tmp_path / "machine")))
    assert "secret" not in (tmp_path / "again.jsonl").read_text()


def gpus(topology):
    return {gpu.address: gpu.facts for gpu in topology.of_kind("gpu")}


def test_the_iommu_domain_is_read_for_each_function(tmp_path):
    first, second, *_ = sorted(gpus(read(tmp_path, files_of("8gpu-pcie"))))
    groups = {
        f"{GROUPS}/7/type": b"identity\n",
        f"{GROUPS}/7/devices/{first}": b"",
        f"{GROUPS}/12/type": b"DMA-FQ\n",
        f"{GROUPS}/12/devices/{second}": b"",
    }
    (tmp_path / "with").mkdir()
    root = open_capture(write_archive(tmp_path / "with/machine.jsonl", with_settings(groups)))
    capture(root, tmp_path / "again", redact=True)
    found = gpus(load(str(tmp_path / "again")))
    domains = {address: facts["iommu_domain"] for address, facts in found.items()}
    assert (domains.pop(first), domains.pop(second)) == ("identity", "DMA-FQ")
    assert set(domains.values()) == {"off"}


A100 = """0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200
0x0000038000000000 0x0000039fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
"""
H100 = """0x0000021042000000 0x0000021042ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000020000000000 0x0000021fffffffff 0x000000000014220c
"""


@pytest.mark.parametrize(("lines", "size"), [
    (A100, 128 * 2**30), (H100, 128 * 2**30), (A100.replace("39fffffffff", "3800fffffff"), 256 * 2**20),
    (A100.replace("0x0000038000000000 0x0000039fffffffff", "0x0 0x0"), 0),
    ("", None), ("one line", None), (A100.replace("0x0000038000000000 ", ""), None), ("0x1 0x0 0x0\n" * 3, None),
    ("0x0 -0x1 0x0\n" * 3, None), ("0x0 0xffffffffffffffff 0x0\n" * 3, None),
])  # fmt: skip
def test_bar1_is_the_bar_after_the_first(tmp_path, lines, size):
    files = with_settings({})
    path = next(path.rpartition("/")[0] for path, raw in files.items() if path.endswith("/device") and b"26b9" in raw)
    files[f"{path}/resource"] = lines.encode()
    assert gpus(read(tmp_path, files))[path.rpartition("/")[2]].get("bar1_bytes") == size


def test_configuration_space_gives_supported_payload_and_write_ordering(tmp_path):
    topology = read(tmp_path, files_of("8gpu-pcie"))
    link = next(link for link in topology.links if link.b == "gpu6")
    assert link.protocol.max_payload_supported_bytes == 256
    facts = topology.device("gpu6").facts
    assert (facts["relaxed_ordering"], facts["ats_capable"], facts["ats_enabled"]) == (True, True, False)


FIRST, SECOND = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup"
QUOTAS = {
    "none": ({}, NONE),
    "the topmost group of a container": ({f"{SECOND}/cpu.max": "150000 100000"}, 1.5),
    "no quota": ({f"{SECOND}/cpu.max": "max 100000"}, "unlimited"),
    "the group above is held to less": (
        {"proc/self/cgroup": "0::/pod/box\n", f"{SECOND}/pod/box/cpu.max": "max 100000",
         f"{SECOND}/pod/cpu.max": "400000 100000"}, 4.0,
    ),
    "first version": (
        {"proc/self/cgroup": "4:cpu,cpuacct:/docker/box\n3:memory:/docker/box\n",
         f"{FIRST}/docker/box/cpu.cfs_quota_us": "50000", f"{FIRST}/docker/box/cpu.cfs_period_us": "100000",
         f"{FIRST}/cpu.cfs_quota_us": "-1", f"{FIRST}/cpu.cfs_period_us": "100000"}, 0.5,
    ),
    "a path that leads out": ({"proc/self/cgroup": "0::/../../etc\n"}, None),
    "no quota at all": ({f"{SECOND}/cpu.max": "half"}, None),
}  # fmt: skip


def test_the_least_quota_of_all_control_groups_above_counts(tmp_path):
    without = {name: content for name, content in SETTINGS.items() if "cgroup" not in name}
    for title, (files, quota) in QUOTAS.items():
        folder = tmp_path / title.replace(" ", "-")
        folder.mkdir()
        held = {name: content.encode() for name, content in files.items()}
        topology = read(folder, with_settings(without | held))
        assert facts_of(topology).get("cpu_quota") == quota, title
        assert bool(not_read(topology)) == (quota is None), title
