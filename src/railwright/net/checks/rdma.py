"""The RDMA device of the interface: where there is a VF there is one, the pod sees it and may open it."""

from __future__ import annotations

from railwright.net.model import Attached, Check, Line, Port, Unseen, View
from railwright.results.model import Evidence

_NAME = "rdma"
_ACTIVE = "ACTIVE"


def _look(view: View) -> Line:
    port = view.port
    if port is None:
        return view.no_port(_NAME)
    mode = {True: "shared by all namespaces", False: "each in one namespace", None: "not known"}[view.rdma_shared]
    devices = ", ".join(f"{name} {state}" for name, state in port.rdma.items())
    evidence = [
        Evidence(claim="RDMA devices", value=devices or "none", seen=f"/sys/class/net/{port.name}/device/infiniband"),
        Evidence(claim="RDMA namespaces", value=mode, seen="/sys/module/ib_core/parameters/netns_mode"),
    ]
    wanted = isinstance(view.attached, Attached) and view.attached.device_id
    if not port.pci and isinstance(view.attached, Unseen):
        why = f"none: {port.name} is {port.kind or 'virtual'}; whether a VF was to be attached is not known here"
        return view.not_looked(_NAME, Unseen(why, view.attached.remedy), evidence)
    if not port.pci and not wanted:
        fine = f"none: {port.name} is {port.kind or 'virtual'} and has no PCI function, so that transfers go by TCP"
        return view.line(_NAME, ("", ""), fine, evidence)
    trouble = _trouble(view, port)
    if not trouble[0] and isinstance(view.verbs_files, Unseen):
        return view.not_looked(_NAME, Unseen(f"{devices}; {view.verbs_files.why}", view.verbs_files.remedy), evidence)
    return view.line(_NAME, trouble, devices, evidence)


def _trouble(view: View, port: Port) -> tuple[str, str]:
    if not port.rdma:
        says = f"{port.name} ({port.pci or 'no PCI function'}) has no RDMA device in this namespace"
        if view.rdma_shared is False:
            return says, "each device is in one namespace here: add the plugin `rdma` to the network's chain"
        return says, "on the node: rdma link; is the RDMA driver loaded (mlx5_ib)?"
    for name, state in port.rdma.items():
        if state and state != _ACTIVE:
            return f"{name} of {port.name} is {state}", f"rdma link show {name}; it follows the interface's carrier"
    if view.verbs_files == ():
        says = "the pod has no /dev/infiniband/uverbs*, so that no program in it can open the device"
        return says, "ask for the resource of the device plugin in the pod's manifest"
    return "", ""


CHECK = Check("rdma", "a VF has an RDMA device that the pod can open", _look, after=("interface",))
