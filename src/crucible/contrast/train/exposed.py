"""Draws -> how often each tier-3 pool was meant to be seen and was. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from crucible.contrast.curriculum import Sampler
from crucible.contrast.exposure import Exposure
from crucible.contrast.pooling.pools import POOLS
from crucible.contrast.train.rundir import PoolExposure


def exposed(
    expected: Mapping[str, Exposure], sampler: Sampler, counts: npt.NDArray[np.int64]
) -> dict[str, PoolExposure]:
    """Expected of the whole run, realised so far; of the items that the caps leave in."""
    found = {}
    for name, own in ((name, counts[sampler.used.tier3[name]]) for name in POOLS):
        if not len(own):
            found[name] = PoolExposure(None, None, None, None, 0)
            continue
        never = int(np.count_nonzero(own == 0))
        wanted = expected[name]
        found[name] = PoolExposure(wanted.expected, wanted.status, float(own.mean()), int(own.min()), never)
    return found
