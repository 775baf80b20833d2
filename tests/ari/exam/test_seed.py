"""The seed of an exam is secret: long enough, its owner's alone, and never repeated in a message."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from crucible.ari.exam.seed import read_seed
from crucible.errors import BadConfig, BadData

NOISE = hashlib.sha512(b"the same in every worker of the tests").digest()


def written(folder: Path, data: bytes, mode: int = 0o600) -> Path:
    path = folder / "SECRET"
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("data", [NOISE[:16], NOISE, NOISE[:16].hex().encode() + b"\n", b"a long sentence of mine"])
def test_a_seed_of_128_bits_is_taken_as_it_is(tmp_path: Path, data: bytes) -> None:
    assert read_seed(written(tmp_path, data)) == data


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o601])
def test_a_seed_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, os.urandom(32), mode)
    with pytest.raises(BadConfig, match=f"{mode:o}") as caught:
        read_seed(path)
    assert "chmod 600" in caught.value.fix


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (NOISE[:15], "15 bytes"),
        (b"x" * 32, "1 different"),
        (b"abcdefg" * 9, "7 different"),
        (bytes(16), "1 different"),
        (b"12345678" * 4, "repeats 8 bytes"),
        (b"0123456789abcdef", "64 bits"),
        (NOISE[:15].hex().encode(), "120 bits"),
    ],
)
def test_a_seed_that_can_be_guessed_is_refused_and_not_shown(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(BadConfig, match=why) as caught:
        read_seed(written(tmp_path, data))
    assert len(data) < 15 or data.decode(errors="replace") not in caught.value.message


def test_a_missing_seed_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no such file"):
        read_seed(tmp_path / "gone")
