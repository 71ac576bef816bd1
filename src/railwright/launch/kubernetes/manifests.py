"""The manifests of a job: an MPIJob, or an Indexed Job with its headless service and its keys.

https://github.com/kubeflow/mpi-operator/blob/v0.6.0/pkg/apis/kubeflow/v2beta1/types.go
https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from railwright.launch.kubernetes.plan import KEY_FOLDER, NODE_VARIABLE, PORT, VARIABLE, WORK_FOLDER, PodPlan
from railwright.launch.kubernetes.pods import ROLE_LABEL
from railwright.launch.kubernetes.wanted import Kind, KubernetesRequest

LABEL = "railwright.dev/job"
API = {"mpijob": "kubeflow.org/v2beta1", "job": "batch/v1"}
_PYTHON = "/opt/railwright/bin/python"
_USER = 1000
_KEPT_S = 300
"""The time for which an ended job and its log are kept if they are not removed."""
_GRACE_S = 5
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
# With a NIC's resources the pods run as root, because another user's capabilities do not survive exec.
PRIVILEGES = {
    "IPC_LOCK": "to pin memory that a NIC reads and writes",
    "SETUID": "for root's sshd to drop its privileges",
    "SETGID": "for root's sshd to drop its groups",
    "SYS_CHROOT": "for root's sshd to handle unauthenticated peers in an empty folder",
}

Object = dict[str, Any]


@dataclass(frozen=True)
class NamedJob:
    """A requested job with its name."""

    wanted: KubernetesRequest
    name: str
    kind: Kind
    words: tuple[str, ...]
    limit_s: float

    @property
    def pods(self) -> tuple[str, ...]:
        """The names by which the job's pods reach each other in the namespace."""
        others = range(1, self.wanted.nodes)
        if self.kind == "mpijob":
            return (f"{self.name}-launcher.{self.name}", *(f"{self.name}-worker-{i - 1}.{self.name}" for i in others))
        return tuple(f"{self.name}-{index}.{self.name}" for index in range(self.wanted.nodes))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the job."""
        return {"app.kubernetes.io/managed-by": "railwright", LABEL: self.name}

    def job(self) -> Object:
        """Build the manifest of the MPIJob or Job, which owns all other objects."""
        spec = self._mpijob_spec() if self.kind == "mpijob" else self._job_spec()
        kind = "MPIJob" if self.kind == "mpijob" else "Job"
        return {"apiVersion": API[self.kind], "kind": kind, "metadata": self._metadata(), "spec": spec}

    def owned_objects(self, uid: str, private: bytes, public: bytes) -> Object:
        """Build the objects that an Indexed Job owns: the service for its pods' names, and the secret with its keys."""
        owner = {"apiVersion": API["job"], "kind": "Job", "name": self.name, "uid": uid}
        metadata = self._metadata() | {"ownerReferences": [owner]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {
            "clusterIP": "None", "selector": {LABEL: self.name}, "publishNotReadyAddresses": True,
            "ports": [{"name": "ssh", "port": PORT}]}}  # fmt: skip
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth", "metadata": metadata,
                  "data": {"ssh-privatekey": _encode(private), "ssh-publickey": _encode(public)}}  # fmt: skip
        return {"apiVersion": "v1", "kind": "List", "items": [service, secret]}

    def _metadata(self) -> Object:
        found: Object = {"name": self.name, "labels": self.labels}
        return found | ({"namespace": self.wanted.namespace} if self.wanted.namespace else {})

    def _job_spec(self) -> Object:
        count = self.wanted.nodes
        return {
            "completionMode": "Indexed", "completions": count, "parallelism": count,
            # If a pod dies, the others continue, and nothing is measured twice.
            "backoffLimitPerIndex": 0, "maxFailedIndexes": count,
            # The job is done when the first pod is done, because sshd in the other pods never exits.
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "activeDeadlineSeconds": round(self.limit_s), "ttlSecondsAfterFinished": _KEPT_S,
            "template": self._pod_template("indexed"),
        }  # fmt: skip

    def _mpijob_spec(self) -> Object:
        return {
            "mpiImplementation": "OpenMPI", "slotsPerWorker": self.wanted.ranks_per_node,
            "runLauncherAsWorker": True, "sshAuthMountPath": KEY_FOLDER,
            "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 0, "activeDeadlineSeconds": round(self.limit_s),
                          "ttlSecondsAfterFinished": _KEPT_S},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": self._pod_template("lead")},
                "Worker": {"replicas": self.wanted.nodes - 1, "restartPolicy": "Never",
                           "template": self._pod_template("host")},
            },
        }  # fmt: skip

    def _pod_metadata(self, role: str) -> Object:
        found: Object = {"labels": self.labels | ({ROLE_LABEL: role} if role != "indexed" else {})}
        networks = self.wanted.networks
        return found | ({"annotations": {_NETWORKS: ",".join(networks)}} if networks else {})

    def _pod_template(self, role: str) -> Object:
        wanted = self.wanted
        spec: Object = {
            "securityContext": self._security_context(),
            "automountServiceAccountToken": False, "enableServiceLinks": False,
            "terminationGracePeriodSeconds": _GRACE_S,
            "containers": [self._container(role)],
            "volumes": self._volumes(),
            # Two pods on one node would measure only that node.
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {LABEL: self.name}}}]}},
            # Nodes with devices are often tainted for pods that request these.
            "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in wanted.resources],
        }  # fmt: skip
        if self.kind == "job":
            spec |= {"restartPolicy": "Never", "subdomain": self.name}
        if wanted.selected:
            spec["nodeSelector"] = wanted.selected
        return {"spec": spec, "metadata": self._pod_metadata(role)}

    def _security_context(self) -> Object:
        profile = {"seccompProfile": {"type": "RuntimeDefault"}}
        if self.wanted.rdma:
            return profile | {"runAsUser": 0, "runAsGroup": 0}
        return profile | {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER}

    def _container(self, role: str) -> Object:
        wanted = self.wanted
        plan = PodPlan(self.pods, self.words, self.limit_s)
        settings = [{"name": name, "value": value} for name, value in sorted(wanted.environment.items())]
        node = {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        mounts = [("work", WORK_FOLDER), ("tmp", "/tmp"), ("shared-memory", "/dev/shm")]  # noqa: S108 - paths in the pod
        mounts += [("keys", KEY_FOLDER)] * (self.kind == "job")  # the operator mounts its own
        capabilities: Object = {"drop": ["ALL"]} | ({"add": list(PRIVILEGES)} if wanted.rdma else {})
        return {
            "name": "railwright", "image": wanted.image, "imagePullPolicy": "IfNotPresent",
            "command": [_PYTHON, "-P", "-m", "railwright.launch.kubernetes.pod", role],
            "env": [node, {"name": VARIABLE, "value": plan.text()}, *settings],
            "resources": {"limits": wanted.resources},
            "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                "capabilities": capabilities},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
        }  # fmt: skip

    def _volumes(self) -> list[Object]:
        found: list[Object] = [
            {"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "tmp", "emptyDir": {}},
            # The default of 64 MiB is too small for the segments of MPI and NCCL.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ]
        if self.kind == "job":  # the layout of mpi-operator
            items = [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"),
                     ("ssh-publickey", "authorized_keys")]  # fmt: skip
            keys = {"secretName": self.name, "items": [{"key": key, "path": path} for key, path in items]}
            found.append({"name": "keys", "secret": keys})
        return found


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
