"""The meaning of the Xid errors that NVIDIA's driver reports to the kernel."""

from __future__ import annotations

XIDS = {
    13: "a graphics engine exception: usually a fault of the program",
    31: "a GPU memory page fault: usually an illegal address of the program",
    43: "the GPU stopped processing: a fault of the program",
    45: "work was removed after another error: look for the Xid before it",
    48: "a double-bit ECC error of GPU memory",
    61: "an internal error of the GPU's microcontroller",
    63: "a row of GPU memory was remapped",
    64: "a row of GPU memory could not be remapped",
    74: "an NVLink error: the link between GPUs or to the NVSwitch failed",
    79: "the GPU fell off the bus: power, cooling or its PCIe link",
    92: "many single-bit ECC errors",
    94: "a contained ECC error: only the affected program must be restarted",
    95: "an uncontained ECC error: the GPU must be reset",
    119: "the GPU's firmware (GSP) did not answer",
    120: "the GPU's firmware (GSP) failed",
    144: "an NVLink error (SAW)",
    145: "an NVLink error (RLW)",
    146: "an NVLink error (TLW)",
    147: "an NVLink error (TREX)",
    148: "an NVLink error (NVLPW_CTRL)",
    149: "an NVLink error (NETIR)",
    150: "an NVLink error (MSE)",
}  # fmt: skip
