"""An orderly end on signals."""

import signal

import pytest

from railwright.launch import ending


@pytest.fixture
def passed_over():
    """SIGUSR1 has no effect besides the byte that it leaves."""
    before = signal.signal(signal.SIGUSR1, ending._pass_over)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_arrived_just_before_the_wait_ends_it(passed_over, monkeypatch):
    set_wakeup_fd = signal.set_wakeup_fd

    def arrive(fd):
        set_wakeup_fd(fd)
        if fd != -1:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(signal, "set_wakeup_fd", arrive)
    ending._wait()
    assert set_wakeup_fd(-1) == -1


def test_further_signals_do_not_interrupt_the_restoration():
    restored = []

    def change():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for number in ending._ENDS:
                signal.raise_signal(number)

    before = signal.getsignal(signal.SIGTERM)
    with ending.ended_by_signal():
        ending.hold(change, lambda: restored.append(signal.raise_signal(signal.SIGHUP)))
    assert restored == [None]
    assert signal.getsignal(signal.SIGTERM) is before
