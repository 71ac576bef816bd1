"""The bill of network parts, counted by hand; the comparison of designs."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.expected.designs import Design, Question, compare_designs, evaluate_design, find_front, list_cautions
from railwright.limits.bill import Prices, check_prices, compute_cost, count_parts, find_kinds
from railwright.limits.switches import count_described, count_non_blocking
from railwright.topology.cluster import Cluster, Fabric, Tier, build_cluster
from railwright.topology.devices import EthernetLink
from railwright.topology.sources.load import load

RADIX = 64
PRICES = Prices(title="a test", currency="EUR", gpu_host=1000.0, nic=10.0, cable=1.0, optic=2.0, leaf_port=3.0,
                spine_port=5.0)  # fmt: skip
KINDS = find_kinds(load("hgx-h100"))
ASKED = Question(collectives=("all_reduce", "all_to_all"))


def cluster(host: str, hosts: int = 16, fabric: Fabric | None = None) -> Cluster:
    return build_cluster(load(host), hosts, fabric)


def counts(hosts: int, rails: int, radix: int = RADIX) -> list[tuple[int, int, int]]:
    return [(tier.switches, tier.ports_down, tier.ports_up) for tier in count_non_blocking(hosts, rails, radix)]


def test_sixteen_hosts_of_eight_nics() -> None:
    """128 ports: leaves of two whole rails (32 ports), so 4; 128 uplinks fill 2 spines; 256 cables, 512 optics."""
    parts = count_parts(cluster("hgx-h100"), RADIX)
    assert (parts.nics, parts.nic_ports, parts.leaf_switches, parts.leaf_ports) == (128, 128, 4, 128)
    assert (parts.leaf_uplink_ports, parts.spine_switches, parts.spine_ports) == (128, 2, 128)
    assert (parts.cables, parts.optics, parts.switch_ports) == (256, 512, 384)


def test_sixteen_hosts_of_two_nics_need_one_switch() -> None:
    parts = count_parts(cluster("hgx-h100 nics=2"), RADIX)
    assert (parts.nics, parts.leaf_switches, parts.leaf_ports, parts.spine_switches) == (32, 1, 32, 0)
    assert (parts.cables, parts.optics) == (32, 64)


def test_exactly_one_switch_full_and_one_port_more() -> None:
    assert counts(8, 8) == [(1, 64, 0)]
    assert counts(9, 8)[0][0] == 3, "three rails of 9 hosts fit below 32 uplinks: 3 + 3 + 2"


@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "cores", "cables"),
    [
        (64, 16, 8, 0, (512, 512, 0)),
        (128, 32, 16, 0, (1024, 1024, 0)),
        (256, 64, 32, 0, (2048, 2048, 0)),
        (512, 128, 128, 64, (4096, 4096, 4096)),
        (1024, 256, 256, 128, (8192, 8192, 8192)),
        (2048, 512, 512, 256, (16384, 16384, 16384)),
    ],
)
def test_the_counts_are_those_of_nvidias_own_table(
    nodes: int, leaves: int, spines: int, cores: int, cables: tuple[int, int, int]
) -> None:
    """DGX SuperPOD Reference Architecture, B200, table of larger component counts."""
    tiers = count_non_blocking(nodes, 8, RADIX)
    assert [tier.switches for tier in tiers] == [number for number in (leaves, spines, cores) if number]
    ups = [tier.ports_up for tier in tiers[:-1]]
    assert (tiers[0].ports_down, *ups, *([0] if not cores else [])) == cables


def test_three_scalable_units_take_sixteen_spines_since_twelve_cannot_be_joined_evenly() -> None:
    """96 hosts: 24 leaves of 32 ports. 12 spines: 3 links from each leaf are 72 on a spine; 16: 2 links are 48."""
    assert counts(96, 8) == [(24, 768, 768), (16, 768, 0)]


def test_four_thousand_hosts_of_eight_nics() -> None:
    """32768 ports: 1024 leaves in 32 pods of 32 leaves and 32 spines; 32 planes of 16 cores."""
    parts = count_parts(cluster("hgx-h100", 4096), RADIX)
    assert [tier.switches for tier in parts.tiers] == [1024, 1024, 512]
    assert (parts.leaf_ports, parts.leaf_uplink_ports, parts.spine_switches) == (32768, 32768, 1536)
    assert parts.spine_ports == 32768 + 32768 + 32768
    assert (parts.nic_cables, parts.switch_cables, parts.optics) == (32768, 65536, 196608)


@pytest.mark.parametrize("radix", [4, 5, 8, 32, 64])
@pytest.mark.parametrize("rails", [1, 2, 3, 8])
def test_every_fabric_is_whole_and_non_blocking(rails: int, radix: int) -> None:
    for hosts in [*range(2, 40), 100, 250, 1000]:
        if hosts * rails > radix * (radix // 2) ** 2 // 2:
            continue
        tiers = count_non_blocking(hosts, rails, radix)
        assert tiers[0].ports_down == hosts * rails
        assert tiers[-1].ports_up == 0
        for tier in tiers:
            assert tier.ports_down + tier.ports_up <= tier.switches * radix
        for below, above in pairwise(tiers):
            assert below.ports_up >= below.ports_down, "non-blocking"
            assert below.ports_up == above.ports_down, "a cable has two ends"


def test_a_fabric_beyond_three_tiers_is_refused() -> None:
    with pytest.raises(UsageError, match="more than three tiers of switches of 4 ports") as error:
        count_non_blocking(100, 8, 4)
    assert "--radix" in error.value.hint
    with pytest.raises(UsageError, match="at least 4 ports"):
        count_non_blocking(100, 8, 3)


def test_the_most_hosts_of_the_largest_switches_are_counted_at_once() -> None:
    leaf, spine, core = count_non_blocking(1_000_000, 32, 1024)
    assert leaf.switches == 1_000_000 * 32 // 512
    assert spine.ports_down == leaf.ports_up == 32_000_000
    assert core.ports_down == spine.ports_up


def test_a_described_fabric_has_the_files_switches_and_oversubscription() -> None:
    """64 hosts of 8 in groups of 16: 4 groups of 8 leaves; 16 ports down and 8 up on each leaf; 4 spines."""
    fabric = Fabric(
        rail_optimised=True,
        tiers=(Tier(hosts=16, oversubscription=2.0), Tier(name="spine", hosts=64, switches=4)),
    )
    leaf, spine = count_described(fabric, 64, 8, RADIX)
    assert (leaf.switches, leaf.ports_down, leaf.ports_up) == (32, 512, 256)
    assert (spine.switches, spine.ports_down, spine.ports_up) == (4, 256, 0)


def test_a_last_group_that_is_not_full_rounds_up_rail_by_rail() -> None:
    """10 hosts of 2 rails, groups of 4 + 4 + 2, 3:1: each rail of 4 has ceil(4/3) = 2 up, each of 2 has 1: 4+4+2."""
    fabric = Fabric(rail_optimised=True, tiers=(Tier(hosts=4, oversubscription=3.0), Tier(name="spine", hosts=12)))
    leaf, spine = count_described(fabric, 10, 2, RADIX)
    assert (leaf.switches, leaf.ports_down, leaf.ports_up) == (6, 20, 10)
    assert (spine.switches, spine.ports_down) == (1, 10)


@pytest.mark.parametrize(
    ("hosts", "radix", "leaves", "spines"),
    [
        (128, 64, 32, 16),  # 32 down and 32 up on each leaf; 1024 ports of 64
        (96, 64, 24, 16),  # 12 switches have the ports, and 16 divide the 32 uplinks of a leaf
        (128, 32, 64, 32),  # a rail of 32 hosts needs two leaves of 32 ports
    ],
)
def test_a_tier_without_switches_has_as_many_as_its_ports_need(
    hosts: int, radix: int, leaves: int, spines: int
) -> None:
    fabric = Fabric(rail_optimised=True, tiers=(Tier(hosts=32), Tier(name="spine", hosts=128)))
    tiers = count_described(fabric, hosts, 8, radix)
    assert [tier.switches for tier in tiers] == [leaves, spines]
    assert all(tier.ports_down + tier.ports_up <= tier.switches * radix for tier in tiers)


def test_an_oversubscription_that_a_float_cannot_hold_is_not_rounded_up() -> None:
    """11 ports at 1.1 are 10; in binary 11 / 1.1 is a little above."""
    fabric = Fabric(tiers=(Tier(hosts=11, oversubscription=1.1), Tier(name="spine", hosts=11)))
    assert count_described(fabric, 11, 1, RADIX)[0].ports_up == 10


def test_two_ports_of_one_card_are_one_nic() -> None:
    parts = count_parts(cluster("oci-bm-gpu-h100-8", 2), RADIX)
    assert (parts.nics, parts.nic_ports) == (16, 32)


@pytest.mark.parametrize(("optics", "number"), [("all", 512), ("switches", 256), ("none", 0)])
def test_optics_are_two_for_each_optical_cable(optics: str, number: int) -> None:
    assert count_parts(cluster("hgx-h100"), RADIX, optics).optics == number  # type: ignore[arg-type]


def test_nics_of_several_rates_cannot_be_counted() -> None:
    host = load("hgx-h100")
    links = list(host.links)
    slow = EthernetLink(line_rate_bits_per_s=25e9, mtu_bytes=1500)
    port = next(number for number, link in enumerate(links) if link.a == "nic7" and link.b == "fabric0")
    links[port] = msgspec.structs.replace(links[port], protocol=slow)
    with pytest.raises(UsageError, match="25 Gb/s, 400 Gb/s"):
        count_parts(build_cluster(msgspec.structs.replace(host, links=tuple(links)), 2), RADIX)


def test_cost_is_number_times_price() -> None:
    """16 x 1000 + 128 x 10 + 256 x 1 + 512 x 2 + (128 + 128) x 3 + 128 x 5 = 19968."""
    cost = compute_cost(count_parts(cluster("hgx-h100"), RADIX), PRICES, KINDS)
    assert cost.total == 16000 + 1280 + 256 + 1024 + 768 + 640 == 19968
    assert cost.by_part["leaf_port"] == 768


def test_every_missing_price_of_a_needed_part_is_named() -> None:
    without = msgspec.structs.replace(PRICES, optic=None, spine_port=None)
    with pytest.raises(UsageError, match="no optic, spine_port"):
        compute_cost(count_parts(cluster("hgx-h100"), RADIX), without, KINDS)
    small = count_parts(cluster("hgx-h100 nics=2"), RADIX, "none")
    assert compute_cost(small, without, KINDS).total == 16000 + 320 + 32 + 96


def test_a_price_of_a_kind_is_found_by_shape_rate_and_protocol() -> None:
    tables = msgspec.structs.replace(
        PRICES,
        gpu_host={"DGX H100": 9.0, "p5.48xlarge": 2000.0, "H100": 1000.0},
        nic={"200G": 1.0, "400Gb/s Ethernet": 2.0, "400Gb/s InfiniBand": 10.0},
    )
    parts = count_parts(cluster("hgx-h100"), RADIX)
    assert compute_cost(parts, tables, KINDS) == compute_cost(parts, PRICES, KINDS)
    other = find_kinds(load("hgx-b300"))
    with pytest.raises(UsageError, match="no gpu_host of hgx-b300, nic of 800 Gb/s InfiniBand"):
        compute_cost(parts, tables, other)
    with pytest.raises(UsageError, match="fast"):
        check_prices(msgspec.structs.replace(PRICES, cable={"fast": 1.0}))


@pytest.mark.parametrize("price", [-1.0, math.nan, math.inf, 1e10])
def test_an_invalid_price_is_refused(price: float) -> None:
    with pytest.raises(UsageError, match="the price of nic"):
        check_prices(msgspec.structs.replace(PRICES, nic=price))


@pytest.fixture(scope="module")
def three() -> tuple[Design, ...]:
    return compare_designs([evaluate_design(f"nics={n}", cluster(f"hgx-h100 nics={n}"), ASKED) for n in (2, 4, 8)])


def test_two_nics_lose_three_quarters_and_save_96(three: tuple[Design, ...]) -> None:
    two, _, eight = three
    assert [reach.loss for reach in two.collectives] == [pytest.approx(0.75), pytest.approx(0.75)]
    assert two.saving is not None
    assert (two.saving.against, two.saving.nics, two.saving.leaf_ports) == ("nics=8", 96, 96)
    assert (two.saving.cables, two.saving.optics, two.saving.uplink_ports) == (224, 448, 128)
    assert two.saving.share == pytest.approx(1 - 32 / 384)
    assert [reach.loss for reach in eight.collectives] == [0.0, 0.0]


def test_all_to_all_is_the_closed_formula(three: tuple[Design, ...]) -> None:
    """b (n-1)/(n-g) with b = 2 x 50 GB/s x 0.9937 / 8 and n = 128, g = 8."""
    found = three[0].collectives[1].busbw_bytes_per_s.limit
    assert found == pytest.approx(2 * 50e9 * 4096 / 4122 / 8 * 127 / 120)


def test_a_gpu_without_a_near_nic_is_evaluated_too(three: tuple[Design, ...]) -> None:
    two, _, eight = three
    assert [row.path for row in two.paths] == ["gpu0@0>gpu0@1", "gpu0@0>memory0@1", "gpu1@0>gpu1@1"]
    assert two.far_gpu is not None
    assert (two.far_gpu.nearest_nic_kind, two.far_gpu.gpus) == ("PHB", 6)
    assert eight.far_gpu is None
    assert any("GPUDirect" in words for words in list_cautions(three, None))


def test_a_slower_design_that_is_not_cheaper_is_beaten(three: tuple[Design, ...]) -> None:
    assert [design.pareto for design in three] == [True, True, True]
    slow = msgspec.structs.replace(three[0], name="slow", parts=three[1].parts)
    marked = compare_designs([*three, slow])
    assert [design.pareto for design in marked] == [True, True, True, False]
    assert marked[3].beaten_by == ("nics=2", "nics=4")
    assert [design.name for design in find_front(marked)] == ["nics=2", "nics=4", "nics=8"]


def test_two_equal_designs_do_not_beat_each_other(three: tuple[Design, ...]) -> None:
    twin = msgspec.structs.replace(three[0], name="twin")
    assert all(design.pareto for design in compare_designs([three[0], twin]))


def test_prices_decide_the_dearest_and_the_front() -> None:
    """With expensive optics and free hosts, copper beats glass; the fabric's parts are the same."""
    question = msgspec.structs.replace(ASKED, prices=PRICES)
    glass = evaluate_design("glass", cluster("hgx-h100"), question)
    copper = evaluate_design("copper", cluster("hgx-h100"), msgspec.structs.replace(question, optics="none"))
    marked = compare_designs([glass, copper])
    assert marked[0].beaten_by == ("copper",)
    assert marked[1].saving is not None
    assert marked[1].saving.cost == 1024.0
    assert marked[1].saving.share == pytest.approx(1024 / 19968)


def test_one_design_is_not_compared() -> None:
    alone = evaluate_design("alone", cluster("hgx-h100"), ASKED)
    assert compare_designs([alone]) == (alone,)
    assert (alone.saving, alone.pareto, alone.collectives[0].loss) == (None, None, None)


def test_one_host_has_no_network() -> None:
    with pytest.raises(UsageError, match="at least 2 hosts"):
        evaluate_design("alone", cluster("hgx-h100", 1), ASKED)
