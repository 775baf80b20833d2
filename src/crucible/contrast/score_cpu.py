"""The scoring loop for the CPU, compiled by numba: one pass over the vectors of every bundle, all cores, no copies.

The work is bound by memory: each similarity reads two rows that lie anywhere. So four negatives are taken at a time, which
keeps more reads in flight, and the rows needed a few steps later are prefetched. Sums are float64, which costs nothing while
memory is the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

_AHEAD = 8
"""How many negatives ahead of the current one a row is prefetched; 6 to 10 measured alike."""
_LINE = 16
"""float32 values in one cache line."""
_NEAR = 1e-9
"""Far above the rounding of a float64 sum, far below any difference that means something."""


@intrinsic
def _prefetch(typing_context: Any, vectors: Any, row: Any, column: Any) -> Any:
    """Asks for the cache line at vectors[row, column]; has no effect but time."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        word, small = ir.IntType(64), ir.IntType(32)
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        row_bytes = cgutils.unpack_tuple(builder, array.strides)[0]
        offset = builder.add(builder.mul(args[1], row_bytes), builder.mul(args[2], ir.Constant(word, 4)))
        address = builder.gep(start, [offset])
        kind = ir.FunctionType(ir.VoidType(), [address.type, small, small, small])
        name = "llvm.prefetch.p0" if str(address.type) == "ptr" else "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        read, keep, data = (ir.Constant(small, value) for value in (0, 3, 1))
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(vectors, types.intp, types.intp), generate


@njit(nogil=True, cache=True, error_model="numpy")
def _settle(vectors, anchor, positive, negative, target, similarity):  # type: ignore[no-untyped-def]
    """Decides a near tie: both sums once more, in one fixed order, so that equal vectors are equal and nothing else is."""
    if abs(similarity - target) > _NEAR:
        return similarity
    with_positive, with_negative = 0.0, 0.0
    for q in range(vectors.shape[1]):
        x = np.float64(vectors[anchor, q])
        with_positive += x * np.float64(vectors[positive, q])
        with_negative += x * np.float64(vectors[negative, q])
    return target + (with_negative - with_positive)


# Reassociation lets the sums use vector registers. The loop over four negatives and the loop over one then add in different
# orders, which only `_settle` needs to care about. NaN and infinity keep their meaning.
@njit(parallel=True, nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def score_all(vectors, anchors, positives, negatives, offsets, danger, rank, ties):  # type: ignore[no-untyped-def]
    dim = vectors.shape[1]
    last_bundle, last_negative = anchors.shape[0] - 1, negatives.shape[0] - 1
    for i in prange(anchors.shape[0]):
        anchor, positive = vectors[anchors[i]], vectors[positives[i]]
        following = min(i + 1, last_bundle)
        for q in range(0, dim, _LINE):
            _prefetch(vectors, anchors[following], q)
            _prefetch(vectors, positives[following], q)
        target = 0.0
        for q in range(dim):
            target += np.float64(anchor[q]) * np.float64(positive[q])
        hardest, closer, equal = -np.inf, 0, 0
        j, end = offsets[i], offsets[i + 1]
        while j + 4 <= end:
            ia, ib, ic, id_ = negatives[j], negatives[j + 1], negatives[j + 2], negatives[j + 3]
            a, b, c, d = vectors[ia], vectors[ib], vectors[ic], vectors[id_]
            for ahead in range(_AHEAD, _AHEAD + 4):
                row = negatives[min(j + ahead, last_negative)]
                for q in range(0, dim, _LINE):
                    _prefetch(vectors, row, q)
            sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
            for q in range(dim):
                x = np.float64(anchor[q])
                sa += x * np.float64(a[q])
                sb += x * np.float64(b[q])
                sc += x * np.float64(c[q])
                sd += x * np.float64(d[q])
            sa = _settle(vectors, anchors[i], positives[i], ia, target, sa)
            sb = _settle(vectors, anchors[i], positives[i], ib, target, sb)
            sc = _settle(vectors, anchors[i], positives[i], ic, target, sc)
            sd = _settle(vectors, anchors[i], positives[i], id_, target, sd)
            hardest = max(hardest, sa, sb, sc, sd)
            closer += (sa > target) + (sb > target) + (sc > target) + (sd > target)
            equal += (sa == target) + (sb == target) + (sc == target) + (sd == target)
            j += 4
        while j < end:
            own = negatives[j]
            row = negatives[min(j + _AHEAD, last_negative)]
            for q in range(0, dim, _LINE):
                _prefetch(vectors, row, q)
            a = vectors[own]
            similarity = 0.0
            for q in range(dim):
                similarity += np.float64(anchor[q]) * np.float64(a[q])
            similarity = _settle(vectors, anchors[i], positives[i], own, target, similarity)
            hardest = max(hardest, similarity)
            closer += similarity > target
            equal += similarity == target
            j += 1
        danger[i], rank[i], ties[i] = hardest - target, 1 + closer, equal
