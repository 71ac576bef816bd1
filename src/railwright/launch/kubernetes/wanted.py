"""The requested Kubernetes job, and its cost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from railwright.errors import UsageError
from railwright.units import format_count, format_duration

Kind = Literal["mpijob", "job"]
GPU = "nvidia.com/gpu"
_MIN_LIMIT_S, _PLAN_FACTOR = 600.0, 3.0
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}"
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(rf"({_KEY})=([1-9][0-9]{{0,3}})")
_SELECTOR = re.compile(rf"({_KEY})=({_LABEL})?")
_ATTACHMENT = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?:@[a-z0-9]{1,15})?"
)
# The syntax of registries, tags and digests. Every kubelet refuses anything else.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}")


@dataclass(frozen=True)
class KubernetesRequest:
    """The requested job. Raises UsageError for values that Kubernetes would refuse, with an example."""

    nodes: int
    image: str
    ranks_per_node: int = 1
    namespace: str = ""
    """The namespace. Empty means the namespace of kubectl's context."""
    gpus_per_node: int = 0
    rdma: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    node_selector: tuple[str, ...] = ()
    limit_s: float | None = None
    start_within_s: float = 300.0
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the measured libraries, which are passed to the pods."""

    def __post_init__(self) -> None:
        for option, pattern, values, example in (
            ("--namespace", _NAMESPACE, (self.namespace,) if self.namespace else (), "--namespace team-a"),
            ("--image", _IMAGE, (self.image,), "--image registry.example/railwright:1"),
            ("--rdma", _RESOURCE, self.rdma, "--rdma nvidia.com/mlnx_sriov_pf1_vf=1"),
            ("--network", _ATTACHMENT, self.networks, "--network rail1, or NAMESPACE/rail1"),
            ("--node-selector", _SELECTOR, self.node_selector, "--node-selector nvidia.com/gpu.product=H100"),
        ):
            for value in values:
                if not pattern.fullmatch(value):
                    raise UsageError(
                        f"{option} must be like {example.partition(' ')[2]}, got {value[:60]!r}",
                        hint=f"write {example}",
                    )

    @property
    def resources(self) -> dict[str, str]:
        """The resources that each pod requests."""
        found = {GPU: str(self.gpus_per_node)} if self.gpus_per_node else {}
        for text in self.rdma:
            key, _, number = text.partition("=")
            found[key] = number
        return found

    @property
    def selected(self) -> dict[str, str]:
        """The labels that a node must have."""
        return dict(text.split("=", 1) for text in self.node_selector)

    def choose_limit(self, plan_s: float) -> float:
        """Return the time limit in seconds, rounded up to whole minutes.

        It is the requested limit, or else three times the plan but at least 10 min, plus the time to start the pods.
        """
        wished = self.limit_s if self.limit_s is not None else max(_MIN_LIMIT_S, _PLAN_FACTOR * plan_s)
        return max(1, -(-(wished + self.start_within_s) // 60)) * 60.0


def describe_cost(wanted: KubernetesRequest, kind: Kind, namespace: str, limit_s: float, plan_s: float) -> str:
    """Describe the pods that the job runs, its time limit, and its GPU hours or pod hours."""
    name = "an MPIJob" if kind == "mpijob" else "an Indexed Job"
    words = f"Kubernetes: {name} of {format_count(wanted.nodes, 'pod')} on as many nodes, "
    words += f"in namespace {namespace}, for at most {format_duration(limit_s)}: "
    gpus = wanted.nodes * wanted.gpus_per_node
    if not gpus:
        return words + f"{wanted.nodes * limit_s / 3600:.2g} pod hours, no GPU hours"
    words += f"at most {gpus * limit_s / 3600:.2g} GPU hours ({wanted.nodes} x {wanted.gpus_per_node} GPUs)"
    return words + f", {gpus * plan_s / 3600:.2g} by the plan"
