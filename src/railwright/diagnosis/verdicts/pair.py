"""The verdict on what one host sent to another."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.diagnosis.verdicts.judged import Verdict

Standing = Literal["alone", "with the others", "behind"]
_LEAST_TRIES = 2
"""What was slow once may have met others' traffic."""


class PairJudged(msgspec.Struct, frozen=True, kw_only=True, tag="pair", tag_field="record", omit_defaults=True,
                 forbid_unknown_fields=True):  # fmt: skip
    """One host to another."""

    source: str
    destination: str
    tries: int
    value: float | None
    """Of its best try, in bytes/s: so much can pass."""
    part: float | None = None
    """Of the other pairs' median."""
    limit: float | None = None
    because: str = ""
    """What the limit is, or why there is none."""
    verdict: Verdict
    standing: Standing

    @property
    def is_slow(self) -> bool:
        """Whether it is slow by its limit, or behind the others in several tries."""
        return self.verdict.state == "slow" or (self.standing == "behind" and self.tries >= _LEAST_TRIES)
