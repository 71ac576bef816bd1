"""Loads the shared library of timed loops, which the package's build compiles from the C files beside this one."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from railwright.errors import CannotJudge

LOOPS = Path(__file__).with_name("_loops.so")

_FAILURES = {
    -1001: "the library that was found lacks a function that the timed loop needs",
    -1002: "a transfer did not finish in time",
    -1003: "out of memory",
    -1004: "no further thread could be started",
}


class NativeError(CannotJudge):
    """A timed loop ended with an error; `code` is what it returned."""

    def __init__(self, what: str, code: int, meaning: str = "") -> None:
        super().__init__(f"{what}: {meaning or _FAILURES.get(code, f'error {code}')}")
        self.code = code


def checked(what: str, code: int, meaning: str = "") -> None:
    """Raises NativeError for what a loop returned, if it is an error."""
    if code:
        raise NativeError(what, code, meaning)


def system_error(code: int) -> str:
    """The operating system's words for a loop's negative errno; empty for any other error."""
    return os.strerror(-code) if -1000 < code < 0 else ""


class Closing:
    """A context manager that calls `close` at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what it holds."""
        raise NotImplementedError


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """The variables as they are given, None for one that is not there, and afterwards as they were before."""
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
    """The library. Raises CannotJudge if it was not built."""
    try:
        return ctypes.CDLL(str(LOOPS))
    except OSError as error:
        raise CannotJudge(
            f"the timed loops are not built: {error}", hint="run `make setup`, or reinstall the package"
        ) from error


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 - ctypes types have no common base
    """The C function with its types declared, so that a wrong call is a TypeError and not a crash."""
    bound = getattr(loops(), name)
    bound.restype = result
    bound.argtypes = arguments
    return bound  # type: ignore[no-any-return]


def fields(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:  # noqa: ANN401
    """Fields of a C structure that follow each other and are of one type."""
    return tuple((name, kind) for name in names)


def seconds_array(count: int) -> ctypes.Array[ctypes.c_double]:
    """Room for `count` samples, touched before it is used in a timed loop."""
    return (ctypes.c_double * count)()


def flush_c_streams() -> None:
    """Write out what C libraries of this process still hold in their stdio buffers, their log files for example."""
    ctypes.CDLL(None).fflush(None)
