"""The shapes that a table without a machine may be of."""

from __future__ import annotations

from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.gpu_models import is_model
from railwright.topology.shapes import SHAPES

_MAX_MODELS = 8
"""The number of GPU names read from a table; a job has one or a few."""


def list_shapes(file: ForeignFile) -> tuple[str, ...]:
    """Return the names of the shapes with the table's GPU and enough of them per host."""
    gpus = -(-file.ranks // (file.hosts or 1)) if file.ranks else 1
    return tuple(
        name
        for name, shape in SHAPES.items()
        if shape.gpu is not None
        and (gpus <= shape.layout.gpus or not file.hosts)
        and any(is_model(seen, shape.gpu.name) for seen in file.gpus[:_MAX_MODELS])
    )
