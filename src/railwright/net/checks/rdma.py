"""The interface's RDMA device: a VF has one, and the pod can see and open it."""

from __future__ import annotations

from railwright.errors import CannotJudge
from railwright.net.recorded import find_expected
from railwright.net.view import Bad, Check, Note, Port, Unseen, View

_ACTIVE = "ACTIVE"


def _judge(view: View, note: Note) -> str:
    port = view.existing_port()
    mode = {True: "shared by all namespaces", False: "each in one namespace", None: "not known"}[view.rdma_shared]
    devices = ", ".join(f"{name} {state}" for name, state in port.rdma.items())
    note("RDMA devices", devices or "none", f"/sys/class/net/{port.name}/device/infiniband")
    note("RDMA namespaces", mode, "/sys/module/ib_core/parameters/netns_mode")
    expected = find_expected(view)
    if not port.pci and expected is None and isinstance(view.attached, Unseen):
        why = f"none: {port.name} is {port.kind or 'virtual'}; it is not known here whether it should be a VF"
        raise CannotJudge(why, hint=view.attached.remedy)
    if not port.pci and not (expected and expected.device_id):
        return f"none: {port.name} is {port.kind or 'virtual'} and has no PCI function, so transfers use TCP"
    _judge_devices(view, port, note)
    if isinstance(view.verbs_files, Unseen):
        raise CannotJudge(f"{devices}; {view.verbs_files.why}", hint=view.verbs_files.remedy)
    return devices


def _judge_devices(view: View, port: Port, note: Note) -> None:
    if not port.rdma:
        says = f"{port.name} ({port.pci or 'no PCI function'}) has no RDMA device in this namespace"
        if view.rdma_shared is False:
            raise Bad(
                says, "RDMA devices are exclusive to a namespace here: add the plugin `rdma` to the network's chain"
            )
        raise Bad(says, "on the node: rdma link; is the RDMA driver loaded (mlx5_ib)?")
    for name, state in port.rdma.items():
        if state and state != _ACTIVE:
            raise Bad(f"{name} of {port.name} is {state}", f"rdma link show {name}; it follows the interface's carrier")
    for name, gids in port.gids.items():
        note(f"RoCE v2 GIDs of {name}", " ".join(gids) or "none", f"/sys/class/infiniband/{name}/ports/1")
        for address in (*port.sources(4), *port.sources(6)):
            if str(address) not in gids:
                raise Bad(
                    f"{name} has no RoCE v2 GID of {address}, so no transfer can use the address",
                    "the driver adds it with the address: remove and add the address again; rdma link; dmesg",
                )
    if view.verbs_files == ():
        says = "the pod has no /dev/infiniband/uverbs*, so no program in it can open the device"
        raise Bad(says, "request the device plugin's resource in the pod's manifest")


CHECK = Check("rdma", _judge, after=("interface",))
