"""The catalogue of machines and parts, decoded from the file that scripts/write-shapes writes from its TOML files."""

from collections.abc import Mapping

import msgspec

from railwright.errors import unknown_name
from railwright.topology.devices import Record
from railwright.topology.shapes.parts import (
    CpuPart,
    DrivePart,
    GpuPart,
    NicPart,
    NvlinkPart,
    Part,
    Shape,
    ShapeFile,
    XgmiPart,
)


class NameTable(Record, frozen=True, kw_only=True):
    """The names of the machines, with all other names that lead to one."""

    shapes: dict[str, tuple[str, ...]]
    """The vendors' own names of each shape, as they write them. The order is that of every list of shapes."""
    boards: dict[str, dict[str, str]]
    """The shape that replaces another one if the machine has that number of GPUs, since its links differ."""
    gpu_boards: dict[str, dict[str, str]]
    """The same, if only the GPU is named: four V100 are a board, but a DGX-1 with four GPUs is half of one."""
    spellings: dict[str, str]
    """The machine for the name of a GPU alone, or for a short word: the most common host of that GPU. In the file that
    is loaded, every name in small letters without separators."""
    suggestions: dict[str, tuple[str, ...]]
    """Known names without a shape of their own, with the shapes to suggest."""
    unmodelled: dict[str, str]
    """Machines that no shape resembles, so that none is suggested, with the reason."""


class Catalogue(Record, frozen=True, kw_only=True):
    """The parts by name, and the machines that are made of them."""

    names: NameTable
    cpus: dict[str, CpuPart]
    gpus: dict[str, GpuPart]
    nvlinks: dict[str, NvlinkPart]
    xgmis: dict[str, XgmiPart]
    nics: dict[str, NicPart]
    drives: dict[str, DrivePart]
    shapes: dict[str, ShapeFile]

    def parts(self) -> dict[str, Mapping[str, Part]]:
        """Return the parts by name, for each key of a machine's file that can name one."""
        return {
            "cpu": self.cpus,
            "gpu": self.gpus,
            "nvlink": self.nvlinks,
            "xgmi": self.xgmis,
            "nic": self.nics,
            "drive": self.drives,
        }

    def complete(self, file: ShapeFile) -> Shape:
        """Return the machine with a part for each name of one. Raises UsageError for an unknown name."""
        named: dict[str, Part] = {}
        for kind, known in self.parts().items():
            name = getattr(file, kind)
            if isinstance(name, str):
                if name not in known:
                    raise unknown_name(kind, name, known)
                named[kind] = known[name]
        return Shape(**{**msgspec.structs.asdict(file), **named})


_FILE = __file__.removesuffix(".py") + ".json"
CATALOGUE = msgspec.json.decode(__loader__.get_data(_FILE), type=Catalogue)  # type: ignore[name-defined]
