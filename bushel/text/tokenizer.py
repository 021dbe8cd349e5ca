"""A checkpoint's tokenizer: text to ids and back, its chat template, its end tokens."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from jinja2 import Environment, TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from bushel.core import ModelError, RequestError, public_message
from bushel.core.checkpoint import Checkpoint
from bushel.text.time_limit import time_limit
from bushel.text.transformers_import import import_transformers

BREAK = "\u200b"  # a space of no width: takes a control string apart without showing
_NEVER = "(?!)"  # matches nothing
# For the conversations that a template is tried with at load, all together. Real ones take 0.1 s.
_TRIAL_SECONDS = 2.0
_PROBE = "7f3a"  # stands for an assistant's reply when the template is asked how it ends a turn

# Names that templates use and that are not for a request to set: what it says elsewhere, and
# what transformers gives them.
_TAKEN = frozenset({"messages", "tools", "conversations", "raise_exception", "strftime_now"})
# Parameters of the rendering that are data of the template and nothing else.
_DATA = frozenset({"documents"})


class Tokenizer:
    """Wraps a Hugging Face tokenizer; `render` is that of the processor where one exists."""

    def __init__(self, hf: Any, checkpoint: Checkpoint, render: Callable[..., str] | None = None):
        self.hf = hf
        self._checkpoint = checkpoint
        self._render = render or hf.apply_chat_template
        # Straight to the Rust tokenizer: the wrapper around it costs five times the decoding.
        self._fast = getattr(hf, "backend_tokenizer", None)
        added = getattr(hf, "added_tokens_decoder", {})
        # all_special_ids holds the named ones alone (eos, bos, …).
        self._specials = frozenset(
            [*hf.all_special_ids, *(token for token, entry in added.items() if entry.special)]
        )
        names = {str(added[token]): token for token in self._specials if token in added}
        # Of one character, a token is a piece of text that someone declared special.
        self.controls = {name: token for name, token in names.items() if len(name) > 1}
        escaped = [re.escape(name) for name in _longest_first(self.controls)]
        # What stands between two of them is tokenized as a text of its own.
        self.split = re.compile("|".join(escaped) or _NEVER)
        # Without any vocabulary file transformers may make an empty tokenizer of the class.
        if not self.encode("a", add_special_tokens=False):
            raise ModelError(f"The tokenizer of {checkpoint.path.name} has no vocabulary.")
        self.end_ids = self._find_end_ids(checkpoint)
        self.options = self._find_options()

    def with_template(self, template: str) -> Tokenizer:
        """The same one with another chat template."""
        try:
            Environment(extensions=_EXTENSIONS).parse(template)
        except TemplateError as error:
            raise ModelError(f"Invalid chat template: {public_message(error)}") from None
        self.hf.chat_template = template
        return Tokenizer(self.hf, self._checkpoint)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self.hf.encode(text, add_special_tokens=add_special_tokens))

    def encode_marked(self, text: str, mark: str, *, add_special_tokens: bool) -> list[int]:
        """As `encode`, but a control string with `mark` inside is plain text, without the mark.

        The tokenizer itself treats what stands between two control tokens as a text of its own.
        Those that have the mark are encoded alone, and what is around them as it always is.
        """
        if not mark or mark not in text:
            return self.encode(text, add_special_tokens=add_special_tokens)
        if self._fast is None:  # nobody can tell it what is text: break the string for good
            return self.encode(text.replace(mark, BREAK), add_special_tokens=add_special_tokens)
        ids = self.encode("", add_special_tokens=True) if add_special_tokens else []
        edges = [0, *(edge for control in self.split.finditer(text) for edge in control.span())]
        done = 0
        for low, high in zip(edges[::2], [*edges[1::2], len(text)], strict=True):
            if text.find(mark, low, high) >= 0:
                ids += self.encode(text[done:low], add_special_tokens=False)
                ids += self._plain(text[low:high].replace(mark, ""))
                done = high
        return ids + self.encode(text[done:], add_special_tokens=False)

    def _plain(self, text: str) -> list[int]:
        """Of a fast tokenizer, without any control token."""
        fast: Any = self._fast
        fast.encode_special_tokens = True
        try:
            return list(fast.encode(text, add_special_tokens=False).ids)
        finally:
            fast.encode_special_tokens = False

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """special: with special tokens."""
        if self._fast is not None:
            return str(self._fast.decode(ids, skip_special_tokens=not special))
        return str(
            self.hf.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
        )

    @cached_property
    def longest(self) -> int:
        """Characters of text that one token may stand for, at most."""
        # A piece of vocabulary may be in another alphabet, but has a character for every byte.
        return max(map(len, self.hf.get_vocab()))

    @property
    def special_texts(self) -> tuple[tuple[int, str], ...]:
        """Each special token, and what it is called in a text that has them."""
        return tuple((id, str(self.hf.convert_ids_to_tokens(id))) for id in sorted(self._specials))

    def as_json(self) -> str | None:
        """For the tokenizers library in another process; None if it is of another kind."""
        return None if self._fast is None else str(self._fast.to_str())

    def starts_with_bos(self, text: str) -> bool:
        return bool(self.hf.bos_token) and text.startswith(self.hf.bos_token)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        **options: Any,
    ) -> str:
        """The conversation as the model's own template writes it; its complaint is the user's.

        Some templates differ between no tools and none of them.
        """
        options.setdefault("add_generation_prompt", True)
        try:
            text = self._apply(list(messages), tools, options)
        except Exception as error:  # templates are programs: anything may come out of them
            raise RequestError(
                f"The model's chat template refused the messages: {public_message(error)}",
                code="template_error",
            ) from error
        return str(text)

    def _apply(
        self, messages: list[Any], tools: Sequence[Any] | None, options: Mapping[str, Any]
    ) -> str:
        """A tokenizer's own `apply_chat_template` leaves out keys that hold None since
        transformers 5.23; templates that ask whether `content is none` then take the wrong turn.
        """
        from transformers import PreTrainedTokenizerBase  # seconds to import: not before a model
        from transformers.utils.chat_template_utils import render_jinja_template

        template = getattr(self._render, "__func__", None)
        if template is not PreTrainedTokenizerBase.apply_chat_template:  # one with ideas of its own
            return self._render(messages, tools=tools, tokenize=False, **options)
        texts, _ = render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=self.hf.get_chat_template(tools=tools),
            **{**self.hf.special_tokens_map, **options},
        )
        return str(texts[0])

    def trial(self) -> AbstractContextManager[None]:
        """For renderings at load: ModelError if the template does not end. A model whose template
        hangs on a short conversation would cost every chat a worker's life."""
        return time_limit(
            _TRIAL_SECONDS, "The model's chat template does not come to an end: repair it."
        )

    @property
    def template(self) -> str:
        """What the chat template says: of several, that for conversations with tools."""
        templates = self._templates
        return str(
            templates.get("tool_use")
            or templates.get("default")
            or next(iter(templates.values()), "")
        )

    @property
    def _templates(self) -> Mapping[str, Any]:
        """By their names."""
        written = getattr(getattr(self._render, "__self__", self.hf), "chat_template", None)
        templates = written if isinstance(written, Mapping) else {"default": written}
        return {name: template for name, template in templates.items() if template}

    def _find_options(self) -> frozenset[str]:
        """Names that the template reads and that a request may give it (B15)."""
        used: set[str] = set()
        for template in self._templates.values():
            try:
                tree = Environment(extensions=_EXTENSIONS).parse(template)
            except TemplateError:  # it will say so when it is used
                continue
            used |= meta.find_undeclared_variables(tree)
        # What is a parameter never reaches the template, and tokens are the tokenizer's to name.
        used -= frozenset(inspect.signature(self._render).parameters) - _DATA
        used -= _TAKEN.union(self.hf.special_tokens_map)
        return frozenset(name for name in used if not name.endswith("_token"))

    def _find_end_ids(self, checkpoint: Checkpoint) -> frozenset[int]:
        """Generation config, model config, tokenizer and template each know some (B30)."""
        ends: set[int] = set()
        for config in (checkpoint.generation, checkpoint.config, checkpoint.text_config):
            ends.update(_as_ids(config.get("eos_token_id")))
        ends.update(_as_ids(self.hf.eos_token_id))
        ends.update(self._turn_end())
        return frozenset(ends)

    def _turn_end(self) -> Iterable[int]:
        """The special token the template writes right after an assistant's reply."""
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _PROBE}]
        try:
            with self.trial():
                text = self.render(turns, add_generation_prompt=False)
        except RequestError:
            return ()
        after = text.rpartition(_PROBE)[2].lstrip()
        ids = self.encode(after, add_special_tokens=False)[:1] if after else []
        return [token for token in ids if token in self._specials]


class _Generation(Extension):
    """`{% generation %}`, by which templates for training mark what the assistant says."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_EXTENSIONS = ("jinja2.ext.loopcontrols", _Generation)


def _longest_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=len, reverse=True)


def _as_ids(value: object) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    return [token for token in ids if isinstance(token, int) and not isinstance(token, bool)]


def load_tokenizer(checkpoint: Checkpoint, *, trust_remote_code: bool) -> Tokenizer:
    transformers = import_transformers()
    try:
        hf = transformers.AutoTokenizer.from_pretrained(
            checkpoint.path, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # transformers raises whatever the files provoke
        raise ModelError(
            f"The tokenizer of {checkpoint.path.name} cannot be loaded: {error}"
        ) from error
    return Tokenizer(hf, checkpoint)
