"""The documents behind the limits, each named once."""

from __future__ import annotations

from railwright.limits.limit import Source

_NCCL = "NCCL 2.30.7"
_TWO_H200 = "Measured on 2 H200 of one host, NCCL 2.28.9, nccl-tests 2.19.6"

PCIE_SPEC = Source("PCI Express Base Specification 6.0", "sections 2.2, 3.5, 4.2")
INTEL_AN708 = Source("Intel AN 708, PCI Express High Performance Reference Design", "TLP overhead")
PCIE_BENCH = Source("Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018", "section 3 and model")
NVLINK_HOPPER = Source("NVIDIA H100 Tensor Core GPU Architecture", "NVLink: 18 links of 25 GB/s a direction")
NVLINK_AMPERE = Source("NVIDIA A100 Tensor Core GPU Architecture", "NVLink: 12 links of 25 GB/s a direction")
NVLINK_BLACKWELL = Source("NVIDIA Blackwell Architecture Technical Brief", "NVLink: 18 links of 50 GB/s a direction")
NVLINK_RUBIN = Source(
    "NVIDIA, Rubin platform, January 2026, as the press quotes it",
    "NVLink 6: 3.6 TB/s a GPU both ways, taken as 18 links of 100 GB/s a direction",
)
NVLINK_VOLTA = Source("NVIDIA Tesla V100 GPU Architecture", "NVLink: 6 links of 25 GB/s a direction")
NVLINK_PASCAL = Source("NVIDIA Tesla P100 Whitepaper", "NVLink: 4 links of 20 GB/s a direction")
GAUDI = Source("Intel Gaudi documentation, Network Configuration", "200 Gb/s per port, 21 of 24 ports inside an HLS-3")
GRACE_HOPPER = Source("NVIDIA Grace Hopper Superchip Architecture", "NVLink-C2C: 900 GB/s both ways")
NCCL_TESTS_212 = Source("nccl-tests issue 212", "NVLink protocol overhead of about 20 %")
H200_MEASURED = Source(
    "Measured on 2 H200 of one host, driver 580.159, CUDA 13.0", "copy engine, 1 GiB: 395 GB/s of 450"
)
NVBANDWIDTH_H200 = Source(
    "nvbandwidth 0.8 on 2 H200 of one host, driver 580.159, CUDA 13.0",
    "host to device 55.5 by engine, 51.4 by kernel, 50.3 both ways; local copy 2,096 GB/s",
)
NVBANDWIDTH_24 = Source(
    "NVIDIA nvbandwidth issue 24",
    "by kernel on hosts of eight H100: host to device 35.0 to 35.4 GB/s, device to host 52.8; similar with H20, H800",
)
COPIES_MEASURED = Source(
    "Railwright docs/measured/1xh100, 2xh200, 4xh200 and 8xh200",
    "both ways at once: over PCIe 32.7 to 52.0 GB/s by engine, 23.7 to 33.2 by kernel; over NVLink 338 to 366"
    " by kernel",
)
LOADS_MEASURED = Source(
    COPIES_MEASURED.title,
    "a load from the GPU's own memory takes 138 to 143 ns, over NVLink 792 to 855, from host memory over PCIe 1180"
    " to 1300",
)
PAIRS_MEASURED = Source(
    "Published outputs of p2pBandwidthLatencyTest",
    "both ways at once: DGX-1 0.97 of direct NVLinks each way; RTX PRO 6000 and RTX 5090 over PCIe 0.98 to 1.0 of one"
    " way alone, RTX 4090 0.88 of the expected",
)
SMALL_COPIES = Source(
    COPIES_MEASURED.title,
    "a copy of 8 bytes takes as long as 19 to 41 loads from the GPU's own memory by the GPU's clock, 38 to 67 by the"
    " host's; NIXL takes 1.0 to 1.6 times the latter",
)
CUDA_ATTRIBUTES = Source("NVIDIA CUDA Driver API", "memory clock rate and global memory bus width; double data rate")
CDNA3 = Source("AMD CDNA 3 Architecture white paper", "Infinity Fabric between GPUs: 64 GB/s a link and direction")
CDNA4 = Source(
    "AMD's MI355X page, as others quote it",
    "Infinity Fabric: 153 GB/s a link both ways, 76.8 GB/s a direction: 16 lanes of 38.4 GT/s",
)
CDNA2 = Source(
    "AMD Instinct MI250 microarchitecture, ROCm documentation",
    "Infinity Fabric between GPUs: 25 GT/s, 50 GB/s a 16-wide link",
)
SRD_PAPER = Source(
    "Shalev et al., A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC, IEEE Micro 2020",
    "SRD over Ethernet; packet headers not given",
)
EFA_MEASURED = Source("AWS EFA, ports of 200 Gb/s", "measured 193.72 Gb/s over SRD")
IEEE_8023 = Source("IEEE 802.3", "frame, FCS, preamble and inter-packet gap")
ROCE = Source("InfiniBand Architecture Specification 1.5, Annex A17 RoCEv2", "packet format")
IBTA = Source("InfiniBand Architecture Specification 1.5", "sections 7 and 9, packet headers")
NCCL_LINES = Source(_NCCL, "src/device/prims_ll.h and prims_ll128.h: 4 of 8 bytes and 120 of 128 are data")
LL_MEASURED = Source(
    "Railwright docs/measured/2xh200, 4xh200 and 8xh200",
    "NCCL_PROTO=LL at 1 GiB and more: 121 to 158 GB/s, NCCL's cap is 141",
)
RFC_IP_TCP = Source("RFC 791, RFC 8200, RFC 9293, RFC 7323", "header lengths, time-stamp option")
JEDEC_DDR = Source("JEDEC JESD79", "data rate and 64-bit data bus of a channel")
SMBIOS = Source("DMTF DSP0134, SMBIOS reference", "type 17, memory device")
SAME_RUN = Source("this run")
SINGLE_HOST_COPIES = Source("Railwright docs/limits.md", "transfers inside one host")
NCCL_TOPO = Source(_NCCL, "src/graph/topo.h and topo.cc, planning rates of links")
NCCL_TUNING = Source(_NCCL, "src/graph/tuning.cc, model of algorithms and protocols")
NVLINK_RINGS = Source(
    "nccl-tests of 4 to 8 H200 and B200, stas00/ml-engineering network/README.md, and of A100",
    "all_reduce ring busbw 363 to 366, 673 to 682 and 231 to 235 GB/s: 0.93 to 0.99 of the planning rate",
)
NVLINK_SENDS = Source(
    "nccl-tests issue 331, two of four A100 with NV4",
    "send_recv 71 to 73 of 100 GB/s: 0.89 to 0.91 of the planning rate; the low end is 5 % below",
)
NCCL_ON_NICS = Source(
    "nccl-tests issues 175 and 152, stas00/ml-engineering network/README.md",
    "all_reduce 86, 93.3 and 92 GB/s over 4x 200 Gb/s: 0.88 to 0.95 of payload;"
    " the band extends 5 % below that and 3 % above",
)
P5_ALL_TO_ALL = Source(
    "crazyguitar/aws-gpu-communication-benchmark, nccl_alltoall.csv",
    "2 to 32 hosts reach 0.79 to 0.88 of the limit; the low end is 5 % below 0.79",
)
NCCL_412 = Source("NCCL issue 412", "16 GB/s is normal where NIC and GPU meet at the CPU")
CROSS_NUMA_MEASURED = Source(
    "p2pBandwidthLatencyTest of RTX PRO 6000, testdata/calibration/pcie.csv",
    "across sockets 32 to 39 GB/s with Zen 4 and 37 to 51 with Zen 5, where NCCL plans 16: 2.4 times the plan for CPUs"
    " without measurements; within a socket 52 to 57 GB/s",
)
ROME_SOCKETS_MEASURED = Source(
    "p2pBandwidthLatencyTest of 8 A40, two EPYC 7302, nccl-tests issue 74",
    "across sockets 19.6 to 20.8 GB/s each way at once; the high end is a fifth above 20.8",
)
LINUX_ZEN = Source("Linux 6.12", "arch/x86/kernel/cpu/amd.c, families and models of Zen 1 to 5")
PCIE_RAMP_MEASURED = Source(
    "NCCL ring of 8 RTX PRO 6000 below two switches, testdata/calibration/pcie.csv",
    "45.6 GB/s at 64 MiB, 46.4 at 1 GiB: 0.5 % per halving; the model allows twice as much",
)
AMD_XGMI = Source(
    "AMD ROCm blog 2025-03-02, RCCL Bandwidth and xGMI Performance on MI300X",
    "protocol and CRC leave about 48 of 64 GB/s a link; the low end is 13 % below that, for the algorithm",
)
P2C_MEASURED = Source(
    "Measured on GH200 (NCCL issues)", "96.1 GB/s of 100 through the Grace CPU with GPUDirect, 79.7 without"
)
A100_SMALL = Source(
    "nccl-tests in public notes, 8 A100 of one host",
    "all_reduce of 1 MiB: 37.9 us by eight processes, 52.6 by one, of which bytes take 7.6; 12 + 0.7 x 40.6 us are"
    " between them; with H200 12 + 0.35 x 40.6",
)
C2C_COPIES = Source(
    "nvbandwidth in public threads, GH200 and GB200",
    "GH200: 346 to 380 GB/s to the GPU and 297 back, of 450, without those of SuperBench; a GPU of GB200 alone: 201"
    " and 193, of 225",
)
NCCL_2409 = Source("NCCL issue 2409", "128 KiB chunks, 10 to 12 us a step: 13 GB/s per NIC, whatever its line rate")
NCCL_PXN = Source(_NCCL, "src/transport/net.cc, recvSetup: PXN is not used on receive")
NCCL_BUFFSIZE = Source("NCCL user guide, Environment Variables", "NCCL_BUFFSIZE, 4 MiB by default, in 8 steps")
NVL72_MEASURED = Source(
    "nccl-tests of 72 GB200 in one NVLink domain", "all_reduce 835 GB/s busbw: 429 GB/s a GPU in the switches"
)
NCCL_SOCKETS = Source(
    "nccl-tests over sockets by mistake, GKE A3 and Alps", "4 and 5.4 GB/s where RDMA reaches 340 and 122"
)
HOST_SMALL_MEASURED = Source(
    "Railwright testdata/external/nccl_tests, 2, 4 and 8 H200 of one host, NCCL 2.28.9",
    "small operations take 13 to 30 us: 12 us plus 0.35 of NCCL's model, within a factor of 1.8",
)
NCCL_LATENCY = Source("Railwright docs/calibration.md", "latency over hosts: an estimate, not compared with any row")
OFI_LATENCY = Source(
    "aws-ofi-nccl 2daf7d3", "src/platform-aws.cpp, the latency that the plugin reports to NCCL, by platform"
)
SRD_LATENCY = Source(
    "dailiuyao/ncclgauge-works 9c23214, aws/2026-summer-intern, p6-b200, latency_client_20260603_235229.log",
    "ib_write_lat over SRD between two p6-b200: 14.6 us one way, typical, up to 128 B",
)
TCPXO_MEASURED = Source(
    "nccl-tests on two A3 Mega, GPUDirect-TCPXO, testdata/calibration/public.csv",
    "8 B to 64 KiB: all_gather 85 us, all_reduce 123 us; up to 16 MiB all_reduce at NCCL's cap on LL",
)
RCCL_TUNING = Source("RCCL 2.21.5, 0cbce2a", "src/graph/tuning.cc, base latencies and tuning_model_5")
RCCL_MEASURED = Source(
    "rccl-tests of two hosts of 8 MI300X, RCCL 2.22.3, testdata/calibration/public.csv", "all_reduce: 219 us at 8 B"
)
RCCL_POLLARA = Source(
    "rccl-tests of two hosts of 8 MI355X with Pollara, hisohara/ai-scripts (AAC14)", "all_reduce: 41 us at 8 B"
)
NCCL_TREES = Source(_NCCL, "src/graph/trees.cc, double binary tree")
TOP500 = Source("TOP500, June 2024 to June 2025", "Rmax over accelerators: testdata/calibration/top500.csv")
FP64_TENSOR = Source("The GPU's datasheet", "FP64 rate, on tensor or matrix cores where it has them")
SYMMETRIC_MEASURED = Source("Railwright, measured on 2 H200", "docs/measured/2xh200, symmetric buffers")
RAMP_MEASURED = Source(_TWO_H200, "reduce_scatter 237 GB/s at 128 MiB and 313 at 8 GiB, all_reduce 284 and 347")
H200_GATHERS = Source(
    _TWO_H200,
    "all_gather, reduce_scatter 291 to 326 GB/s, 0.785 of the planning rate and up; the low end is 2 % below 0.785",
)
RDMA_MEASURED = Source(
    "NCCL issue 2409, perftest of Oracle Cloud and DGX Spark",
    "392.1 Gb/s of 392.2, 98.01 of 98.04, 97.28 of 98: full messages reach the payload rate; the low end is 5 % below",
)
NO_P2P_MEASURED = Source(
    f"{_TWO_H200}, and 8 RTX 5090 on two Xeon 8480+, NCCL issue 1639",
    "all_reduce without peer-to-peer 28 GB/s on H200; on RTX 5090 28 with 8 and 35 with 4 GPUs, of 57.5; 3.5 GB/s over"
    " loopback sockets if NCCL_SHM_DISABLE=1 is also set",
)
CHANNELS_MEASURED = Source(_TWO_H200, "all_reduce with NCCL_MAX_NCHANNELS=2: 41.7 GB/s")
NCCL_P2P = Source(
    "NCCL 2.28.9",
    "src/enqueue.cc (addP2pToPlan, scheduleP2pTasksToPlan), src/graph/paths.cc (ncclTopoComputeP2pChannels), "
    "NCCL_P2P_NVL_CHUNKSIZE in src/init.cc",
)
P2P_MEASURED = Source(
    "Measured on 2, 4 and 8 H200 of one host, NCCL 2.28.9, nccl-tests 2.19.6",
    "sendrecv 79.7 to 81.7 GB/s over 4 channels, 158 to 163 over 8, 303 to 308 over 16: 19.0 to 20.4 a channel",
)
RING_SEEN = Source(
    "LY Corporation, 2x 400G; aws-samples/aws-efa-eks, 2 p4d",
    "all_reduce on two hosts at the ring's rate: 800 Gb/s and 43.8 GB/s",
)
