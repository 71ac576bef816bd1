"""The documents that the limits are computed from, each named once."""

from __future__ import annotations

from railwright.limits.model import Source

PCIE_SPEC = Source(title="PCI Express Base Specification 6.0", section="sections 2.2, 3.5, 4.2")
INTEL_AN708 = Source(title="Intel AN 708, PCI Express High Performance Reference Design", section="TLP overhead")
PCIE_BENCH = Source(
    title="Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018", section="section 3 and model"
)
NVLINK_HOPPER = Source(
    title="NVIDIA H100 Tensor Core GPU Architecture", section="NVLink: 18 links of 25 GB/s a direction"
)
NVLINK_AMPERE = Source(
    title="NVIDIA A100 Tensor Core GPU Architecture", section="NVLink: 12 links of 25 GB/s a direction"
)
NVLINK_BLACKWELL = Source(
    title="NVIDIA Blackwell Architecture Technical Brief", section="NVLink: 18 links of 50 GB/s a direction"
)
NVLINK_VOLTA = Source(title="NVIDIA Tesla V100 GPU Architecture", section="NVLink: 6 links of 25 GB/s a direction")
NVLINK_PASCAL = Source(title="NVIDIA Tesla P100 Whitepaper", section="NVLink: 4 links of 20 GB/s a direction")
GRACE_HOPPER = Source(title="NVIDIA Grace Hopper Superchip Architecture", section="NVLink-C2C: 900 GB/s both ways")
NCCL_TESTS_212 = Source(title="nccl-tests issue 212", section="NVLink protocol overhead of about 20 %")
H200_MEASURED = Source(
    title="Measured on 2 H200 of one host, driver 580.159, CUDA 13.0", section="copy engine, 1 GiB: 395 GB/s of 450"
)
IEEE_8023 = Source(title="IEEE 802.3", section="frame, FCS, preamble and inter-packet gap")
ROCE = Source(title="InfiniBand Architecture Specification 1.5, Annex A17 RoCEv2", section="packet format")
IBTA = Source(title="InfiniBand Architecture Specification 1.5", section="sections 7 and 9, packet headers")
RFC_IP_TCP = Source(title="RFC 791, RFC 8200, RFC 9293, RFC 7323", section="header lengths, time-stamp option")
JEDEC_DDR = Source(title="JEDEC JESD79", section="data rate and 64-bit data bus of a channel")
SMBIOS = Source(title="DMTF DSP0134, SMBIOS reference", section="type 17, memory device")
SAME_RUN = Source(title="this run")
SINGLE_HOST_COPIES = Source(title="Railwright docs/limits.md", section="transfers inside one host")
