"""What the pods of a job are told, in one variable of their environment. It holds no secret."""

from __future__ import annotations

import msgspec

from railwright import __version__

VARIABLE = "RAILWRIGHT_PODS"
NODE_VARIABLE = "RAILWRIGHT_NODE"
KEY_FOLDER = "/etc/railwright/ssh"
WORK_FOLDER = "/run/railwright"
PORT = 2222
"""Of sshd: one above 1023 needs no privilege."""


class PodPlan(msgspec.Struct, frozen=True):
    """The pods, by the names at which they reach each other, the first one first, and what that one runs."""

    pods: tuple[str, ...]
    words: tuple[str, ...]
    """Of railwright; the hosts and the output are added."""
    within_s: float
    """How long the first waits for the others."""
    version: str = __version__

    def text(self) -> str:
        """As the variable holds it."""
        return msgspec.json.encode(self).decode()


def parse_plan(text: str) -> PodPlan:
    """The plan of the variable. Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=PodPlan)
