"""An exam of a few questions, a secret seed, and `crucible ari exam …` as an operator calls it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "SECRET"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


@pytest.fixture
def exam_command(crucible: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: object, **more: Any) -> Any:
        return crucible("ari", "exam", *args, **more)

    return run
