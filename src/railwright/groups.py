"""Grouping of items by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by_key(items: Iterable[Item], key: Callable[[Item], Key]) -> Iterable[tuple[Key, list[Item]]]:
    """Group items by key, in the order in which the keys first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups.items()
