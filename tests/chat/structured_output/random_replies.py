"""Tokenizers with any tokens, and replies that a grammar lets through, chosen at random."""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import bushel
from bushel.core import ReplyFormat, SamplingParams
from bushel.core.checkpoint import read_checkpoint
from bushel.core.params import resolve
from bushel.models import Preparer
from bushel.text.detokenizer import OutputProcessor
from bushel.text.grammar_compiler import compiled
from bushel.text.tokenizer import load_tokenizer

TINY = Path(str(bushel.__file__)).parent / "tiny"
_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json")
_MOST = 4000  # steps of one random reply


def host(
    folder: Path, special: Sequence[str] = (), template: str = "{{ messages[0].content }}"
) -> Preparer:
    """The tiny model's tokenizer, with more special tokens and another template."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copy(TINY / name, folder / name)
    (folder / "chat_template.jinja").write_text(template)
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    size = len(header).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(size + header + bytes(4))
    said = json.loads((folder / "tokenizer.json").read_text())
    first = json.loads((folder / "config.json").read_text())["text_config"]["vocab_size"]
    known = {token["content"] for token in said["added_tokens"]}
    extra = [text for text in special if text not in known]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    said["added_tokens"] += [
        {"id": first + at, "content": text, "special": True, **plain}
        for at, text in enumerate(extra)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(said))
    checkpoint = read_checkpoint(str(folder), trust_remote_code=False)
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=False)
    return Preparer(checkpoint, tokenizer, first + len(extra))


def takes(host: Preparer, grammar: str, text: str) -> bool:
    """Whether a reply of this text is complete."""
    matcher = compiled(host.profile.grammar_tokens, grammar)
    ids = host.tokenizer.encode(text, add_special_tokens=False)
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def replies(
    host: Preparer,
    grammar: str,
    reply_format: ReplyFormat,
    count: int,
    hints: Sequence[str],
    seed: int = 0,
    end: float = 0.3,
) -> list[str]:
    """Texts of random replies that the grammar allows, to their end.

    hints: texts that are tried often, so that free text comes to its end. end: how often a reply
    ends where it may.
    """
    matcher = compiled(host.profile.grammar_tokens, grammar)
    rng = random.Random(seed)
    known = [host.tokenizer.encode(hint, add_special_tokens=False) for hint in hints]
    ends = sorted(host.tokenizer.end_ids)
    found = []
    for _ in range(count):
        follower, ids = matcher.deep_copy(), list[int]()
        for step in range(_MOST):
            bits = np.frombuffer(follower.compute_bitmask(), np.uint8)
            allowed = np.nonzero(np.unpackbits(bits, bitorder="little"))[0].tolist()
            assert not follower.is_error(), follower.get_error()
            if follower.is_accepting() and (rng.random() < end or set(allowed) <= set(ends)):
                break
            rng.shuffle(known)
            tried = known if step > 20 or rng.random() < 0.3 else []
            take = next((it for it in tried if follower.validate_tokens(it) == len(it)), None)
            if take is None or rng.random() < 0.2:
                take = [rng.choice([it for it in allowed if it not in ends] or allowed)]
            assert follower.consume_tokens(take), follower.get_error()
            ids += take
        else:
            raise AssertionError(f"no end: {host.tokenizer.decode(ids)[-300:]!r}")
        found.append(_text(host, ids, reply_format))
    return found


def _text(host: Preparer, ids: Sequence[int], reply_format: ReplyFormat) -> str:
    ends = host.tokenizer.end_ids
    decoding = resolve(SamplingParams(), host.defaults, vocab=host.vocab, end_ids=ends)
    reply = OutputProcessor(host.tokenizer.decode, replace(decoding, markers=reply_format.markers))
    for token in ids:
        reply.add(token)
    reply.finish()
    return reply.take()
