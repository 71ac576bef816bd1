"""The pods of a job as reported by the API server, and the reasons why a pod waits or has died."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from railwright.process import describe_status

ROLE_LABEL = "railwright.dev/role"
INDEX = "batch.kubernetes.io/job-completion-index"
_HOPELESS = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError",
             "CreateContainerError", "RunContainerError")  # fmt: skip
"""Waiting reasons that need a change of the job or the cluster."""
_MAX_MESSAGE_CHARACTERS = 300
_DISRUPTED = "DisruptionTarget"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that we read from an API object. Other fields are ignored."""


class Reason(_Struct, frozen=True):
    """The reason for a state."""

    reason: str = ""
    message: str = ""

    @property
    def words(self) -> str:
        """The reason, with the message if there is one."""
        return self.reason + f": {self.message}" * bool(self.message)


class Terminated(Reason, frozen=True):
    """The end of a container."""

    exit_code: int = 0


class State(_Struct, frozen=True):
    """The state of a container. Exactly one field is set."""

    waiting: Reason | None = None
    running: dict[str, str] | None = None
    terminated: Terminated | None = None


class Container(_Struct, frozen=True):
    """A container of a pod."""

    state: State = State()


class Condition(Reason, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""


class Status(Reason, frozen=True):
    """The state of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[Container, ...] = ()


class Spec(_Struct, frozen=True):
    """The placement of a pod."""

    node_name: str = ""


class Metadata(_Struct, frozen=True):
    """The metadata of a pod."""

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
        """The name of the pod."""
        return self.metadata.name

    @property
    def is_lead(self) -> bool:
        """Whether this is the pod that measures and whose log holds the records."""
        role = self.metadata.labels.get(ROLE_LABEL, "")
        return role == "lead" or (role != "host" and self.metadata.annotations.get(INDEX) == "0")

    @property
    def has_run(self) -> bool:
        """Whether the container has started, so that there is a log."""
        states = [container.state for container in self.status.container_statuses]
        return bool(states) and all(state.running is not None or state.terminated is not None for state in states)

    def _condition(self, name: str, status: str) -> Condition | None:
        return next(
            (
                condition
                for condition in self.status.conditions
                if condition.type == name and condition.status == status
            ),
            None,
        )

    def explain_wait(self) -> tuple[str, bool]:
        """Return why the pod does not run yet, and whether it never will. Empty once it has run."""
        if self.has_run or self.status.phase in ("Running", "Succeeded", "Failed"):
            return "", False
        if unscheduled := self._condition("PodScheduled", "False"):
            return unscheduled.words[:_MAX_MESSAGE_CHARACTERS], False
        waiting = next(
            (container.state.waiting for container in self.status.container_statuses if container.state.waiting), None
        )
        if waiting is None or not waiting.reason:
            return ("not scheduled yet" if not self.spec.node_name else "not started by its node yet"), False
        return waiting.words[:_MAX_MESSAGE_CHARACTERS], waiting.reason in _HOPELESS

    def explain_death(self) -> str:
        """Return why the pod died, with the reason that Kubernetes reports. Empty if it did not die."""
        found: list[str] = []
        if disrupted := self._condition(_DISRUPTED, "True"):
            found.append(disrupted.words)
        if self.status.reason:
            found.append(self.status.words)
        for container in self.status.container_statuses:
            ended = container.state.terminated
            if ended is not None and (ended.exit_code or ended.reason not in ("Completed", "")):
                words = f"{ended.reason or 'Error'}, {describe_status(ended.exit_code)}"
                found.append(words + f" ({ended.message.strip()})" * bool(ended.message.strip()))
        if not found and self.status.phase == "Failed":
            found.append("failed without a reason")
        if not found and self.metadata.deletion_timestamp and self.status.phase == "Running":
            found.append("deleted")
        return "; ".join(found)[:_MAX_MESSAGE_CHARACTERS]

    @property
    def where(self) -> str:
        """The name of the pod, with its node once it has one."""
        return self.name + f" on {self.spec.node_name}" * bool(self.spec.node_name)


class Pods(_Struct, frozen=True):
    """The answer to `kubectl get pods -o json`."""

    items: tuple[Pod, ...] = ()


class _Object(_Struct, frozen=True):
    name: str = ""


class Event(Reason, frozen=True):
    """A warning of a Kubernetes component."""

    involved_object: _Object = _Object()
    type: str = ""


class Events(_Struct, frozen=True):
    """The answer to `kubectl get events -o json`."""

    items: tuple[Event, ...] = ()

    def find_warning(self, name: str) -> str:
        """Return the last warning about an object named `name` or `name-...`. Empty if there is none."""
        warnings = [event for event in self.items
                 if event.type == "Warning" and (event.involved_object.name + "-").startswith(name + "-")]  # fmt: skip
        return warnings[-1].words[:_MAX_MESSAGE_CHARACTERS] if warnings else ""


def sort_pods(pods: Sequence[Pod]) -> list[Pod]:
    """Sort pods by name, with the measuring pod first."""
    return sorted(pods, key=lambda pod: (not pod.is_lead, pod.name))
