"""The probe's answer about the stand-in libraries, inserted into a captured machine."""

import json
import os
import subprocess
import sys

from tests.stand_ins import environment

from railwright.checks.check import Facts
from railwright.faults.every_check import EVERY_CHECK
from railwright.topology.sources.load import load
from railwright.topology.sources.nvidia_model import PROBE

from .machines import files_of, write_archive

ADDRESSES = ("0000:00:06.0", "0000:00:07.0")
MACHINE = "2xh200-firecracker-vm"


def ask(folder, **faults):
    """Return the probe's document for two H200, healthy except for the given faults of the stand-ins."""
    variables = os.environ | environment(folder, *ADDRESSES, **faults)
    program = [sys.executable, "-m", "railwright.topology.sources.nvidia_probe"]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, timeout=300, check=True)
    first, second = done.stdout.splitlines()
    return {"format": 1, **json.loads(first), **json.loads(second)}


def machine_with(tmp_path, answer, name=MACHINE):
    """Load the captured machine with a probe's document in it."""
    raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return load(str(write_archive(tmp_path / "machine.jsonl", {**files_of(name), PROBE: raw})))


def look(name, topology):
    (check,) = [check for check in EVERY_CHECK if check.name == name]
    return check.look(Facts(topology=topology))


def why(topology):
    return {item.what: item.why for item in topology.unknown}
