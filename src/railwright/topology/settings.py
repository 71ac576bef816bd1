"""The words in which the sources tell settings, and by which others find them again."""

from __future__ import annotations

NONE = "none"
"""The machine has no such thing, like frequency control in most virtual machines."""
SETTING = "setting"
"""How a setting that could not be read begins among what is unknown: `setting of thp`."""
UNLIMITED = "unlimited"
IOMMU_DOMAIN = "iommu_domain"
IOMMU_OFF = "off"
"""No IOMMU that the kernel uses."""
