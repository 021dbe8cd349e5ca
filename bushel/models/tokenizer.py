"""A checkpoint's tokenizer: text to ids and back, its chat template, its end tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bushel.core import ModelError, RequestError
from bushel.models.checkpoint import Checkpoint

_PROBE = "7f3a"  # stands for an assistant's reply when the template is asked how it ends a turn


class Tokenizer:
    """Wraps a Hugging Face tokenizer; `render` is that of the processor where one exists."""

    def __init__(self, hf: Any, checkpoint: Checkpoint, render: Callable[..., str] | None = None):
        self.hf = hf
        self._render = render or hf.apply_chat_template
        # Straight to the Rust tokenizer: the wrapper around it costs five times the decoding.
        self._fast = getattr(hf, "backend_tokenizer", None)
        added = getattr(hf, "added_tokens_decoder", {})
        # all_special_ids holds the named ones alone (eos, bos, …).
        self._specials = frozenset(
            [*hf.all_special_ids, *(token for token, it in added.items() if it.special)]
        )
        # Without any vocabulary file transformers may make an empty tokenizer of the class.
        if not self.encode("a", add_special_tokens=False):
            raise ModelError(f"The tokenizer of {checkpoint.path.name} has no vocabulary.")
        self.end_ids = self._find_end_ids(checkpoint)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self.hf.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, ids: Sequence[int]) -> str:
        if self._fast is not None:
            return str(self._fast.decode(ids, skip_special_tokens=True))
        return str(
            self.hf.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    def starts_with_bos(self, text: str) -> bool:
        return bool(self.hf.bos_token) and text.startswith(self.hf.bos_token)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        **options: Any,
    ) -> str:
        """The conversation as the model's own template writes it; its complaint is the user's."""
        options.setdefault("add_generation_prompt", True)
        try:
            text = self._render(list(messages), tools=tools or None, tokenize=False, **options)
        except Exception as error:  # templates are programs: anything may come out of them
            raise RequestError(
                f"The model's chat template refused the messages: {error}", code="template_error"
            ) from error
        return str(text)

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
            text = self.render(turns, add_generation_prompt=False)
        except RequestError:
            return ()
        after = text.rpartition(_PROBE)[2].lstrip()
        ids = self.encode(after, add_special_tokens=False)[:1] if after else []
        return [token for token in ids if token in self._specials]


def _as_ids(value: object) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    return [token for token in ids if isinstance(token, int) and not isinstance(token, bool)]


def load_tokenizer(checkpoint: Checkpoint, *, trust_remote_code: bool) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(checkpoint.path, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers raises whatever the files provoke
        raise ModelError(
            f"The tokenizer of {checkpoint.path.name} cannot be loaded: {error}"
        ) from error
    return Tokenizer(hf, checkpoint)
