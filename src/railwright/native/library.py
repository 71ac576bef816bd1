"""The shared library of timed loops, which the build of the package compiles from the C files in this folder."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railwright.errors import CannotJudge

if TYPE_CHECKING:
    from typing import Self  # there since Python 3.11

LOOPS = Path(__file__).with_name("_loops.so")

_FAILURES = {
    -1001: "the library lacks a function that the timed loop needs",
    -1002: "a transfer did not finish in time",
    -1003: "out of memory",
    -1004: "no further thread could be started",
}


class NativeError(CannotJudge):
    """The error of a timed loop; `code` is its return value."""

    def __init__(self, what: str, code: int, meaning: str = "") -> None:
        super().__init__(f"{what}: {meaning or _FAILURES.get(code, f'error {code}')}")
        self.code = code


def check_result(what: str, code: int, meaning: str = "") -> None:
    """Check the return value of a loop. Raises NativeError for an error."""
    if code:
        raise NativeError(what, code, meaning)


def system_error(code: int) -> str:
    """Return the operating system's text for a negative errno, or an empty string for any other error."""
    return os.strerror(-code) if -1000 < code < 0 else ""


class Closing:
    """A context manager that calls `close` on exit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables (None unsets one) within the context, and restore them afterwards."""
    before = {name: os.environ.pop(name, None) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@functools.cache
def loops() -> ctypes.CDLL:
    """Load the library. Raises CannotJudge if it was not built."""
    try:
        return ctypes.CDLL(str(LOOPS))
    except OSError as error:
        raise CannotJudge(
            f"the timed loops are not built: {error}", hint="run `make setup`, or reinstall the package"
        ) from error


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 - ctypes types have no common base
    """Declare the types of a C function, so that a wrong call is a TypeError rather than a crash."""
    bound = getattr(loops(), name)
    bound.restype = result
    bound.argtypes = arguments
    return bound  # type: ignore[no-any-return]


def fields(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:  # noqa: ANN401
    """Return consecutive fields of the same type for a C structure."""
    return tuple((name, kind) for name in names)


def seconds_array(count: int) -> ctypes.Array[ctypes.c_double]:
    """Return an array of `count` samples, touched before a timed loop uses it."""
    return (ctypes.c_double * count)()


def flush_c_streams() -> None:
    """Flush the stdio buffers of the C libraries in this process, such as those of their log files."""
    ctypes.CDLL(None).fflush(None)
