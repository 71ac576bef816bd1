"""Names and values that the sources give to settings, by which other code finds them."""

from __future__ import annotations

NONE = "none"
"""The machine lacks the feature, such as frequency control in most virtual machines."""
SETTING = "setting"
"""The prefix of an unreadable setting among the unknown facts: `setting of thp`."""
UNLIMITED = "unlimited"
IOMMU_DOMAIN = "iommu_domain"
IOMMU_OFF = "off"
"""The kernel uses no IOMMU."""
