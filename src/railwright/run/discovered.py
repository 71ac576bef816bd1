"""Discovery of other hosts' topologies, each by a railwright process there. A failing host affects no other."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from railwright.errors import CannotJudge, UsageError
from railwright.installation import PYTHON
from railwright.launch.hosts import Hosts
from railwright.launch.scratch import scratch_folder
from railwright.process import query
from railwright.topology.devices import Topology
from railwright.topology.sources.sent import decode_lines

_AT_ONCE = 32
_TIMEOUT_S = 90.0
"""The time limit for one host. NVIDIA's libraries alone may take 30 s."""
_LINE = shlex.join([*PYTHON, "-m", "railwright.topology.sources.sent"])
_MAX_REASON_CHARACTERS = 200


def discover(hosts: Hosts) -> dict[str, Topology | str]:
    """Return each host's topology, named after the host, or the reason why there is none, in the order of the hosts."""
    with scratch_folder() as scratch:
        agent = hosts.reach.agent(scratch)

        def read(host: str) -> Topology | str:
            try:
                finished = query([*agent, host, _LINE], timeout_s=_TIMEOUT_S)
            except CannotJudge as error:
                return error.message
            if finished.timed_out:
                return f"no answer within {_TIMEOUT_S:.0f} s"
            if finished.returncode != 0:
                message = next((line.strip() for line in reversed(finished.output) if line.strip()), "")
                return message[:_MAX_REASON_CHARACTERS] or finished.describe()
            try:
                return replace(decode_lines(finished.output), name=host)
            except UsageError as error:
                return error.message[:_MAX_REASON_CHARACTERS]

        with ThreadPoolExecutor(min(_AT_ONCE, len(hosts.names))) as executor:
            return dict(zip(hosts.names, executor.map(read, hosts.names), strict=True))
