"""Access to the cluster through `kubectl`, which brings the user's context, permissions and login."""

from __future__ import annotations

import json
import shutil
from typing import TypeVar

from railwright.errors import CannotJudge, UsageError
from railwright.launch.kubernetes.wanted import Kind
from railwright.process import query
from railwright.reading import InvalidContent, decode_json

_TIMEOUT_S = 60.0
_MAX_MESSAGE_CHARACTERS = 300
_MOST_BYTES = 128 << 20
"""The longest answer. A node of Kubernetes takes some 20 KB in a list."""
_MPIJOB_API_PATH = "/apis/kubeflow.org/v2beta1"

Answer = TypeVar("Answer")


def kubectl_command(*words: str, namespace: str = "") -> list[str]:
    """Build a kubectl command line. Raises UsageError if kubectl is not installed."""
    if shutil.which("kubectl") is None:
        raise UsageError("kubectl is not installed", hint="install kubectl: --kubernetes needs it")
    return ["kubectl", *([f"--namespace={namespace}"] if namespace else []), *words]


def ask_kubectl(*words: str, namespace: str = "", given: bytes = b"") -> str:
    """Run kubectl and return its output.

    Raises UsageError if kubectl is not installed, and CannotJudge if it fails or does not answer in time.
    """
    argv = kubectl_command(*words, namespace=namespace)
    finished = query(argv, timeout_s=_TIMEOUT_S, given=given, most_bytes=_MOST_BYTES)
    if finished.timed_out:
        reason = f"kubectl {words[0]} gave no answer within {_TIMEOUT_S:.0f} s"
        raise CannotJudge(reason, hint="try: kubectl version")
    if finished.returncode:
        message = next((line.strip() for line in reversed(finished.output) if line.strip()), finished.describe())
        raise CannotJudge(
            f"kubectl {words[0]}: {message[:_MAX_MESSAGE_CHARACTERS]}", hint="try: kubectl auth can-i --list"
        )
    return "\n".join(finished.output)


def ask_objects(kind: type[Answer], *words: str, namespace: str) -> Answer:
    """Run kubectl and decode the objects that it prints. Raises as `ask_kubectl`, and CannotJudge for other output."""
    text = ask_kubectl(*words, "--output=json", namespace=namespace).replace("\n", "")
    try:
        return decode_json(text, kind)
    except InvalidContent as error:
        raise CannotJudge(f"kubectl {words[0]} {words[1]}: cannot decode the answer: {error}") from error


def current_namespace() -> str:
    """Return the namespace of kubectl's context, which is `default` if the context does not set one."""
    return ask_kubectl("config", "view", "--minify", "--output=jsonpath={..namespace}").strip() or "default"


def serves_mpijobs() -> bool:
    """Report whether the API server serves MPIJobs in version v2beta1, that of mpi-operator 0.6."""
    try:
        answer = ask_kubectl("get", "--raw", _MPIJOB_API_PATH)
    except CannotJudge as error:
        if "NotFound" in error.message or "could not find" in error.message:
            return False
        raise
    try:
        served = json.loads(answer)
        return any(resource.get("name") == "mpijobs" for resource in served.get("resources", ()))
    except (ValueError, RecursionError, AttributeError) as error:
        raise CannotJudge(f"kubectl get --raw {_MPIJOB_API_PATH}: cannot decode the answer: {error}") from error


def choose_kind(requested: str) -> Kind:
    """Choose the job kind. `auto` prefers an MPIJob.

    Raises CannotJudge if `mpijob` is requested, but the cluster does not serve MPIJobs.
    """
    if requested == "job":
        return "job"
    if serves_mpijobs():
        return "mpijob"
    if requested == "mpijob":
        raise CannotJudge("this cluster does not serve MPIJobs (kubeflow.org/v2beta1)",
                          hint="leave out --job-kind to use an Indexed Job, which needs no operator")  # fmt: skip
    return "job"
