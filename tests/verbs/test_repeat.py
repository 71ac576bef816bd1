"""`run --repeat`: repeats the recorded arguments and environment, and uses nothing else from the record."""

from __future__ import annotations

import os

import msgspec
import pytest

QUICK = ("run", "core_latency", "--force", "--launches", "2")


@pytest.fixture
def changed(tmp_path, answer):
    """Return a function that writes a run record with the given command and environment."""

    def make(command=QUICK, environment=None):
        path = tmp_path / "given"
        path.mkdir(exist_ok=True)
        (made,) = [msgspec.json.decode(line) for line in RECORD.splitlines()[:1]]
        made["command"] = ["railwright", *command]
        made["context"]["environment"] = environment or {}
        (path / "results.jsonl").write_bytes(msgspec.json.encode(made) + b"\n")
        return str(path)

    return make


RECORD = (
    b'{"record":"run","railwright":"0","started_at":"2026-11-24T00:00:00+00:00","command":[],'
    b'"context":{"host":"h","kernel":"k"},"topology":{"name":"h","source":"capture","devices":[],"links":[],"schema_version":1},'
    b'"schema_version":3}'
)


@pytest.mark.parametrize(
    ("command", "environment", "said"),
    [
        (("prove",), {}, "the record must be of `railwright run`, got 'railwright prove'"),
        (("run", "hpl", "-o", "program=/tmp/evil"), {}, "names a file to load or start (program=/tmp/evil)"),
        (("run", "hpl", "-o", "hpl.library=/tmp/evil.so"), {}, "names a file to load or start"),
        (("run", "mpi_latency", "--mpirun", "/tmp/evil"), {}, "names a file to load or start (mpirun)"),
        (("run", "core_latency", "--no-such"), {}, "the recorded command cannot be parsed: No such option"),
        (("run", "--repeat", "first"), {}, "hint: repeat the first: first"),
        (
            QUICK,
            {"NCCL_NET_PLUGIN": "/tmp/evil.so"},
            "the record sets NCCL_NET_PLUGIN to a path, which may load a file",
        ),
        (QUICK, {"LD_PRELOAD": "evil"}, "the record sets 'LD_PRELOAD', which is not a variable of a measured library"),
        (QUICK, {"UCX_TLS": "tcp\0"}, "the record sets 'UCX_TLS' to a value with a NUL character"),
    ],
)
def test_a_record_starts_nothing_that_it_brings_along(answer, changed, command, environment, said):
    before = dict(os.environ)
    done = answer("run", "--repeat", changed(command, environment))
    assert done.status == 2
    assert said in done.message(), done.message()
    assert dict(os.environ) == before


def test_words_of_ones_own_and_the_records_own_folder_are_refused(answer, changed):
    record = changed()
    assert "--repeat excludes benchmark names and -o" in answer("run", "hpl", "--repeat", record).message()
    assert "contains the record to repeat" in answer("run", "--repeat", record, "-O", record).message()


@pytest.mark.machine
def test_a_run_is_repeated_as_it_was_and_compared(railwright, tmp_path):
    first = railwright(*QUICK, environment={"UCX_WARN_UNUSED_ENV_VARS": "n"})
    assert first.status in (0, 1, 3), first.err
    again = railwright("run", "--repeat", "out", "--force", "-O", "again", environment={"UCX_TLS": "all"})
    assert "repeat: set UCX_WARN_UNUSED_ENV_VARS=n as recorded" in again.err, again.err
    assert "repeat: unset UCX_TLS, which the record does not have" in again.err
    results = railwright.results("core_latency", folder=tmp_path / "again")
    assert {one.launch for one in results} == {0, 1}
    assert "core_latency" in again.out
