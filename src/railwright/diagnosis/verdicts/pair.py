"""The verdict on the traffic from one host to another."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.diagnosis.verdicts.judged import Verdict

PeerStanding = Literal["alone", "with the others", "behind"]
_MIN_TRIES = 2
"""A single slow try may have collided with other traffic."""


class PairJudged(msgspec.Struct, frozen=True, kw_only=True, tag="pair", tag_field="record", omit_defaults=True,
                 forbid_unknown_fields=True):  # fmt: skip
    """The traffic from one host to another, with its verdict."""

    source: str
    destination: str
    tries: int
    value: float | None
    """The rate of the best try in bytes/s, which the path can carry."""
    part: float | None = None
    """The value as a share of the other pairs' median."""
    limit: float | None = None
    because: str = ""
    """The reason for the limit, or why there is none."""
    verdict: Verdict
    standing: PeerStanding
    by: Literal["tcp", "rdma"] = "tcp"
    """The transport that the verdict is about: RDMA if both hosts have RDMA ports."""
    tcp_value: float | None = None
    """The rate of TCP beside RDMA, in bytes/s."""

    @property
    def over_tcp(self) -> float | None:
        """The rate of TCP, in bytes/s."""
        return self.value if self.by == "tcp" else self.tcp_value

    @property
    def is_slow(self) -> bool:
        """Whether the pair is slow by its limit, or behind the others in several tries."""
        return self.verdict.state == "slow" or (self.standing == "behind" and self.tries >= _MIN_TRIES)
