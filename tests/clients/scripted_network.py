"""A network that says what a script tells it to; it travels inside the checkpoint it is for.

Its one layer of keys holds the ids of the tokens themselves, so that what it says next is a pure
function of the history, however that was cut, batched, stored or restored:

    history   … <|im_start|> assistant \\n  s0  s1  s2 …
                ^ begin                    ^ begin + header, where the script starts

The script is the last one whose trigger occurs before `begin`. An entry of COPY, and all after
it, repeat the last tool result until its end.
"""

# No `from __future__ import annotations`: dataclasses would look for this module by a name that
# mlx-lm does not give it.
import time
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import BaseModelArgs
from mlx_lm.models.cache import KVCache

COPY = -1
ANY = -1  # matches every token, in a trigger
NEVER = -(1 << 20)  # an index before every history
SURE = 30.0  # what the next token's logit is above all others


@dataclass
class ModelArgs(BaseModelArgs):
    model_type: str
    vocab_size: int
    scripts: int
    length: int  # of the longest script
    trigger: int  # tokens in the longest trigger
    header: int  # tokens from the begin of a turn to its text
    thinking_header: int  # the same where the prompt opens a thought
    begin: int  # ids of the tokens that mean something
    end: int
    think: int
    result: int
    result_end: int
    pause: float = 0.0  # seconds that it waits before each step, like a slower model


class Model(nn.Module):
    """`script` [scripts, 2, length] is said, its second form after an opened thought.

    `trigger` [scripts, tokens] is what has to be in the prompt, padded in front with ANY.
    """

    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.model_type = args.model_type
        self.script = mx.zeros((args.scripts, 2, args.length), mx.int32)
        self.trigger = mx.zeros((args.scripts, args.trigger), mx.int32)

    @property
    def layers(self) -> list[Any]:
        return [None]

    def make_cache(self) -> list[KVCache]:
        return [KVCache()]

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        if self.args.pause and inputs.shape[1] == 1:
            time.sleep(self.args.pause)
        history = self._history(inputs, cache)
        total, asked = history.shape[1], inputs.shape[1]
        where = mx.arange(total)[None]
        begin = mx.cummax(mx.where(history == self.args.begin, where, NEVER), axis=1)
        result = mx.cummax(mx.where(history == self.args.result, where, NEVER), axis=1)
        now, begin, result = (it[:, total - asked :] for it in (where, begin, result))
        said = self._said(history, self._chosen(history, begin), now - begin, begin, result)
        return SURE * (mx.arange(self.args.vocab_size) == said[..., None]).astype(mx.float32)

    def _history(self, inputs: mx.array, cache: list[Any] | None) -> mx.array:
        """Ids [B, T] so far, these included; ANY where a row of a batch is padded."""
        keys = (inputs + 1).astype(mx.float32)[:, None, :, None]
        if cache is not None:
            keys, _ = cache[0].update_and_fetch(keys, keys)
        return keys[:, 0, :, 0].astype(mx.int32) - 1

    def _chosen(self, history: mx.array, begin: mx.array) -> mx.array:
        """Which script, for every token asked about."""
        chosen = mx.zeros(begin.shape, mx.int32)
        padded = mx.pad(history, [(0, 0), (self.args.trigger - 1, 0)], constant_values=NEVER)
        for script in range(1, self.args.scripts):
            matched = mx.ones(history.shape, mx.bool_)
            for at in range(self.args.trigger):
                wanted = self.trigger[script, at]
                matched &= (padded[:, at : at + history.shape[1]] == wanted) | (wanted == ANY)
            seen = mx.cummax(matched.astype(mx.int32), axis=1)
            before = mx.take_along_axis(seen, mx.maximum(begin, 0), axis=1)
            chosen = mx.where((before > 0) & (begin >= 0), script, chosen)
        return chosen

    def _said(
        self, history: mx.array, chosen: mx.array, past: mx.array, begin: mx.array, result: mx.array
    ) -> mx.array:
        """`past` is how far each token stands behind its turn's begin."""
        args, last = self.args, history.shape[1] - 1
        opened = mx.take_along_axis(history, mx.clip(begin + args.header, 0, last), axis=1)
        thinks = ((opened == args.think) & (past >= args.header)).astype(mx.int32)
        at = past + 1 - mx.where(thinks > 0, args.thinking_header, args.header)
        told = self.script[chosen, thinks]  # [B, L, length]
        said = mx.take_along_axis(told, mx.clip(at, 0, args.length - 1)[..., None], axis=-1)
        copied = at - mx.sum(told != COPY, axis=-1)
        source = mx.clip(result + 1 + copied, 0, last)
        repeated = mx.take_along_axis(history, source, axis=1)
        repeated = mx.where(repeated == args.result_end, args.end, repeated)
        return mx.where(said[..., 0] == COPY, repeated, said[..., 0])
