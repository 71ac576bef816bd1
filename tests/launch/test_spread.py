"""Work on many items that is spread over processes."""

import os

import pytest

from railwright.launch.spread import spread

pytestmark = pytest.mark.machine


def where(number):
    if number < 0:
        raise ValueError("below zero")
    return number, os.getpid()


def test_many_items_are_done_by_others_in_their_order():
    done = list(spread(where, range(40)))
    assert [number for number, _ in done] == list(range(40))
    assert (os.getpid() in {process for _, process in done}) == (len(os.sched_getaffinity(0)) < 2)


def test_what_goes_wrong_with_one_is_raised_here():
    with pytest.raises(ValueError, match="below zero"):
        list(spread(where, [*range(30), -1]))


def test_few_items_are_done_here():
    assert {process for _, process in spread(where, range(4))} == {os.getpid()}
