"""The scoring loop for the CPU, compiled by numba: one pass over the vectors of every bundle, all cores, no copies.

The work is bound by memory: each similarity reads two rows that lie anywhere. So six rows are taken at a time, which keeps more
reads in flight, and the next six are prefetched meanwhile. Sums are float64, which costs nothing while memory is the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

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


# Reassociation lets the sums use vector registers; in which order is the compiler's choice, and `_settle` makes ties independent
# of it. NaN and infinity keep their meaning.
@njit(parallel=True, nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def score_all(vectors, anchors, positives, negatives, offsets, danger, rank, ties):  # type: ignore[no-untyped-def]
    dim = vectors.shape[1]
    last_bundle, last_negative = anchors.shape[0] - 1, negatives.shape[0] - 1
    for i in prange(anchors.shape[0]):
        anchor, begin, end = vectors[anchors[i]], offsets[i], offsets[i + 1]
        following = min(i + 1, last_bundle)
        for q in range(0, dim, _LINE):
            _prefetch(vectors, anchors[following], q)
            _prefetch(vectors, positives[following], q)
        target, hardest, closer, equal = 0.0, -np.inf, 0, 0
        # Six rows at a time: the positive, which stands at place begin - 1, then the negatives. Places behind the last negative
        # repeat it, which costs no memory traffic, and are not counted.
        for j in range(begin - 1, end, 6):
            i0 = positives[i] if j < begin else negatives[j]
            i1 = negatives[min(j + 1, end - 1)]
            i2 = negatives[min(j + 2, end - 1)]
            i3 = negatives[min(j + 3, end - 1)]
            i4 = negatives[min(j + 4, end - 1)]
            i5 = negatives[min(j + 5, end - 1)]
            p0, p1 = negatives[min(j + 6, last_negative)], negatives[min(j + 7, last_negative)]
            p2, p3 = negatives[min(j + 8, last_negative)], negatives[min(j + 9, last_negative)]
            p4, p5 = negatives[min(j + 10, last_negative)], negatives[min(j + 11, last_negative)]
            for q in range(0, dim, _LINE):
                _prefetch(vectors, p0, q)
                _prefetch(vectors, p1, q)
                _prefetch(vectors, p2, q)
                _prefetch(vectors, p3, q)
                _prefetch(vectors, p4, q)
                _prefetch(vectors, p5, q)
            r0, r1, r2, r3, r4, r5 = vectors[i0], vectors[i1], vectors[i2], vectors[i3], vectors[i4], vectors[i5]
            s0, s1, s2, s3, s4, s5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for q in range(dim):
                x = np.float64(anchor[q])
                s0 += x * np.float64(r0[q])
                s1 += x * np.float64(r1[q])
                s2 += x * np.float64(r2[q])
                s3 += x * np.float64(r3[q])
                s4 += x * np.float64(r4[q])
                s5 += x * np.float64(r5[q])
            if j < begin:
                target = s0
            for place, own, found in ((0, i0, s0), (1, i1, s1), (2, i2, s2), (3, i3, s3), (4, i4, s4), (5, i5, s5)):
                if begin <= j + place < end:
                    similarity = _settle(vectors, anchors[i], positives[i], own, target, found)
                    hardest = max(hardest, similarity)
                    closer += similarity > target
                    equal += similarity == target
        danger[i], rank[i], ties[i] = hardest - target, 1 + closer, equal
