"""The listener that proves isolation, on `lo`: what it did not hear is never counted as silence."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import pytest
from tests.conftest import PATIENCE_S, running

from railwright.net import inside

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: raw sockets need root")]


def test_a_listener_that_did_not_run_counts_what_came_before_its_end() -> None:
    mark = secrets.token_bytes(16)
    role = {"role": "hear", "interface": "lo", "mark": mark.hex()}
    argv = [sys.executable, "-I", inside.__file__, json.dumps([role])]
    with running(argv, stdout=subprocess.PIPE) as listener, socket.socket(type=socket.SOCK_DGRAM) as sender:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"ready\n"
        listener.send_signal(signal.SIGSTOP)
        sender.bind(("127.0.0.1", 0))  # and to itself, so that nothing answers that the port is closed
        for _ in range(20):
            sender.sendto(mark, sender.getsockname())
        time.sleep(2 * inside._QUIET_S)
        listener.send_signal(signal.SIGTERM)
        listener.send_signal(signal.SIGCONT)
        assert json.loads(listener.communicate(timeout=PATIENCE_S)[0]) == [{"frames": 20, "lost": 0}]


def test_a_listener_that_nobody_stops_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_DEADLINE_S", 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert inside._do({"role": "hear", "interface": "lo", "mark": "00"}) == {"error": "timed out", "errno": ""}
