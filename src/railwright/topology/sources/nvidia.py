"""The answers of NVIDIA's libraries about this machine: read once by a child process, and kept in captures like a file.

`railwright` itself loads neither NVML nor CUDA: a driver that hangs or crashes costs the child.
"""

from __future__ import annotations

import json

import msgspec

from railwright.errors import RailwrightError
from railwright.installation import PYTHON
from railwright.process import run
from railwright.reading import InvalidContent, decode_json
from railwright.topology.sources.nvidia_model import PROBE, Probe
from railwright.topology.sources.root import Root, Unreadable, printable

TIMEOUT_S = 30.0
"""Drivers without persistence take 1 to 3 s for each GPU when the first program opens them."""
_PROGRAM = (*PYTHON, "-W", "ignore", "-m", "railwright.topology.sources.nvidia_probe")


def ask_nvidia() -> bytes | Unreadable:
    """Return the answers of NVIDIA's libraries as a capture holds them, from a child process that is ended after
    `TIMEOUT_S`.
    """
    try:
        finished = run(_PROGRAM, timeout_s=TIMEOUT_S)
    except RailwrightError as error:
        return Unreadable(PROBE, error.message[:200])
    answers = _parse_answers("".join(finished.output))
    ended = f"ended the process that asked it ({finished.describe()})"
    if finished.timed_out:
        ended = f"gave no answer within {TIMEOUT_S:g} s"
    if "nvml" not in answers:
        return Unreadable(PROBE, f"NVIDIA's library NVML {ended}")
    answers.setdefault("cuda", {"problem": f"the CUDA driver {ended}"})
    return msgspec.json.format(msgspec.json.encode({"format": 1, **answers}), indent=1) + b"\n"


def _parse_answers(text: str) -> dict[str, object]:
    """Return the JSON objects in `text`, merged; a last one that was cut off is left out.

    Text before the first is output of Python or an import on standard error before the probe closed it.
    """
    found: dict[str, object] = {}
    decoder = json.JSONDecoder()
    position = text.find('{"nvml":')
    while 0 <= position < len(text):
        try:
            part, position = decoder.raw_decode(text, position)
        except ValueError:
            break
        if isinstance(part, dict):
            found.update(part)
    return found


def read_probe(root: Root) -> Probe | Unreadable:
    """Return the document in `root`, checked. Raises nothing."""
    raw = root.read_bytes(PROBE)
    if isinstance(raw, Unreadable):
        return raw
    try:
        return decode_json(raw, Probe)
    except InvalidContent as error:
        why = printable(str(error).encode("utf-8", "replace"))[:160]
        return Unreadable(PROBE, f"{PROBE} is not valid: {why}")
