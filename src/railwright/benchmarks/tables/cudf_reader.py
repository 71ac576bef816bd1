"""Parquet and ORC files by cuDF into GPU memory, through KvikIO with or without GPUDirect Storage.

Only ranks import this module, because it loads cuDF. It has not run on a real GPU yet, only on a stand-in.
"""

from __future__ import annotations

import io
from typing import Any

import cudf
import pyarrow as pa

from railwright.benchmarks.tables.arrow_files import Layout
from railwright.errors import CannotJudge
from railwright.native.cuda import Device


class CudfReader:
    """Reads the columns of a file by cuDF. The device must stay open."""

    software = f"cudf {cudf.__version__}"

    def __init__(self, path: str, name: str, what: Layout, device: Device) -> None:
        self._path, self._name, self._what, self._device = path, name, what, device

    def use(self, threads: int) -> None:
        """Do nothing: the environment sets KvikIO's threads, and nothing decodes on CPUs."""

    def read(self, cache: str = "hot") -> Any:  # noqa: ANN401, ARG002 - cuDF has no types, and one way for both
        """Read the columns from the file and wait for all of the GPU's work."""
        return self._frame(self._path)

    def decode(self, whole: pa.Buffer) -> Any:  # noqa: ANN401
        """Decode the columns from the file's bytes in host memory, including the copy to the GPU."""
        return self._frame(io.BytesIO(whole))

    def to_arrow(self, table: Any) -> pa.Table:  # noqa: ANN401
        """Return a table as pyarrow's."""
        return table.to_arrow(preserve_index=False)

    def memory_bytes(self, table: Any) -> int:  # noqa: ANN401
        """Return the GPU memory of a table."""
        return int(table.memory_usage(index=False, deep=True).sum())

    def _frame(self, source: Any) -> Any:  # noqa: ANN401
        try:
            if self._what.format == "orc":
                frame = cudf.read_orc(source)
            else:
                frame = cudf.read_parquet(source, columns=list(self._what.columns))
        except (RuntimeError, ValueError, OSError, MemoryError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise CannotJudge(f"{self._name} cannot be read by cuDF: {said[:300]}") from error
        self._device.synchronize()
        return frame
