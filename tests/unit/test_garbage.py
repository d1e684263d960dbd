"""The collector rests while many objects are made, and is left as it was found."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from noetic_nb.garbage import nothing_collected

COUNTED = """
import gc
import noetic_nb as nn
gc.collect()
began = []
gc.callbacks.append(lambda phase, info: began.append(phase))
nn.AgentConfig  # loads a hundred modules
print(began.count("start"), gc.isenabled())
"""


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

    searches, is_on = done.stdout.split()
    assert int(searches) <= 3, "one may follow at once, when the collector is on again"
    assert is_on == "True"
