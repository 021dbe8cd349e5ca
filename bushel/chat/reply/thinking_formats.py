"""Where thoughts begin and end, by the format in which a model writes them (B29)."""

from __future__ import annotations

from dataclasses import dataclass

from bushel.core import ReplyFormat


@dataclass(frozen=True)
class ThinkingFormat:
    """A way to write thinking blocks.

    White space around the markers is nobody's: see `Reader`.
    """

    name: str
    opening: str
    ending: str
    # Other ways to write the two, and to go from thoughts to text.
    openings: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    # Markers that say that text comes, and nothing else.
    plain: tuple[str, ...] = ()
    # Its markers mean it wherever they stand: most are special tokens, which a model does not
    # write when it only talks about them. Others count only where nothing else was said.
    anywhere: bool = False
    # Strings by which a template is known to have it; by default its opening.
    signs: tuple[str, ...] = ()
    # For models that come without a template.
    model_types: tuple[str, ...] = ()

    def matches(self, template: str) -> bool:
        return any(sign in template for sign in self.signs or (self.opening,))

    @property
    def begins(self) -> tuple[str, ...]:
        return (self.opening, *self.openings)

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.ending, *self.endings)

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.begins, *self.ends, *self.plain)


def _channels(*names: str) -> tuple[str, ...]:
    return tuple(f"<|channel>{name}" for name in names)


# In the order in which a template is tried: the ones with particular markers come first.
THINKING_FORMATS: dict[str, ThinkingFormat] = {
    format.name: format
    for format in (
        # All of the reply is made of messages: `tool_parsers.harmony` reads it, and this names it.
        ThinkingFormat(
            "harmony",
            "<|channel|>analysis<|message|>",
            "<|end|>",
            plain=("<|start|>", "<|constrain|>", "<|call|>", "<|return|>"),
            anywhere=True,
            signs=("<|channel|>analysis",),
            model_types=("gpt_oss",),
        ),
        ThinkingFormat(
            "gemma",
            "<|channel>thought\n",
            "<channel|>",
            openings=_channels("thought", "analysis"),
            endings=_channels("response", "final", "default"),
            plain=_channels("response", "final", "default", ""),
            anywhere=True,
            signs=("<|channel>",),
        ),
        ThinkingFormat(
            "solar",
            "<|think|>",
            "<|end|>",
            endings=("<|end|><|begin|>assistant<|content|>", "<|end|><|begin|>assistant"),
            plain=("<|begin|>assistant<|content|>", "<|content|>"),
            anywhere=True,
            signs=("<|begin|>assistant<|think|>",),
        ),
        ThinkingFormat(
            "kimi-k3",
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            plain=(
                "<|open|>response<|sep|>",
                "<|close|>response<|sep|>",
                "<|close|>message<|sep|>",
            ),
            anywhere=True,
            signs=("open_tag('think'",),
        ),
        ThinkingFormat("cohere", "<|START_THINKING|>", "<|END_THINKING|>", anywhere=True),
        ThinkingFormat("apertus", "<|inner_prefix|>", "<|inner_suffix|>", anywhere=True),
        ThinkingFormat("minicpm", "<|thought_start|>", "<|thought_end|>", anywhere=True),
        ThinkingFormat("mistral", "[THINK]", "[/THINK]", anywhere=True),
        ThinkingFormat("seed", "<seed:think>", "</seed:think>"),
        ThinkingFormat("minimax", "<mm:think>", "</mm:think>"),
        ThinkingFormat("longcat", "<longcat_think>", "</longcat_think>"),
        ThinkingFormat(
            "hunyuan", "<think:opensource>", "</think:opensource>", signs=("'<think{}>'",)
        ),
        ThinkingFormat("delimited", "<|think:start|>", "<|think:end|>", anywhere=True),
        ThinkingFormat(
            "apriel",
            "Here are my reasoning steps:\n",
            "[BEGIN FINAL RESPONSE]",
            plain=("[END FINAL RESPONSE]",),
            anywhere=True,
            signs=("[BEGIN FINAL RESPONSE]",),
        ),
        ThinkingFormat(
            "granite",
            "<think>",
            "</think>",
            plain=("<response>", "</response>"),
            anywhere=True,
            signs=("<response></response>",),
        ),
        ThinkingFormat(
            "think",
            "<think>",
            "</think>",
            openings=("<think_fast>", "<think_faster>"),
            endings=("</think_fast>", "</think_faster>"),
            signs=("<think>", "</think>"),
            model_types=("deepseek_v32",),
        ),
        ThinkingFormat("thinking", "<thinking>", "</thinking>"),
        ThinkingFormat("thought", "<thought>", "</thought>"),
        ThinkingFormat("reasoning", "<reasoning>", "</reasoning>"),
    )
}


def ends_inside_thoughts(reply_format: ReplyFormat, rendered: str) -> bool:
    """Whether a prompt ends with the beginning of a thinking block."""
    format = THINKING_FORMATS.get(reply_format.thinking)
    text = rendered.rstrip()
    return format is not None and text.endswith(tuple(begin.rstrip() for begin in format.begins))
