"""The plan that the pods of a job receive in an environment variable. It holds no secret."""

from __future__ import annotations

import msgspec

from railwright import __version__

VARIABLE = "RAILWRIGHT_PODS"
NODE_VARIABLE = "RAILWRIGHT_NODE"
KEY_FOLDER = "/etc/railwright/ssh"
WORK_FOLDER = "/run/railwright"
PORT = 2222
"""The port of sshd. A port above 1023 needs no privilege."""


class PodPlan(msgspec.Struct, frozen=True):
    """The names of the pods, with the measuring pod first, and the command that this pod runs."""

    pods: tuple[str, ...]
    words: tuple[str, ...]
    """The arguments of railwright. The pod adds the hosts and the output folder."""
    within_s: float
    """The time for which the first pod waits for the others."""
    version: str = __version__

    def text(self) -> str:
        """Encode the plan for the variable."""
        return msgspec.json.encode(self).decode()


def parse_plan(text: str) -> PodPlan:
    """Decode the plan from the variable. Raises msgspec.DecodeError for other text."""
    return msgspec.json.decode(text, type=PodPlan)
