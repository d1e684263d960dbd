"""How long questions asked of recorded runs take; processor time, printed beside a floor and never asserted.

python benchmarks/lab.py
"""

from __future__ import annotations

import time

from noetic_nb.lab import RegulatorReadings, datasets, first_stop, replay_regulator
from noetic_nb.regulator import Regulator


def shared_readings(configurations: int = 50) -> None:
    """Replay regulators through airline runs: each alone, and many that share one reading of a run."""
    runs = datasets.airline()
    regulators = [Regulator.for_user("ann").with_cost_cap(100 + 17 * at) for at in range(configurations)]
    start = time.process_time()
    for run in runs:
        first_stop(replay_regulator(run, regulators[0]))
    alone = (time.process_time() - start) / len(runs)
    start = time.process_time()
    for run in runs:
        readings = RegulatorReadings(run)
        for regulator in regulators:
            readings.first_stop(regulator)
    shared = (time.process_time() - start) / (len(runs) * configurations)
    print(f"regulator replay of an airline run, alone              {1e3 * alone:7.2f} ms")
    print(f"regulator replay of an airline run, {configurations} on one reading  {1e3 * shared:7.2f} ms (floor 0.6 ms)")


if __name__ == "__main__":
    shared_readings()
