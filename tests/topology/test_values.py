"""Machines, limits, records and verdicts are immutable, so all may share and keep them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

from railwright import diagnosis, faults, limits, topology


def structs_of(package) -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and issubclass(value, msgspec.Struct) and value.__module__ == module.name:
                yield value


@pytest.mark.parametrize("package", [topology, limits, faults, diagnosis], ids=lambda package: package.__name__)
def test_values_are_frozen(package):
    found = list(structs_of(package))
    assert [value.__qualname__ for value in found if not value.__struct_config__.frozen] == []
    assert found
