"""The network's chain: its plugin `ovs` looks at its port often enough that an ADD does not sleep."""

from __future__ import annotations

from railwright.net.view import Bad, Check, Note, View, require_seen

_DEFAULT_POLL_MS, _DEFAULT_POLLS = 600, 5  # of ovs-cni
_LONGEST_POLL_MS, _SHORTEST_PATIENCE_MS = 50, 1000
_REMEDY = (
    'set "link_state_check_interval": 10 and "link_state_check_retries": 300 in the plugin ovs of the network;'
    " pods that start later are faster"
)


def _judge(view: View, note: Note) -> str:
    recorded = require_seen(view.recorded)
    chain = " + ".join(plugin.type for plugin in recorded.plugins) or "no plugin"
    note(f"chain of {recorded.network}", chain, recorded.path)
    for plugin in recorded.plugins:
        if plugin.type != "ovs":
            continue
        poll_ms = plugin.link_state_check_interval or _DEFAULT_POLL_MS
        patience_ms = poll_ms * (plugin.link_state_check_retries or _DEFAULT_POLLS)
        note("ovs looks at its port", f"every {poll_ms} ms for {patience_ms} ms", recorded.path)
        if poll_ms > _LONGEST_POLL_MS:
            raise Bad(f"ovs looks at its port every {poll_ms} ms, so most starts of a pod sleep as long", _REMEDY)
        if patience_ms < _SHORTEST_PATIENCE_MS:
            raise Bad(f"ovs gives its port {patience_ms} ms to come up, and fails an ADD on a busy node", _REMEDY)
    return chain


CHECK = Check("chain", _judge)
