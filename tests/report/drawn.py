"""Reads the paths of a chart back into points."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from railwright.report.pictures.chart import Figure

Points = list[tuple[float, float]]


def points_of(path: str) -> Points:
    """Return the absolute points of a path, without the shapes of marks, which are relative."""
    numbers = [*map(float, re.findall(r"-?[\d.]+", re.sub(r"[a-z][^A-Z]*", "", path)))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def paths_of(figure: Figure, style: str) -> list[Points]:
    """Return the points of the figure's paths of a style."""
    drawn = [node for node in ET.fromstring(figure.svg).iter("path") if style in (node.get("class") or "").split()]
    return [points_of(node.get("d") or "") for node in drawn]


def marked(figure: Figure, marker: str) -> int:
    """Return the number of the points that have a marker."""
    drawn = ET.fromstring(figure.svg).iter("path")
    return sum(len(points_of(node.get("d") or "")) for node in drawn if marker in (node.get("class") or "").split())
