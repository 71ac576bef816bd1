"""Curves, maps and drawings in SVG."""
