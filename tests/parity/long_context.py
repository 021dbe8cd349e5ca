"""One very long row of a hybrid beside short ones.

`python -m tests.parity.long_context [tokens]`
"""

import sys
import time
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

from bushel import LLM, SamplingParams
from bushel.engine.footprint import footprint

from ..families.library_loop import solo_text
from ..families.variants import wide_dir
from ..llm.request_builders import ids

REPLY = 8
SHORT = (40, 300)


@dataclass(frozen=True)
class Found:
    difference: float
    equal: bool  # the tokens of every row
    batch: int
    predicted: int
    real: int  # peak bytes


def compare(length: int, chunk: int = 512) -> Found:
    path = wide_dir("qwen3_5_long")
    prompts = [ids(count, seed) for seed, count in enumerate((length, *SHORT))]
    network, _ = load_model(path)
    alone = [solo_text(network, prompt, REPLY) for prompt in prompts]
    del network
    # In whole chunks also where a slow machine would cut them for the sake of the short ones.
    patient = {"token_gap": 600.0, "start_wait": 1200.0}
    with LLM(str(path), prefill_chunk=chunk, **patient) as llm:
        sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
        mx.synchronize()
        before = mx.get_active_memory() - sizes.weights
        mx.reset_peak_memory()
        long = SamplingParams(max_tokens=REPLY, temperature=0, ignore_eos=True, logprobs=1)
        # The short ones stay until the long one has come, in pieces however small, and gone.
        stay = SamplingParams(max_tokens=length // 16 + 32, temperature=0, ignore_eos=True)
        outs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], [long, stay, stay]
        )
        mx.synchronize()
        real = mx.get_peak_memory() - before
        batch = llm.status()["max_decode_batch"]
    equal = all(out.token_ids[:REPLY] == solo.tokens for out, solo in zip(outs, alone, strict=True))
    said = [entry.logprob for entry in outs[0].logprobs or ()]
    chosen = alone[0].logprobs[np.arange(REPLY), alone[0].tokens]
    apart = float(np.abs(np.array(said) - chosen).max())
    return Found(apart, equal, batch, sizes.peak(3, length + REPLY, min(chunk, length)), real)


def main(length: int) -> int:
    start = time.perf_counter()
    found = compare(length)
    print(
        f"{length} tokens beside {SHORT}: batch {found.batch}, tokens "
        f"{'equal' if found.equal else 'DIFFERENT'}, difference {found.difference:.1e}; memory "
        f"predicted {found.predicted / 1e6:.0f} MB, real {found.real / 1e6:.0f} MB "
        f"({found.predicted / found.real - 1:+.1%}); {time.perf_counter() - start:.0f} s"
    )
    return 0 if found.equal and found.difference <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 32768))
