"""The limits of single links, against published figures."""

from __future__ import annotations

import pytest

from railwright.expected.links import find_band
from railwright.limits.limit import Expected, Limit, NoLimit
from railwright.limits.path import link_limit
from railwright.limits.pcie import payload_rate, payload_rate_with_dllps, raw_rate
from railwright.topology.devices import (
    C2cLink,
    EfaLink,
    EthernetLink,
    InfinibandLink,
    InternalLink,
    Link,
    MemoryLink,
    NvlinkLink,
    PcieLink,
    Protocol,
    SmpLink,
    XgmiLink,
)

GB = 1e9


def limit_of(protocol: Protocol) -> tuple[Limit | NoLimit, Expected | None]:
    link = Link(a="here", b="there", protocol=protocol)
    limit = link_limit(link)
    return limit, find_band(link, limit) if isinstance(limit, Limit) else None


def derived(protocol: Protocol) -> Limit:
    limit, _ = limit_of(protocol)
    assert isinstance(limit, Limit)
    assert limit.kind == "derived"
    assert limit.sources
    assert limit.because
    assert limit.bottleneck == "here--there"
    return limit


# Columns of a table computed independently from the specification: (GT/s, MaxPayload) -> without and with DLLPs, GB/s
@pytest.mark.parametrize(
    ("gt_per_s", "max_payload", "without", "with_dllps"),
    [
        (8.0, 128, 13.3, 11.8),
        (8.0, 256, 14.4, 13.0),
        (8.0, 512, 15.0, 13.7),
        (16.0, 128, 26.5, 23.5),
        (16.0, 256, 28.8, 26.0),
        (16.0, 512, 30.1, 27.4),
        (32.0, 128, 53.1, 47.0),
        (32.0, 256, 57.6, 52.0),
        (32.0, 512, 60.2, 54.7),
    ],
)
def test_pcie_x16_matches_the_specification(
    gt_per_s: float, max_payload: int, without: float, with_dllps: float
) -> None:
    raw = raw_rate(gt_per_s, 16)
    assert raw is not None
    assert payload_rate(raw, max_payload) / GB == pytest.approx(without, rel=0.006)
    assert payload_rate_with_dllps(raw, max_payload) / GB == pytest.approx(with_dllps, rel=0.006)


@pytest.mark.parametrize(
    ("measured", "gt_per_s", "max_payload", "where"),
    [
        (26.28, 16.0, 256, "A100, Azure, host to device"),
        (55.43, 32.0, 256, "H200, p5en, host to device"),
        (55.06, 32.0, 256, "H200, p5en, device to host"),
        (56.57, 32.0, 256, "RTX PRO 6000, peer to peer in one NUMA node"),
        (55.3, 32.0, 256, "H200, pinned copies of 1 GiB"),
    ],
)
def test_published_pcie_copies_lie_in_the_band(measured: float, gt_per_s: float, max_payload: int, where: str) -> None:
    limit, band = limit_of(PcieLink(gt_per_s=gt_per_s, width=16, max_payload_bytes=max_payload))
    assert isinstance(limit, Limit), where
    assert band is not None
    assert band.low <= measured * GB <= limit.value


def test_an_unread_maxpayload_widens_the_band_and_is_reported() -> None:
    limit, band = limit_of(PcieLink(gt_per_s=32.0, width=16))
    known, known_band = limit_of(PcieLink(gt_per_s=32.0, width=16, max_payload_bytes=256))
    assert isinstance(limit, Limit)
    assert isinstance(known, Limit)
    assert band is not None
    assert known_band is not None
    assert band.low < known_band.low < known.value < limit.value
    assert "MaxPayload not readable" in limit.because


@pytest.mark.parametrize(
    "link", [PcieLink(), PcieLink(gt_per_s=16.0), PcieLink(width=16), PcieLink(gt_per_s=7.0, width=4)]
)
def test_a_pcie_link_of_unknown_rate_has_no_limit(link: PcieLink) -> None:
    limit, band = limit_of(link)
    assert isinstance(limit, NoLimit)
    assert band is None
    assert limit.missing


