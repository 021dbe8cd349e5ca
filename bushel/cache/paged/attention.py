"""Attention to keys and values that lie in pages, in two launches for all rows of a step.

    partition   one block per row, head and 256 tokens of the row: scores, weights, their sum
    merge       one block per row and query head: the partitions of the row, in order

The partitions of a row follow from its own length, so that its result is the same, to the bit,
alone and in any batch, order and layout of pages. `attention.kernel` is one text for CUDA, Metal
and, in tests, a CPU: a prelude says what they call differently.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from bushel.models.device import ON_CUDA

PAGE = 16  # tokens
PARTITION = 256  # tokens; with another number, other bits
MOST_QUERIES = 8  # in a row, for one step: a draft and the token before it
_THREADS = 128
_LANES = 8  # threads for one key
_TILE = 8  # queries that are looked at together

_SOURCE = Path(__file__).with_name("attention.kernel")
_NAMES = {mx.float32: "float", mx.float16: "half", mx.bfloat16: "bfloat"}

# What the text uses, beside constants: DEVICE and CPU preludes have the same names.
_CUDA = """
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define THREAD int(threadIdx.x)
#define BLOCK int(blockIdx.x)
#define SHUFFLE_XOR(x, step) __shfl_xor_sync(0xffffffffu, x, step)
#define EXP(x) __expf(x)
#define TANH(x) tanhf(x)
#define OFFSET(x) size_t(x)
#define UNROLL _Pragma("unroll")
#define LOAD_PIECE(from) (*reinterpret_cast<const Piece*>(from))
using half = __half;
using bfloat = __nv_bfloat16;
"""
_METAL = """
#define SHARED threadgroup
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define THREAD int(thread_position_in_threadgroup.x)
#define BLOCK int(threadgroup_position_in_grid.x)
#define SHUFFLE_XOR(x, step) simd_shuffle_xor(x, ushort(step))
#define EXP(x) metal::fast::exp(x)
#define TANH(x) metal::precise::tanh(x)
#define OFFSET(x) size_t(x)
#define UNROLL _Pragma("clang loop unroll(full)")
#define LOAD_PIECE(from) (*(const device Piece*)(from))
using bfloat = bfloat16_t;
"""


class AttentionShape(NamedTuple):
    """All that a kernel is compiled for."""

    dtype: mx.Dtype
    query_heads: int
    heads: int
    key_dim: int
    value_dim: int
    width: int  # queries of a row
    scale: float
    window: int = 0  # tokens that a query sees, itself among them; 0: all
    softcap: float = 0.0
    sinks: bool = False

    @property
    def why_not(self) -> str | None:
        """Why there is no kernel for it, if there is none."""
        if self.dtype not in _NAMES:
            return f"keys of {self.dtype}"
        if self.query_heads % self.heads:
            return f"{self.query_heads} query heads for {self.heads} of keys"
        piece = 16 // self.dtype.size
        for dim in (self.key_dim, self.value_dim):
            if dim % piece or not 8 <= dim <= 256:
                return f"heads of {dim} numbers"
        return None if self.width <= MOST_QUERIES else f"{self.width} queries in a row"


def source(shape: AttentionShape, final: bool, prelude: str) -> tuple[str, str, str]:
    """What stands before both bodies, and the bodies of partition and merge."""
    piece = 16 // shape.dtype.size
    queries = shape.query_heads // shape.heads * shape.width
    constants = {
        "PAGE": PAGE,
        "PARTITION": PARTITION,
        "THREADS": _THREADS,
        "LANES": _LANES,
        "PIECE": piece,
        "TILE": min(queries, _TILE),
        "GROUPS": min(_THREADS // (shape.value_dim // piece), 16),
        "QUERY_HEADS": shape.query_heads,
        "HEADS": shape.heads,
        "KEY_DIM": shape.key_dim,
        "VALUE_DIM": shape.value_dim,
        "WIDTH": shape.width,
        "QUERIES": queries,
        "SCALE": f"{shape.scale!r}f",
        "WINDOW": shape.window,
        "SOFTCAP": int(shape.softcap > 0),
        "CAP": f"{float(shape.softcap or 1)!r}f",
        "SINKS": int(shape.sinks),
        "FINAL": int(final),
        "ELEMENT": _NAMES[shape.dtype],
        "NOTHING": "-3.0e38f",
    }
    defined = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    piece_of = "struct alignas(16) Piece { ELEMENT at[PIECE]; };\n"
    _, partition, merge = _SOURCE.read_text().split("// ---- ")
    bodies = [body.split("\nconst int parts", 1)[1] for body in (partition, merge)]
    return defined + prelude + piece_of, *("const int parts" + body for body in bodies)  # type: ignore[return-value]


class _Kernels(NamedTuple):
    partition: Any
    merge: Any


@cache
def _kernels(shape: AttentionShape, final: bool) -> _Kernels:
    header, partition, merge = source(shape, final, _CUDA if ON_CUDA else _METAL)
    # MLX may keep what it compiles on disk, by name.
    digest = hashlib.sha256((header + partition + merge).encode()).hexdigest()[:12]
    make: Any = mx.fast.cuda_kernel if ON_CUDA else mx.fast.metal_kernel
    sinks = ["sinks"] * shape.sinks
    return _Kernels(
        make(
            name=f"bushel_attend_{digest}",
            input_names=["queries", "keys", "values", "table", "lengths"],
            output_names=["attended"] if final else ["accumulated", "measures"],
            header=header,
            source=partition,
        ),
        make(
            name=f"bushel_merge_{digest}",
            input_names=["accumulated", "measures", "table", "lengths", *sinks],
            output_names=["attended"],
            header=header,
            source=merge,
        ),
    )


def attend(
    shape: AttentionShape,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    table: mx.array,
    lengths: mx.array,
    sinks: mx.array | None = None,
) -> mx.array:
    """[B, query heads, width, value dim]; see `attention.kernel` for what it is given."""
    rows, parts = table.shape[0], table.shape[1] * PAGE // PARTITION
    final = parts == 1 and not shape.sinks
    kernels = _kernels(shape, final)
    result = (rows, shape.query_heads, shape.width, shape.value_dim)
    blocks = rows * shape.heads * parts
    measured = [(*result[:3], parts, shape.value_dim), (*result[:3], parts, 2)]
    made: list[mx.array] = kernels.partition(
        inputs=[queries, keys, values, table, lengths],
        grid=(blocks * _THREADS, 1, 1),
        threadgroup=(_THREADS, 1, 1),
        output_shapes=[result] if final else measured,
        output_dtypes=[shape.dtype] if final else [mx.float32, mx.float32],
    )
    if not final:
        made = kernels.merge(
            inputs=[*made, table, lengths, *([] if sinks is None else [sinks])],
            grid=(rows * shape.query_heads * shape.width * _THREADS, 1, 1),
            threadgroup=(_THREADS, 1, 1),
            output_shapes=[result],
            output_dtypes=[shape.dtype],
        )
    return made[0]
