"""The ends of a probe's flows."""

from __future__ import annotations

import socket

from railwright.benchmarks.sockets import flow_end

SETTINGS = {"source": "127.0.0.1", "destination": "127.0.0.1", "connect_timeout_s": 3.0, "duration_s": 0.01}


def test_a_refused_connection_is_repeated_and_told_if_nobody_listens(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = SETTINGS | {"port": listener.getsockname()[1], "source_ports": [0]}
        assert flow_end.send_tcp(settings) == [{"source_port": 0, "error": "Connection refused"}]
        connect, refused = flow_end._try_connect, [ConnectionRefusedError(111, "Connection refused")] * 2

        def connect_later(*words):
            if refused:
                raise refused.pop()
            return connect(*words)

        monkeypatch.setattr(flow_end, "_try_connect", connect_later)
        listener.listen()
        (found,) = flow_end.send_tcp(settings)
    assert "error" not in found
