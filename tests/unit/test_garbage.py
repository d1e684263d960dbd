"""The collector rests while many objects are made, and is left as it was found."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest

from noetic_nb.garbage import FEW, nothing_collected

COUNTED = """
import gc
import noetic_nb as nn
gc.collect()
began = []
gc.callbacks.append(lambda phase, info: began.append(phase))
nn.AgentConfig  # loads a hundred modules
made = [[] for _ in range(1_000)]  # enough for a round of the youngest
young = {id(one) for one in gc.get_objects(0) + gc.get_objects(1)}
print(began.count("start"), gc.isenabled(), id(vars(nn.AgentConfig)["model_config"]) in young, gc.get_freeze_count())
"""

AGED = """
import gc
from noetic_nb.garbage import FEW, nothing_collected
with nothing_collected(is_old=True):
    made = [[number] for number in range(2 * FEW)]
old = {id(one) for one in gc.get_objects(2)}
print(gc.get_freeze_count() > 0, all(id(one) in old for one in made))
"""


class Circle:
    itself: Any


def interrupted() -> bool:
    with nothing_collected():
        raise KeyError(gc.isenabled())


@pytest.mark.parametrize("was_on", [True, False])
def test_it_is_left_as_it_was_found_whatever_happens(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(KeyError, match="False"):
            interrupted()
        after = gc.isenabled()
    finally:
        gc.enable()

    assert after is was_on


def test_what_is_loaded_is_not_searched_for_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)

    searches, is_on, is_young, frozen = done.stdout.split()
    assert int(searches) <= 1, "that of the thousand, which is not one through all that was loaded"
    assert (is_on, is_young, frozen) == ("True", "False", "0")


@pytest.mark.parametrize("is_frozen", [False, True], ids=["nothing frozen", "something frozen"])
def test_what_a_program_has_frozen_itself_stays_so(is_frozen: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ("import gc; gc.freeze()" if is_frozen else "") + AGED],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [str(is_frozen), str(not is_frozen)]


def test_little_is_young_without_a_look_at_what_is_frozen_however_much_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(gc, "get_freeze_count")
    usual = gc.get_threshold()
    gc.set_threshold(100 * FEW)
    try:
        before = [[number] for number in range(2 * FEW)]
        with nothing_collected(is_old=True):
            made = [[number] for number in range(100)]
        young = {id(each) for each in gc.get_objects(generation=0)}
    finally:
        gc.set_threshold(*usual)

    assert {id(each) for each in [*before, *made]} <= young


def test_what_is_old_is_collected_all_the_same() -> None:
    with nothing_collected(is_old=True):
        made = [[number] for number in range(2 * FEW)]
        circle = Circle()
        circle.itself = circle
    gone = weakref.ref(circle)
    del circle, made

    gc.collect()

    assert gone() is None
