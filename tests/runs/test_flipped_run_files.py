"""A flipped bit in a run file raises an error or changes nothing; a file truncated in its last part only loses that part."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.runs._save import member_ends, packed
from tests.matrix import several

TURNS = 6


async def record(path: Path) -> None:
    model = nn.ScriptedModel([f"Answer {n}: {'word ' * n}" for n in range(TURNS)])
    harness = nn.AgentHarness(nn.AgentConfig(name="d", step=nn.react(model="m")), model=model)
    nn.record(harness, autosave=path)
    for number in range(TURNS):
        await harness.execute(f"Question {number}")


@pytest.mark.matrix
async def test_no_flipped_bit_is_taken(tmp_path: Path) -> None:
    path, damaged = tmp_path / "run.jsonl.gz", tmp_path / "damaged.jsonl.gz"
    await record(path)
    content, whole = path.read_bytes(), list(nn.load_run(path).events)
    ends, _ = member_ends(path)
    seed = random.Random(2)
    # Every bit of the last part's header, and many others.
    places = [*range((ends[-2]) * 8, (ends[-2] + 24) * 8), *seed.sample(range(len(content) * 8), several(60, 300))]
    refused = 0

    for place in places:
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        damaged.write_bytes(flipped)
        try:
            assert list(nn.load_run(damaged).events) == whole, f"byte {place // 8}, bit {place % 8}"
        except NoeticError:
            refused += 1
    assert refused > several(80, 250)


async def test_a_part_that_was_cut_off_anywhere_is_left_out(tmp_path: Path) -> None:
    path, cut = tmp_path / "run.jsonl.gz", tmp_path / "cut.jsonl.gz"
    await record(path)
    content = path.read_bytes()
    ends, _ = member_ends(path)
    turns = len(nn.load_run(path).turns)

    for end in range(ends[-2] + 1, len(content)):
        cut.write_bytes(content[:end])
        assert member_ends(cut) == (ends[:-1], True)
    for end in (ends[-2], ends[-2] + 1, ends[-2] + 20, len(content) - 1):
        cut.write_bytes(content[:end])
        assert len(nn.load_run(cut).turns) == turns - 1


def test_files_without_lengths_are_read_as_before(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.gz"
    members = [gzip.compress(b"one", mtime=0), gzip.compress(b"two" * 40, mtime=0)]
    path.write_bytes(b"".join(members)[:-5])
    assert member_ends(path) == ([len(members[0])], True)
    path.write_bytes(b"".join([packed(b"one"), *members]))
    assert member_ends(path)[1] is False
    with pytest.raises(NoeticError):
        nn.load_run(path)
