"""A job of pods, from creation to removal. The log is followed, the pods are watched, and all objects are removed."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.launch.frames import FrameReader
from railwright.launch.kubernetes.kubectl import ask_kubectl, ask_objects, kubectl_command
from railwright.launch.kubernetes.manifests import LABEL, NamedJob
from railwright.launch.kubernetes.pods import Events, Pod, Pods, sort_pods
from railwright.launch.scratch import scratch_folder
from railwright.process import Child, hold_signals, run
from railwright.system_packages import install_command
from railwright.terminal import escape

_TICK_S, _POLL_EVERY_S = 0.1, (1.5, 5.0)
"""The polling intervals for pods: until all of them run, and afterwards."""
_SILENT_S = 120.0
"""The time for which the API server may be unreachable."""
_GONE_WITHIN_S = 60.0
_ASK_EVERY_S = 0.5
_MAX_MESSAGE_CHARACTERS = 300


def new_name() -> str:
    """Return a unique job name."""
    return f"railwright-{secrets.token_hex(4)}"


@dataclass
class KubernetesJob:
    """A context manager that creates the job and always removes it."""

    named: NamedJob
    namespace: str
    tell: Callable[[str], None]
    reader: FrameReader = field(default_factory=FrameReader)
    troubles: list[str] = field(default_factory=list)
    """Pods that died early, each with the reason from Kubernetes."""
    _reported: dict[str, str] = field(default_factory=dict, init=False)
    _begun: float = field(default=0.0, init=False)
    _heard: float = field(default=0.0, init=False)

    @property
    def _kind(self) -> str:
        return "mpijobs.kubeflow.org" if self.named.kind == "mpijob" else "jobs.batch"

    @property
    def _selector(self) -> str:
        return f"--selector={LABEL}={self.named.name}"

    def __enter__(self) -> KubernetesJob:
        try:
            self._create()
        except BaseException:
            self._remove()
            raise
        self._begun = self._heard = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _create(self) -> None:
        made = json.dumps(self.named.job()).encode()
        if self.named.kind == "mpijob":
            ask_kubectl("create", "--filename=-", namespace=self.namespace, given=made)
            return
        words = ("create", "--filename=-", "--output=jsonpath={.metadata.uid}")
        uid = ask_kubectl(*words, namespace=self.namespace, given=made).strip()
        owned = json.dumps(self.named.owned_objects(uid, *_key_pair())).encode()
        ask_kubectl("create", "--filename=-", namespace=self.namespace, given=owned)

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield the file name and content of each record until the job ends.

        Raises CannotJudge if the job cannot start, or if the API server does not answer for too long.
        """
        polled = 0.0
        log: Child | None = None
        pods: list[Pod] = []
        with contextlib.ExitStack() as stack:
            while True:
                if time.monotonic() - polled > _POLL_EVERY_S[len(pods) > 0 and all(pod.has_run for pod in pods)]:
                    pods, polled = self._list_pods(pods), time.monotonic()
                if log is None and any(pod.is_lead and pod.has_run for pod in pods):
                    log = stack.enter_context(self._follow_log(next(pod for pod in pods if pod.is_lead)))
                ended = log is not None and log.poll() is not None
                if log is not None:
                    if ended:
                        log.wait(1.0)  # until its remaining output has been read
                    yield from self._read(log)
                if self.reader.status is not None:
                    break
                self._watch(pods)
                if log is not None and ended:
                    for line in log.complaints:
                        self._report("kubectl logs", f"kubectl logs: {escape(line)[:_MAX_MESSAGE_CHARACTERS]}")
                    log = None
                    time.sleep(_ASK_EVERY_S)
                    pods = self._list_pods(pods)
                    if not self._lead_runs(pods):
                        self._watch(pods)
                        yield from self.reader.records_after_gaps()
                        break
                time.sleep(_TICK_S)

    def _follow_log(self, pod: Pod) -> Child:
        # Start at the beginning each time: repeated frames are recognised by their numbers.
        argv = kubectl_command("logs", "--follow", "--pod-running-timeout=10s", pod.name, namespace=self.namespace)
        return Child(argv, answer_alone=True, output=deque())

    def _read(self, log: Child) -> Iterator[tuple[str, bytes]]:
        while log.output:
            line = log.output.popleft()
            if not self.reader.read(line) and line.strip():
                self._report(f"log {line}", f"  {escape(line)[:400]}")
        yield from self.reader.records()

    def _list_pods(self, before: list[Pod]) -> list[Pod]:
        """List the pods. If the API server does not answer, return the last list until `_SILENT_S` is over."""
        try:
            found = ask_objects(Pods, "get", "pods", self._selector, namespace=self.namespace).items
        except CannotJudge as error:
            if time.monotonic() - self._heard > _SILENT_S:
                raise
            self._report("kubectl", error.message)
            return before
        self._heard = time.monotonic()
        return sort_pods(found)

    @staticmethod
    def _lead_runs(pods: list[Pod]) -> bool:
        return any(pod.is_lead and pod.status.phase == "Running" and not pod.explain_death() for pod in pods)

    def _watch(self, pods: list[Pod]) -> None:
        """Report changes. Raises CannotJudge for pods that can never run, or that do not exist or run in time."""
        late = time.monotonic() - self._begun > self.named.wanted.start_within_s
        waiting = {}
        for pod in pods:
            why, hopeless = pod.explain_wait()
            dead = pod.explain_death()
            self._report(pod.name, f"{pod.where}: {dead or why or pod.status.phase.lower()}")
            if dead and f"{pod.where}: {dead}" not in self.troubles:
                self.troubles.append(f"{pod.where}: {dead}")
            if why:
                waiting[pod.where] = why
            if hopeless:
                raise CannotJudge(f"{pod.where} cannot start: {why}", hint="check --image; the job is removed")
        if not late or (len(pods) == self.named.wanted.nodes and not waiting):
            return
        reasons = "; ".join(f"{where}: {why}" for where, why in waiting.items())
        complaint = self._find_warning()
        within = f"after {self.named.wanted.start_within_s:g} s"
        if waiting:
            raise CannotJudge(f"{len(waiting)} of {self.named.wanted.nodes} pods do not run {within}: {reasons}"
                              + f"; {complaint}" * (complaint not in reasons and "Unschedulable" not in reasons),
                              hint="raise --start-within; the job is removed")  # fmt: skip
        if len(pods) < self.named.wanted.nodes and not self.troubles:
            raise CannotJudge(f"only {len(pods)} of {self.named.wanted.nodes} pods exist {within}"
                              + f": {complaint}" * bool(complaint),
                              hint="check that the job controller runs")  # fmt: skip

    def _report(self, about: str, words: str) -> None:
        if self._reported.get(about) != words:
            self._reported[about] = words
            self.tell(words)

    def _find_warning(self) -> str:
        with contextlib.suppress(RailwrightError):
            words = ("get", "events", "--field-selector=type=Warning", "--sort-by=.lastTimestamp")
            return ask_objects(Events, *words, namespace=self.namespace).find_warning(self.named.name)
        return ""

    def _remove(self) -> None:
        """Delete the job and wait until its pods are gone; its other objects follow. Signals wait as long."""
        until = time.monotonic() + _GONE_WITHIN_S
        left, requested = "", False
        with hold_signals():
            while time.monotonic() < until:
                try:
                    if not requested:
                        options = ("--cascade=foreground", "--ignore-not-found", "--wait=false")
                        ask_kubectl("delete", self._kind, self.named.name, *options, namespace=self.namespace)
                        requested = True
                    words = ("get", f"pods,{self._kind}", self._selector, "--output=name")
                    left = ask_kubectl(*words, namespace=self.namespace).strip()
                    if not left:
                        return
                except CannotJudge as error:
                    left = error.message
                time.sleep(_ASK_EVERY_S)
            remaining = ", ".join(left.split("\n"))[:200]
            limit = f"the job ends at its time limit of {self.named.limit_s / 60:.0f} min"
            delete = f"kubectl --namespace {self.namespace} delete {self._kind} {self.named.name}"
            self.tell(f"not removed yet: {remaining}; {limit}; to remove it now, run: {delete}")


def _key_pair() -> tuple[bytes, bytes]:
    """Create a private and a public key for one job. Raises UsageError if ssh-keygen fails."""
    with scratch_folder() as scratch:
        path = scratch / "key"
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "railwright", "-f", str(path)]
        finished = run(argv, timeout_s=30)
        if finished.returncode:
            raise UsageError(f"ssh-keygen: {' '.join(finished.output)[:200] or finished.describe()}",
                             hint=install_command("openssh-client"))  # fmt: skip
        return path.read_bytes(), Path(f"{path}.pub").read_bytes()
