"""The cluster, by `kubectl`: people have it, with their context, their rights and their way to log in."""

from __future__ import annotations

import json
import shutil
from typing import TypeVar

import msgspec

from railwright.errors import CannotJudge, UsageError
from railwright.launch.kubernetes.wanted import Kind
from railwright.process import ask

_WITHIN_S = 60.0
_MOST_SAID = 300
_MOST_LINES = 10_000_000
_SERVED = "/apis/kubeflow.org/v2beta1"

Answer = TypeVar("Answer")


def kubectl_command(*words: str, namespace: str = "") -> list[str]:
    """The command line. Raises UsageError without kubectl."""
    if shutil.which("kubectl") is None:
        raise UsageError("kubectl is not installed", hint="--kubernetes talks to the cluster through it")
    return ["kubectl", *([f"--namespace={namespace}"] if namespace else []), *words]


def ask_kubectl(*words: str, namespace: str = "", given: bytes = b"") -> str:
    """Its answer. Raises CannotJudge with its words."""
    argv = kubectl_command(*words, namespace=namespace)
    finished = ask(argv, timeout_s=_WITHIN_S, given=given, most_lines=_MOST_LINES)
    if finished.timed_out:
        reason = f"kubectl {words[0]} gave no answer within {_WITHIN_S:.0f} s"
        raise CannotJudge(reason, hint="try: kubectl version")
    if finished.returncode:
        told = next((line.strip() for line in reversed(finished.output) if line.strip()), finished.describe())
        raise CannotJudge(f"kubectl {words[0]}: {told[:_MOST_SAID]}", hint="try: kubectl auth can-i --list")
    return "\n".join(finished.output)


def ask_objects(kind: type[Answer], *words: str, namespace: str) -> Answer:
    """The objects of an answer. Raises CannotJudge."""
    text = ask_kubectl(*words, "--output=json", namespace=namespace).replace("\n", "")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CannotJudge(f"kubectl {words[0]} {words[1]} answers what cannot be read: {error}") from error


def current_namespace() -> str:
    """The namespace of kubectl's context."""
    return ask_kubectl("config", "view", "--minify", "--output=jsonpath={..namespace}").strip() or "default"


def serves_mpijobs() -> bool:
    """Whether the API server knows MPIJobs of the version that mpi-operator 0.6 has."""
    try:
        answer = ask_kubectl("get", "--raw", _SERVED)
    except CannotJudge as error:
        if "NotFound" in error.message or "could not find" in error.message:
            return False
        raise
    try:
        served = json.loads(answer)
        return any(one.get("name") == "mpijobs" for one in served.get("resources", ()))
    except (ValueError, AttributeError) as error:
        raise CannotJudge(f"kubectl get --raw {_SERVED} answers what cannot be read: {error}") from error


def choose_kind(asked: str) -> Kind:
    """`auto` as what this cluster has. Raises CannotJudge for an MPIJob where there are none."""
    if asked == "job":
        return "job"
    if serves_mpijobs():
        return "mpijob"
    if asked == "mpijob":
        raise CannotJudge("this cluster has no MPIJobs of kubeflow.org/v2beta1",
                          hint="leave out --job-kind: an Indexed Job needs no operator")  # fmt: skip
    return "job"
