"""What CUDA and Metal call differently, so that one text of a kernel serves both.

Tests have a third prelude with the same names, for a CPU. A kernel may write to what it is given as
an input (`WRITABLE`): MLX would copy a whole pool to have one token written, whenever anything that
reads the pool is still on its way. MLX does not know of such a write, so every kernel that touches
a pool is given something that the last one before it made (`LayerPages.last`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from bushel.models.device import ON_CUDA

# The shape of what stands for a write where no attention was made. Of the pool's own kind, as
# attention is, and not so small that Metal has it elsewhere: MLX compiles a kernel anew for each
# type of its inputs, which takes CUDA three seconds.
AFTER = (8,)
NAMES = {mx.float32: "float", mx.float16: "half", mx.bfloat16: "bfloat"}

_CUDA = """
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define DEVICE_BARRIER() __syncthreads()
#define THREAD int(threadIdx.x)
#define BLOCK int(blockIdx.x)
#define SHUFFLE_XOR(x, step) __shfl_xor_sync(0xffffffffu, x, step)
#define EXP(x) __expf(x)
#define TANH(x) tanhf(x)
#define OFFSET(x) size_t(x)
#define UNROLL _Pragma("unroll")
#define WRITABLE(array) const_cast<ELEMENT*>(array)
#define LOAD_PIECE(from) (*reinterpret_cast<const Piece*>(from))
#define STORE_PIECE(to, piece) (*reinterpret_cast<Piece*>(to) = (piece))
using half = __half;
using bfloat = __nv_bfloat16;
"""
_METAL = """
#define SHARED threadgroup
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define DEVICE_BARRIER() threadgroup_barrier(mem_flags::mem_device)
#define THREAD int(thread_position_in_threadgroup.x)
#define BLOCK int(threadgroup_position_in_grid.x)
#define SHUFFLE_XOR(x, step) simd_shuffle_xor(x, ushort(step))
#define EXP(x) metal::fast::exp(x)
#define TANH(x) metal::precise::tanh(x)
#define OFFSET(x) size_t(x)
#define UNROLL _Pragma("clang loop unroll(full)")
#define WRITABLE(array) ((device ELEMENT*)(array))
#define LOAD_PIECE(from) (*(const device Piece*)(from))
#define STORE_PIECE(to, piece) (*(device Piece*)(to) = (piece))
using bfloat = bfloat16_t;
"""


def prelude() -> str:
    return _CUDA if ON_CUDA else _METAL


def header(dtype: mx.Dtype, constants: Mapping[str, Any], prelude: str) -> str:
    """What stands before a kernel's body."""
    own = {"ELEMENT": NAMES[dtype], "PIECE": 16 // dtype.size, **constants}
    defined = "".join(f"#define {key} {value}\n" for key, value in own.items())
    return defined + prelude + "struct alignas(16) Piece { ELEMENT at[PIECE]; };\n"


def bare(text: str) -> str:
    """A body without what no compiler reads: MLX copies and hashes all of it at each call."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def made(name: str, header: str, body: str, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """A kernel for this device. MLX may keep what it compiles on disk, by name."""
    digest = hashlib.sha256((header + body).encode()).hexdigest()[:12]
    make: Any = mx.fast.cuda_kernel if ON_CUDA else mx.fast.metal_kernel
    return make(
        name=f"bushel_{name}_{digest}",
        input_names=[*inputs],
        output_names=[*outputs],
        header=header,
        source=body,
    )
