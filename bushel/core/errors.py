"""What can go wrong, named once; every message says what happened, why, and what to do."""

import re
from collections.abc import Mapping

_LONGEST = 300  # characters of someone else's message
_ADDRESS = re.compile(r"(?: at)? 0x[0-9a-fA-F]{4,}")
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+")


def public_message(error: Exception) -> str:
    """What a library said, in one line that may be shown to anyone: no addresses, no folders."""
    words = " ".join(str(error).split()) or type(error).__name__
    words = _FOLDERS.sub("", _ADDRESS.sub("", words))
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


class BushelError(Exception):
    """Base of all errors Bushel raises on purpose.

    >>> LLM("bushel:tiny", max_batch=0)
    Traceback (most recent call last):
    bushel.core.errors.BushelError: max_batch must be one or more, not 0.
    """


class ModelError(BushelError):
    """A checkpoint cannot be loaded.

    >>> LLM("bushel:large")
    Traceback (most recent call last):
    bushel.core.errors.ModelError: ...
    """


class BackendError(BushelError, ImportError):
    """MLX cannot be imported; the message says what to install.

    >>> issubclass(BackendError, ImportError)
    True
    """


class RequestError(BushelError):
    """A request cannot be served as it was sent; only that request fails.

    In a batch its message is that request's `.error`; a call that is wrong as a whole raises it.
    `code` is stable and machine-readable; `param` names the offending field, if one does;
    `details` has the numbers that the message tells, for those who reword it.

    >>> llm = LLM("bushel:tiny")
    >>> good, bad = llm.generate(["Hello", {"promt": "Hello"}])
    >>> bad.error
    "'promt' is not a key of a request; did you mean 'prompt'?"
    >>> llm.generate("Hello", {"temprature": 0})
    Traceback (most recent call last):
    bushel.core.errors.RequestError: params: 'temprature' is not a sampling parameter; ...
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid_request",
        param: str | None = None,
        details: Mapping[str, int] | None = None,
    ):
        super().__init__(message)
        self.code = code
        self.param = param
        self.details = dict(details or {})


class FieldError(RequestError, ValueError):
    """A field breaks a rule. where: its place, such as "tool_choice.function"; it may be below that
    of a field which whoever catches this knows.
    """

    def __init__(self, where: str, rule: str):
        end = "" if rule.endswith("?") else "."
        super().__init__(f"{where} {rule}{end}", param=where.split(".")[0] or None)
        self.where = where
        self.rule = rule


class ContextLengthError(RequestError):
    """`at_least`: nobody has counted further."""

    def __init__(
        self, prompt_tokens: int, limit: int, param: str = "messages", *, at_least: bool = False
    ):
        count = f"at least {prompt_tokens}" if at_least else prompt_tokens
        super().__init__(
            f"This model's maximum context length is {limit} tokens, but the prompt has "
            f"{count} tokens. Shorten the prompt.",
            code="context_length_exceeded",
            param=param,
            details={"prompt_tokens": prompt_tokens, "context": limit},
        )


class DeviceFault(BushelError):
    """The device failed while it computed: nothing it has not finished before can be trusted."""


class ThreadError(BushelError):
    """MLX state was touched from a thread that does not own it.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> llm = LLM("bushel:tiny")
    >>> ThreadPoolExecutor().submit(llm.generate, "Hello").result()
    Traceback (most recent call last):
    bushel.core.errors.ThreadError: An LLM belongs to the thread that made it, ...
    """


class IntegrityError(BushelError):
    """A stateful structure contradicts itself: always a bug in Bushel."""
