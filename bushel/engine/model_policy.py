"""What of a policy one model allows."""

from __future__ import annotations

from dataclasses import replace

from bushel.engine.plan import Policy
from bushel.engine.prefill_pass import SHORT
from bushel.models import Model
from bushel.models.known_families import cuts_matter

_PIECE = 2048  # tokens that the libraries' own loops run at once

_TEXTS = 256  # that an encoder is given at once: they are sorted by length, and hold no state


def model_policy(model: Model, policy: Policy, *, single: bool) -> tuple[Policy, int]:
    """The policy to serve it with, and the tokens of each piece of a prompt if those matter to it,
    else 0. single: its rows cannot share a batch.
    """
    if model.encodes:
        texts = 1 if single or policy.max_batch == 1 else max(policy.max_batch, _TEXTS)
        return replace(policy, max_batch=texts, pack=policy.prefill_chunk, whole=True), 0
    if single:
        policy = replace(policy, max_batch=1)
    piece = min(policy.prefill_chunk, _PIECE) if cuts_matter(model.network) else 0
    if piece:  # time, memory and others never make a chunk shorter
        policy = replace(policy, least_chunk=piece)
    if model.shares_passes and policy.max_batch > 1:
        policy = replace(policy, pack=SHORT)
    return replace(policy, decode_waits=model.pages is not None), piece
