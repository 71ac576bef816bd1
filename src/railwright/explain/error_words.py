"""Words that every error line of a job has: a table without them needs none of what reads such lines."""

from __future__ import annotations

_WORDS = (
    "atchdog", "ncclSys", "ncclRem", "ncclInt", "ncclUnh", "ncclInv", "ailure", "Xid", "AER:", "Timeout", "imed out",
    "MPI_ABORT", "on signal", "for clients", "ast error", "Got completion", "NCCL error", "peer memory driver",
    "WARN", "ERROR", "rror:", "failed", "Failed",
    "Unable to", "unable to", "Couldn't read", "BTLs attempted", "MPI_ERR_", "not enough slots", "has lost comm",
    "cannot be selected", "count exceeded", "PML add", "register error",
    "_with_err", "handle_failure", "error stack", "No components", "no components",
)  # fmt: skip


def may_have_errors(text: str) -> bool:
    """Report whether a text has one of the words."""
    return any(word in text for word in _WORDS)
