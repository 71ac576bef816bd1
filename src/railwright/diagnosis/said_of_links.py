"""What a table says of the link that it ran over, where the machine given has another: then it is another machine's."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.limits.network import LINUX_ROCE_BYTES, largest_rdma_mtu
from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.cluster import Cluster
from railwright.topology.devices import EthernetLink, InfinibandLink

_KINDS: dict[str, type] = {"ethernet": EthernetLink, "ib": InfinibandLink, "infiniband": InfinibandLink}
_NAMES: dict[type, str] = {EthernetLink: "Ethernet", InfinibandLink: "InfiniBand"}


def contradictions_of_links(file: ForeignFile, given: Cluster) -> tuple[str, ...]:
    """One sentence for each contradiction; none where either side does not say."""
    if file.subject.transport != "verbs" or not file.results:
        return ()
    return tuple(_contradictions(file, given))


def _contradictions(file: ForeignFile, given: Cluster) -> Iterator[str]:
    settings = file.results[0].settings
    links = [link.protocol for link in given.host.links if isinstance(link.protocol, EthernetLink | InfinibandLink)]
    said = _KINDS.get(str(settings.get("link_type", "")).lower())
    of_kind = [link for link in links if said is None or isinstance(link, said)]
    if links and said is not None and not of_kind:
        other = _NAMES[type(links[0])]
        yield f"the table ran over {_NAMES[said]}, the NICs of the machine given are {other}: is it the right one?"
    mtu = settings.get("mtu_bytes")
    allowed = {_rdma_mtu(link) for link in of_kind}
    least = min((one for one in allowed if one is not None), default=None)
    if isinstance(mtu, int) and least is not None and None not in allowed and mtu < least:
        yield f"the table ran with an MTU of {mtu} bytes, the machine given has {least}: its headers take more"


def _rdma_mtu(link: EthernetLink | InfinibandLink) -> int | None:
    """The largest MTU of RDMA that the link's own allows."""
    if link.mtu_bytes is None:
        return None
    headers = LINUX_ROCE_BYTES.value if isinstance(link, EthernetLink) else 0
    return largest_rdma_mtu(link.mtu_bytes - headers) or None
