"""Texts without a result: what is recognised, what would settle it, and errors of a job."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("LnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n", "lspci"),
        ("CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n", "ibstat"),
        ('     6    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>   3   3[  ] "switch" ( )\n', "iblinkinfo"),
        ("\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n", "nvidia-smi nvlink"),
        ("Engine 000: Avg prompt throughput: 10.1 tokens/s, GPU KV cache usage: 3.1%\n", "vLLM"),
        ("CUDA_VISIBLE_DEVICES=0 ucx_perftest -p 13503 -c 0\n", "a benchmark's command"),
        ('Thread 0x00007ff5755ab4c0 (most recent call first):\n  File "a.py", line 3 in wait\n', "stacks of a program"),
        (
            "Inject  Latency Bandwidth\nDelay   (ns)    MB/sec\n 00000  130.31   135655.9\n",
            "Intel Memory Latency Checker",
        ),
        ("Debug: x [/builds/dcgm/dcgm/nvvs/src/TestFramework.cpp:855] [TestFramework::Go]\n", "DCGM's log"),
        ("HPCG result is VALID with a GFLOP/s rating of: [GFLOP/s]\n", "HPCG"),
        (
            " nThread 1 nGpus 1 minBytes 32 maxBytes 64 step: 2(factor)\n   Rank  0 Pid 7 on a device  0 [0x00] A100\n",
            "nccl-tests",
        ),
        ("RocmBandwidthTest Version: 2.6.0\n  Device: 1,  AMD Instinct MI210\n", "rocm_bandwidth_test"),
        ("Starting SPDK v24.1 / DPDK 23.11 initialization...\nEAL: Detected 8 lcore(s)\n", "SPDK's perf"),
        ("\\begin{tabular}{l r} size & 0.83 \\\\ \\hline\n", "LaTeX"),
        ("[METRIC] Training Throughput (samples/second): 10.9 (0.1)\n", "MLPerf Storage"),
        ("config:\n\tNAME STATE READ WRITE CKSUM\n\tt DEGRADED 0 0 0\n", "zpool"),
        ("Index, Name:\n\tDescription\n0, host_to_device_memcpy_ce:\n\tHost to device\n", "nvbandwidth -l"),
    ],
)
def test_lines_of_a_tool_without_a_reader_are_named_with_a_next_step(text, tool):
    found = read_paste(text, None)
    assert [noted.tool for noted in found.noted][:1] == [tool]
    assert found.noted[0].remedy
    assert found.status == 3


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (
            "LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 8GT/s (downgraded), Width x16\n",
            "8 GT/s x16 and can do",
        ),
        ("NvLink Link Status\n  gpuId 3:\n        U U D D\n", "2 of 4 NVLinks of GPU 3 are down"),
        (
            "| PCIe                | Fail - All       |\n| Warning   | GPU 0 link 1 is down    |\n",
            "PCIe (Fail - All): GPU 0",
        ),
        (" GPU0   X   OK  NS\n GPU1   OK  X   OK\n GPU2   NS  OK  X\n", "2 of 6 pairs: 2 NS"),
        ("CA 'mlx5_0'\n  State: Down\n  Rate: 10\nCA 'mlx5_1'\n  State: Active\n  Rate: 400\n", "not up: 1 Down"),
        (
            "NIC statistics:\n     [0]: rx_discards: 4\n     [1]: rx_discards: 5\n     [1]: rx_bytes: 9\n",
            "rx_discards 9",
        ),
        ("NIC statistics:\n     rx_out_of_buffer: 0\n     rx_bytes_phy: 7\n", "none of the 1 counter of errors"),
        (
            " NVMe               : Supported\n NFS                : Unsupported\n properties.use_compat_mode : true\n",
            "supported: NVMe; not supported: 1 of 2; compatibility mode true",
        ),
        (
            "1 1[ ] ==( 4X  25.78125 Gbps Active/ LinkUp)==> 3\n1 2[ ] ==( 2X  25.78125 Gbps Active/ LinkUp)==> 3\n",
            "ports of unlike rates",
        ),
        ("\tSpeed: 25000Mb/s\n", "the link is at 25 Gb/s"),
        (
            "| 2008..8246 | eager zero-copy copy-out | rc_mlx5/mlx5_0:1 |\n",
            "2008..8246 bytes: eager zero-copy copy-out",
        ),
    ],
)
def test_what_a_tool_without_a_reader_reports_is_told(text: str, fact: str) -> None:
    (noted, *_) = read_paste(text, None).noted
    assert fact in "; ".join(noted.says)


def test_a_refusal_says_what_the_text_has_and_names_the_nearest_tools():
    with pytest.raises(UsageError) as refused:
        read_paste("rank 0 allreduce gpu slow\nmilliseconds 12 ms\n", None)
    assert "the units ms" in refused.value.message
    assert "nearest are nccl-tests" in refused.value.hint


def test_words_that_many_texts_have_make_no_tool_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        read_paste("size, time, tflops\n256, 0.1, 3.5\nthe host has this device and its bandwidth\n", None)
    assert refused.value.hint is not None
    assert "nearest are STREAM or HPL" in refused.value.hint


def test_a_refusal_names_columns_and_units_of_a_markdown_table_and_the_first_error() -> None:
    with pytest.raises(UsageError) as refused:
        read_paste("| Rows | Ours (\u00b5s) |\n|---|---|\n| 1 | 8.31 |\nservice failed to start\n", None)
    assert "the columns Rows, Ours (\u00b5s)" in refused.value.message
    assert "the units \u00b5s" in refused.value.message
    assert "'service failed to start'" in refused.value.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=REDUCE, Timeout(ms)=600)",
            "rank 3: REDUCE number 7 did not finish within 600 ms",
        ),
        ("ncclSystemError: System call (e.g. socket, malloc) failed", "ncclSystemError: a system call"),
        ("Last error:\nsocketProgress: Connection closed by remote peer n2<4100>", "n2 closed its connection"),
        ("n1: Test NCCL failure common.cu:958 'unhandled system error / '", "nccl-tests ended: NCCL failure"),
        ("NVML: Unable to retrieve NVLink information as all links are inActive", "all NVLinks of a GPU inactive"),
        ("ibrc.cpp:420: non-zero status: 22 ibv_modify_qp failed.", "the NIC could not connect to its peer"),
        ("RuntimeError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.7.8", "ncclUnhandledCudaError"),
        ("At least one pair of MPI processes are unable to reach each other for", "Open MPI found no transport"),
        ("  BTLs attempted: tcp self", "the transports that Open MPI tried between two processes, tcp self,"),
        ("[n1:7] *** MPI_ERR_TRUNCATE: message truncated", "MPI failed with MPI_ERR_TRUNCATE"),
        ("Abort(1): Fatal error in PMPI_Init: Other MPI error, error stack:", "MPICH failed in PMPI_Init"),
        (" 1 0x0000000000020079 uct_ib_mlx5_completion_with_err()  ???:0", "a failed completion of the NIC"),
        ("There are not enough slots available in the system", "mpirun was asked for more processes"),
        ("ib_mlx5_log.c:179  Transport retry count exceeded on mlx5_2:1/RoCE (synd 0x15)", "what mlx5_2:1/RoCE sent"),
        (
            "file register error: GPUDirect Storage not supported on current file filename :/a",
            "cuFile cannot use GPUDirect",
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
            "Xid 79 of PCI:0000:3b:00: the GPU fell",
        ),
        (
            "NET/IB: Got completion from peer 10.0.0.9<1> with status=12 opcode=0 len=0 vendor err 129",
            "10.0.0.9 did not",
        ),
        ("Failed status 4: wr_id 0 syndrom 0x51", "may not access the buffer of its own side"),
        ("[0] failed to open CUDA IPC handle : 217 peer access is not supported", "could not map the memory"),
    ],
)
def test_error_lines_of_a_job_are_told_first(line, words):
    found = read_paste(line + "\n", None)
    assert words in found.errors[0].says
    assert found.status == 1


def test_a_matrix_whose_rows_are_cut_accuses_no_gpu():
    matrix = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tSYS\tPIX\t0-31\nGPU1\tSYS\t X \n"
    (noted,) = read_paste(matrix, None).noted
    assert noted.findings == ()
    assert "the rows of GPU1 are missing or cut: their NICs are not known" in noted.says


def test_gpus_with_unlike_numbers_of_nvlinks_are_told():
    rows = ["\tGPU0\tGPU1\tGPU2\tCPU Affinity", "GPU0\t X \tNV6\tSYS\t0-31", "GPU1\tNV6\t X \tNV6\t0-31"]
    matrix = "\n".join([*rows, "GPU2\tSYS\tNV6\t X \t0-31", ""])
    (noted,) = read_paste(matrix, None).noted
    assert any("different numbers of NVLinks" in words for words in noted.says)


def test_a_cut_matrix_tells_nothing_of_links_in_its_missing_rows() -> None:
    matrix = "\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV2\tNV1\tPIX\t0-31\nGPU1\tNV2\t X \n"
    (noted,) = read_paste(matrix, None).noted
    assert not any("wrong" in words for words in noted.says)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            (
                "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, A10, pciBusID: 1\n"
                "Device: 1, A10, pciBusID: 2\n"
                "Device=0 CAN Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n"
            ),
            ("2 A10", "peer access: 1 of 2 pairs and directions, between GPUs 0-1"),
        ),
        (
            (
                "**** Waiting for client ****\n[pid = 7, dev = 0] device name = [NVIDIA L40S]\nRDMA_Write BW Test\n"
                " Dual-port : OFF\t\tDevice : mlx5_1\n"
            ),
            ("the server side of ib_write_bw", "GPU memory of NVIDIA L40S"),
        ),
        (
            "fio-3.36\nStarting 8 processes\nJobs: 8 (f=8): [W(8)][20.0%][w=2100MiB/s][w=2100 IOPS][eta 10s]\n",
            ("fio began", "[w=2100MiB/s][w=2100 IOPS]"),
        ),
    ],
)
def test_the_start_of_a_run_tells_what_it_has(text: str, facts: tuple[str, ...]) -> None:
    (noted,) = read_paste(text, None).noted
    assert all(fact in "; ".join(noted.says) for fact in facts)


def test_lines_that_were_not_read_end_a_partial_answer():
    log = "n0:1:2 [0] NCCL INFO NCCL version 2.28.7+cuda12.8\n"
    found = read_paste(log + "CA 'mlx5_0'\n\tCA type: MT4129\n", None)
    assert found.unread == ("2 lines of ibstat were not read",)


def test_ranks_are_taken_from_the_option_and_never_against_the_text():
    table = (
        "# OSU MPI-CUDA Allreduce Latency Test v5.7\n# Size  Avg Latency(us)\n1048576  1490.10\n33554432  48030.70\n"
    )
    machine = Machine(cluster=build_cluster(load("hgx-a100"), 8))
    assert read_paste(table, machine, ranks=64).files[0].ranks == 64
    with pytest.raises(UsageError, match="the text gives 64 ranks, --ranks gives 8"):
        read_paste(f"$ mpirun -np 64 -N 8 ./osu_allreduce -d cuda\n{table}", machine, ranks=8)


def test_settings_of_the_command_count_beside_a_log():
    text = "$ NCCL_IB_DISABLE=1 python train.py\nn0:1:2 [0] NCCL INFO NCCL version 2.28.7+cuda12.8\n"
    found = read_paste(text, None)
    assert any("NCCL_IB_DISABLE=1" in finding.says for finding in found.findings)
