"""Words that every error line of a job has: a table without them needs none of what reads such lines."""

from __future__ import annotations

_WORDS = (
    "atchdog", "ncclSys", "ncclRem", "ncclInt", "ncclUnh", "ncclInv", "ailure", "Xid", "AER:", "Timeout", "imed out",
    "MPI_ABORT", "on signal", "for clients", "ast error", "Got completion", "NCCL error", "peer memory driver",
    "WARN", "ERROR", "rror:", "failed", "Failed", "Unable to", "unable to", "Couldn't read", "BTLs attempted",
    "MPI_ERR_", "not enough slots", "has lost comm", "cannot be selected", "count exceeded", "PML add",
    "register error", "transport to", "unused environment", " error on ", "retry exceeded", "No providers",
    "OpenFabrics", "Signal", "exitcode", "timed out", "CUDA error", "CUDA out", "OutOfMemory", "Couldn't",
    "No IB devices", "IB device", "state is ", "RDMA_CM_EVENT_", "message too long", "available PCIe", "module event",
    "handling bad", "health compromised", "ump signal", "last completed", "assert_var", "igh temperature", "ink down",
    "ink is Down", "blocked for more", "DMAR:", "AMD-Vi:", "nvidia_p2p", "p2p_free", "Out of memory", "timeout",
    "interface version", "not yet init", "NOT_READY", "srun: error", "oom", "CANCELLED AT", "FailedSch", "FailedCr",
    "BackOff", "ErrImage", "OOMKilled", "ContainerConfig", "FailedMount", "FailedAttach", "_with_err",
    "handle_failure", "error stack", "No components", "no components", "has failed", "Unable to det", "SXid", "EDAC",
    "throttled", "could not insert", "could not select", "container-cli", "shared libraries", "symbol lookup",
    "ssh: ", "Host key", "Permission denied", "PMIX", "aught signal",
)  # fmt: skip


def find_error_words(text: str) -> tuple[str, ...]:
    """Return those of the words that a text has: most texts have few, which makes a test of each line cheap."""
    return tuple(word for word in _WORDS if word in text)
