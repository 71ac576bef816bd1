"""Grouping of items by a key."""

from __future__ import annotations

from railwright.groups import group_by_key


def test_groups_and_their_items_keep_the_order_in_which_they_appear() -> None:
    found = group_by_key(["b2", "a1", "b1", "a2"], lambda text: text[0])
    assert list(found) == [("b", ["b2", "b1"]), ("a", ["a1", "a2"])]
    assert list(group_by_key([], len)) == []
