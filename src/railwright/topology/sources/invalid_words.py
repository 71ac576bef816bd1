"""Errors for words after the name of a machine that are neither part of it nor changes, with the nearest known word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from railwright.busbw import OPERATIONS
from railwright.errors import UsageError
from railwright.topology.plan import CHANGES, NIC_PROTOCOLS
from railwright.topology.shapes import means_hosts, nearest_names, unknown_shape

_MAX_WORDS = 4
_NIC = re.compile(r"(?:cx|connectx-?)(\d)|(?:bf|bluefield-?)(\d)")
_CONNECTX_RATES = {"5": "100Gb/s", "6": "200Gb/s", "7": "400Gb/s", "8": "800Gb/s", "9": "1600Gb/s"}
_BLUEFIELD_RATES = {"2": "200Gb/s", "3": "400Gb/s", "4": "800Gb/s"}
"""The highest port rate of a card, by generation (NVIDIA's data sheets of ConnectX and BlueField)."""
_IN_CLUSTER_FILE = ("rail_optimised", "oversubscription", "tiers", "switches", "in_network_reduction", "storage")
_OPTIONS = {"hosts": "--count", "nodes": "--count", "count": "--count"}
_SPELLING = str.maketrans("_z", "-s")
_MIN_SIMILARITY = 0.6


def invalid_changes(words: Sequence[str], name: str) -> UsageError:
    """Return the error for words after a name that are not changes, or for a name that means several hosts."""
    if means_hosts(name):
        return unknown_shape(name)
    shown = words[:_MAX_WORDS]
    hints = list(dict.fromkeys(hint for word in shown if (hint := _suggest(word))))
    hints = hints or [f"changes are {', '.join(CHANGES)}, each as key=value"]
    if all("?" in hint or "=value" in hint for hint in hints) and (near := nearest_names(name)):
        hints.append(f"or is the machine {', '.join(near)}?")  # a word that is certain belongs to no machine's name
    return UsageError(f"not a change: {', '.join(repr(word[:60]) for word in shown)}", hint="; ".join(hints))


def _suggest(word: str) -> str:
    """Return a hint with the nearest known word; empty if none is near."""
    written = word[:60].lower()
    if card := _NIC.fullmatch(written):
        rate = _CONNECTX_RATES.get(card[1] or "") or _BLUEFIELD_RATES.get(card[2] or "")
        return f"for {word}, write nic-rate={rate}" if rate else ""
    key = written.partition("=")[0].translate(_SPELLING)
    if key.replace("-", "_") in OPERATIONS:
        return f"for {word}, write --collective {word}"
    known = {
        **{change: f"did you mean {change}=VALUE?" for change in CHANGES},
        **{word: f"did you mean nic-protocol={word}?" for word in NIC_PROTOCOLS if len(word) > 3},
        **{
            name.translate(_SPELLING): f"{name} is a key of a cluster file: --cluster FILE (docs/cluster-file.md)"
            for name in _IN_CLUSTER_FILE
        },
        **{name: f"for {name}, give {option}" for name, option in _OPTIONS.items()},
    }
    near = difflib.get_close_matches(key, known, n=1, cutoff=_MIN_SIMILARITY)
    return known[near[0]] if near else ""
