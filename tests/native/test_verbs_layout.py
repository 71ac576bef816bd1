"""Our declarations of libibverbs against the header of rdma-core."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "src/railwright/native"


@pytest.mark.machine
@pytest.mark.skipif(not Path("/usr/include/infiniband/verbs.h").exists(), reason="needs Debian's libibverbs-dev")
def test_the_layouts_are_those_of_the_header():
    source = Path(__file__).with_name("verbs_layout.c")
    compiled = ["cc", "-std=gnu11", "-fsyntax-only", "-I", str(NATIVE), str(source)]
    done = subprocess.run(compiled, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
