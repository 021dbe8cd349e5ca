"""What is sent to servers: loads as conversations, an agent's session, images."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.field.loads import Arrival, Draw, Load, Scale, closed_loop, make_load
from benchmarks.field.over_http import Ask, Ids
from benchmarks.field.records import Reply
from benchmarks.field.solo import VERDICTS, Solo

Message = dict[str, Any]
TURNS = 20


@dataclass(frozen=True)
class Question:
    """check: the verdict on a reply. arrival: its tokens, where they are known beforehand."""

    ask: Ask
    check: Callable[[Reply], str]
    arrival: Arrival | None = None


@dataclass(frozen=True)
class Case:
    """make: what is asked in a round, so that nothing is asked twice. clients: of a closed loop;
    None where each question has its time. session: one that takes long. alone: only Bushel is
    asked. note: for its lines."""

    name: str
    make: Callable[[int], list[Question]]
    clients: int | None
    ids: Ids
    session: bool = False
    alone: bool = False
    note: str = ""


class Words:
    """A checkpoint's tokenizer, and the solo loop that replies are held to."""

    def __init__(self, hf: Any, solo: Solo):
        self._hf, self._solo = hf, solo

    def text(self, ids: tuple[int, ...]) -> str:
        return str(self._hf.decode(ids, skip_special_tokens=True))

    def prompt(self, messages: list[Message]) -> tuple[int, ...]:
        text = self._hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tuple(self._hf.encode(text, add_special_tokens=False))

    def ids(self, text: str) -> list[int]:
        return list(self._hf.encode(text, add_special_tokens=False))

    def question(self, at: float, messages: list[Message], new: int) -> Question:
        ids = self.prompt(messages)

        def check(reply: Reply) -> str:
            """Some servers leave a reply's first space out, which is no other token."""
            tries = (self.ids(lead + reply.text) for lead in ("", " ")) if reply.text else [[]]
            return min((self._solo.check(ids, one, new) for one in tries), key=VERDICTS.index)

        return Question(Ask(at, messages, new, len(ids)), check, Arrival(at, ids, new))

    def asked(self, load: Load) -> list[Question]:
        return [self.question(one.at, self._messages(one), one.new) for one in load]

    def _messages(self, one: Arrival) -> list[Message]:
        user = {"role": "user", "content": self.text(one.ids[one.system :])}
        if not one.system:
            return [user]
        return [{"role": "system", "content": self.text(one.ids[: one.system])}, user]

    def session(self, draw: Draw) -> list[Question]:
        """An agent's turns: each one has all before it, with the replies of the solo run."""
        system = {"role": "system", "content": self.text(draw.tokens(4096))}
        messages, questions = [system], list[Question]()
        for _ in range(TURNS):
            content = self.text(draw.tokens(draw.mixed(64, 1024)))
            messages = [*messages, {"role": "user", "content": content}]
            one = self.question(0, messages, draw.reply(64))
            questions.append(one)
            assert one.arrival is not None
            reply = self._solo.reply(one.arrival.ids, one.arrival.new)
            messages = [*messages, {"role": "assistant", "content": self.text(tuple(reply))}]
        return questions


def load_case(name: str, words: Words, vocab: int, scale: Scale, span: float) -> Case:
    return Case(
        name,
        lambda at: words.asked(make_load(name, vocab, scale, seed=at, span=span)),
        None,
        words.ids,
    )


def loop_case(clients: int, words: Words, vocab: int, scale: Scale, *, alone: bool) -> Case:
    return Case(
        f"{clients} clients",
        lambda at: words.asked(closed_loop(clients, vocab, scale, seed=at)),
        clients,
        words.ids,
        alone=alone,
    )


def agent_case(words: Words, vocab: int, scale: Scale) -> Case:
    return Case(
        f"agent, {TURNS} turns",
        lambda at: words.session(Draw("agent", vocab, scale, at)),
        1,
        words.ids,
        session=True,
    )


def image_case(folder: Path, clients: int, count: int, new: int) -> Case:
    """An image in every second request, to a checkpoint that mlx-vlm loads; its own loop is the
    solo run."""
    from mlx_vlm import load

    from tests.families.images import MEDIUM, picture
    from tests.families.library_vision_loop import solo_vision

    model, processor = load(str(folder))
    tokenizer = getattr(processor, "tokenizer", processor)

    def question(seed: int) -> Question:
        images = [picture(MEDIUM, seed)] if seed % 2 else []
        words = f"What is this, and what is {seed} times {seed + 1}?"
        parts: list[Message] = [{"type": "text", "text": words}]
        parts = [*({"type": "image"} for _ in images), *parts]
        text = processor.apply_chat_template(
            [{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True
        )
        alone = solo_vision(model, processor, text, images, new)
        ends = set(tokenizer.stopping_criteria.eos_token_ids)
        kept = [token for token in alone.tokens if token not in ends]
        # Servers differ in whether they show special tokens, which a random model says at times.
        expected = [
            tokenizer.decode(kept, skip_special_tokens=hidden).strip() for hidden in (True, False)
        ]
        sent = [*(_image_part(image) for image in images), {"type": "text", "text": words}]

        def check(reply: Reply) -> str:
            if reply.error or not reply.times:
                return "failed"
            return "equal" if reply.text.strip() in expected else "wrong"

        return Question(Ask(0, [{"role": "user", "content": sent}], new), check)

    def make(at: int) -> list[Question]:
        first = (at + 1) * count
        return [question(seed) for seed in range(first, first + count)]

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    note = "no limit: a limit counts no pictures"
    return Case("images, every second", make, clients, ids, note=note)


def _image_part(image: Any) -> Message:
    raw = io.BytesIO()
    image.save(raw, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(raw.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
