"""What a machine, a limit, a record or a verdict says never changes once it was made, so all may share and keep it."""

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
        for one in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(one) and issubclass(one, msgspec.Struct) and one.__module__ == module.name:
                yield one


@pytest.mark.parametrize("package", [topology, limits, faults, diagnosis], ids=lambda package: package.__name__)
def test_values_are_frozen(package):
    found = list(structs_of(package))
    assert [one.__qualname__ for one in found if not one.__struct_config__.frozen] == []
    assert found