@pytest.mark.parametrize("payload", [0, -5, 3, 100_000])
def test_a_nonsense_maxpayload_is_treated_as_unread(payload: int) -> None:
    limit, _ = limit_of(PcieLink(gt_per_s=32.0, width=16, max_payload_bytes=payload))
    unread, _ = limit_of(PcieLink(gt_per_s=32.0, width=16))
    assert isinstance(limit, Limit)
    assert isinstance(unread, Limit)
    assert limit.value == unread.value


# Gb/s of payload: published or issue-reported line-rate measurements
@pytest.mark.parametrize(
    ("protocol", "gbits"),
    [
        (EthernetLink(line_rate_bits_per_s=400e9, mtu_bytes=4200, rdma=True), 392.2),
        (EthernetLink(line_rate_bits_per_s=100e9, mtu_bytes=4200, rdma=True), 98.04),
        (EthernetLink(line_rate_bits_per_s=100e9, mtu_bytes=1500, rdma=True), 92.6),
        (InfinibandLink(line_rate_bits_per_s=400e9, mtu_bytes=4096), 397.5),
        (InfinibandLink(line_rate_bits_per_s=200e9, mtu_bytes=2048), 197.5),
        (EthernetLink(line_rate_bits_per_s=10e9, mtu_bytes=1500), 9.41),
    ],
)
def test_ports_carry_the_payload_share_of_their_line_rate(protocol: Protocol, gbits: float) -> None:
    assert derived(protocol).value * 8 / GB == pytest.approx(gbits, rel=0.001)


@pytest.mark.parametrize(
    ("protocol", "gigabytes"),
    [
        (NvlinkLink(generation=4, links=18), 450),
        (NvlinkLink(generation=3, links=12), 300),
        (NvlinkLink(generation=5, links=18), 900),
        (C2cLink(), 450),
        (XgmiLink(generation=4, links=1), 64),
        (XgmiLink(generation=4, links=7), 448),
        (XgmiLink(generation=3, links=1), 50),
        (MemoryLink(channels=8, transfers_per_s=4800e6, bus_bytes=8), 307.2),
    ],
)
def test_links_of_known_rate_are_derived(protocol: Protocol, gigabytes: float) -> None:
    assert derived(protocol).value / GB == pytest.approx(gigabytes)


def test_a_healthy_nvlink_copy_lies_in_the_band() -> None:
    limit, band = limit_of(NvlinkLink(generation=4, links=18))
    assert isinstance(limit, Limit)
    assert band is not None
    for measured in (376, 395, 396):  # H100 and H200, copy engine
        assert band.low <= measured * GB <= limit.value
    assert band.low > 274 * GB  # an A100's pair would be too slow for it


@pytest.mark.parametrize(
    "protocol",
    [
        SmpLink(name="UPI"),
        InternalLink(name="virtio"),
        MemoryLink(),
        EthernetLink(mtu_bytes=1500),
        EthernetLink(line_rate_bits_per_s=1e9),
        InfinibandLink(),
        NvlinkLink(generation=9, links=18),
        NvlinkLink(generation=4, links=0),
        XgmiLink(generation=9, links=1),
        XgmiLink(generation=4, links=0),
        EfaLink(line_rate_bits_per_s=200e9),
        EfaLink(mtu_bytes=9001),
    ],
)
def test_links_without_documents_have_no_limit_but_a_reason(protocol: Protocol) -> None:
    limit, band = limit_of(protocol)
    assert isinstance(limit, NoLimit)
    assert limit.why
    assert band is None


def test_efa_is_limited_by_ethernets_framing_and_says_so() -> None:
    limit, band = limit_of(EfaLink(line_rate_bits_per_s=200e9, mtu_bytes=9001))
    assert isinstance(limit, Limit)
    assert limit.value * 8 / GB == pytest.approx(200 * 9001 / 9039)
    assert "not public" in limit.because
    assert band is not None
    assert band.low * 8 / GB < 193.72 < limit.value * 8 / GB  # measured over SRD


def test_an_efa_port_at_nine_tenths_of_its_rate_is_below_the_band() -> None:
    _, band = limit_of(EfaLink(line_rate_bits_per_s=100e9, mtu_bytes=9001))
    assert band is not None
    assert band.low > 0.9 * 100e9 / 8
    assert band.sources
