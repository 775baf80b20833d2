"""`crucible cache` shows what is stored and removes what it is told to, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crucible.contrast import cache, segments


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
    store = cache.Store("st:some/model", "ab" * 32)
    store.put(segments.keys_of(["one", "two"]), np.ones((2, 4), dtype=np.float32))
    return tmp_path / "cache"


def test_stats_of_an_empty_cache_writes_nothing(crucible: Callable, tmp_path: Path) -> None:
    ran = crucible("cache", "stats", "--json", env={"CRUCIBLE_CACHE_DIR": str(tmp_path / "none")})
    assert ran.code == 0 and ran.json["encoders"] == [] and ran.json["bytes"] == 0
    assert not (tmp_path / "none").exists()


def test_stats_and_prune_agree_on_what_is_there(crucible: Callable, stored: Path) -> None:
    ran = crucible("cache", "stats", "--json")
    (entry,) = ran.json["encoders"]
    assert (entry["id"], entry["texts"], entry["digest"]) == ("st:some/model", 2, "ab" * 32)
    ran = crucible("cache", "stats")
    without_the_path = [line for line in ran.out.splitlines() if "embeddings" not in line]
    assert "st:some/model" in ran.out and max(map(len, without_the_path)) <= 100
    ran = crucible("cache", "prune", "--encoder", "st:some/model", "--dry-run", "--json")
    assert ran.json["removed"] == [entry] and ran.json["dry_run"] is True and cache.stats()
    ran = crucible("cache", "prune", "--all")
    assert ran.code == 0 and "removed 1 encoders" in ran.out and cache.stats() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "nothing says what to remove"), (["--encoder", "nobody"], "nobody"), (["--older-than", "-1"], "range")],
)
def test_prune_without_sense_is_refused_and_removes_nothing(
    crucible: Callable, stored: Path, arguments: list[str], said: str
) -> None:
    ran = crucible("cache", "prune", *arguments)
    assert ran.code == 2 and said in ran.err and len(cache.stats()) == 1
