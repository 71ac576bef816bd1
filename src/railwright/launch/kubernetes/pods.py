"""The pods of a job as the API server tells of them: why one does not run, and why one has died."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from railwright.process import describe_status

ROLE_LABEL = "railwright.dev/role"
INDEX = "batch.kubernetes.io/job-completion-index"
_HOPELESS = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError",
             "CreateContainerError", "RunContainerError")  # fmt: skip
"""Reasons for which a container waits until somebody changes something."""
_MOST_SAID = 300
_DISRUPTED = "DisruptionTarget"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Parts of the API's objects that are looked at; others are passed over."""


class Reason(_Struct, frozen=True):
    """Why something is as it is."""

    reason: str = ""
    message: str = ""

    @property
    def words(self) -> str:
        """Both in one."""
        return self.reason + f": {self.message}" * bool(self.message)


class Terminated(Reason, frozen=True):
    """How a container ended."""

    exit_code: int = 0


class State(_Struct, frozen=True):
    """Of a container; one of them is set."""

    waiting: Reason | None = None
    running: dict[str, str] | None = None
    terminated: Terminated | None = None


class Container(_Struct, frozen=True):
    """A container of a pod."""

    state: State = State()


class Condition(Reason, frozen=True):
    """What is said of a pod under a name."""

    type: str = ""
    status: str = ""


class Status(Reason, frozen=True):
    """The state of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[Container, ...] = ()


class Spec(_Struct, frozen=True):
    """Where a pod is."""

    node_name: str = ""


class Metadata(_Struct, frozen=True):
    """What a pod is called."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str = ""


class Pod(_Struct, frozen=True):
    """A pod of a job."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def is_lead(self) -> bool:
        """Whether it is the one that measures, and whose log has the records."""
        role = self.metadata.labels.get(ROLE_LABEL, "")
        return role == "lead" or (role != "host" and self.metadata.annotations.get(INDEX) == "0")

    @property
    def has_run(self) -> bool:
        """Whether its container has been started, so that it has a log."""
        states = [one.state for one in self.status.container_statuses]
        return bool(states) and all(state.running is not None or state.terminated is not None for state in states)

    def _condition(self, name: str, status: str) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == name and one.status == status), None)

    def explain_wait(self) -> tuple[str, bool]:
        """Why it does not run yet, in Kubernetes' own words, and whether it never will; empty where it has run."""
        if self.has_run or self.status.phase in ("Running", "Succeeded", "Failed"):
            return "", False
        if unscheduled := self._condition("PodScheduled", "False"):
            return unscheduled.words[:_MOST_SAID], False
        waiting = next((one.state.waiting for one in self.status.container_statuses if one.state.waiting), None)
        if waiting is None or not waiting.reason:
            return ("not scheduled yet" if not self.spec.node_name else "its node has not taken it up yet"), False
        return waiting.words[:_MOST_SAID], waiting.reason in _HOPELESS

    def explain_death(self) -> str:
        """Why it ended as it should not, with the reason that Kubernetes gives; empty where it did not."""
        found: list[str] = []
        if disrupted := self._condition(_DISRUPTED, "True"):
            found.append(disrupted.words)
        if self.status.reason:
            found.append(self.status.words)
        for container in self.status.container_statuses:
            ended = container.state.terminated
            if ended is not None and (ended.exit_code or ended.reason not in ("Completed", "")):
                said = f"{ended.reason or 'Error'}, {describe_status(ended.exit_code)}"
                found.append(said + f" ({ended.message.strip()})" * bool(ended.message.strip()))
        if not found and self.status.phase == "Failed":
            found.append("Failed, without a reason")
        if not found and self.metadata.deletion_timestamp and self.status.phase == "Running":
            found.append("somebody has deleted it")
        return "; ".join(found)[:_MOST_SAID]

    @property
    def where(self) -> str:
        """Its name with its node, once it has one."""
        return self.name + f" on {self.spec.node_name}" * bool(self.spec.node_name)


class Pods(_Struct, frozen=True):
    """The answer to `kubectl get pods -o json`."""

    items: tuple[Pod, ...] = ()


class _Object(_Struct, frozen=True):
    name: str = ""


class Event(Reason, frozen=True):
    """What a part of Kubernetes complained of."""

    involved_object: _Object = _Object()
    type: str = ""


class Events(_Struct, frozen=True):
    """The answer to `kubectl get events -o json`."""

    items: tuple[Event, ...] = ()

    def of(self, name: str) -> str:
        """The last complaint about an object of that name or of one that it has made; empty without any."""
        about = [one for one in self.items
                 if one.type == "Warning" and (one.involved_object.name + "-").startswith(name + "-")]  # fmt: skip
        return about[-1].words[:_MOST_SAID] if about else ""


def sort_pods(pods: Sequence[Pod]) -> list[Pod]:
    """The one that measures first, the others by name."""
    return sorted(pods, key=lambda pod: (not pod.is_lead, pod.name))
