"""Chat templates: some of every way that there is, and the real ones where they are at hand.

Those in `corpus/templates` each have the habits of one family.

Real ones are read from `templates` in the folder that BUSHEL_TEST_CORPUS names.
"""

import re
from functools import cache
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from bushel.core.checkpoint import read_checkpoint
from bushel.models import Preparer
from bushel.text.tokenizer import Tokenizer
from tests import corpus
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB, chatml

_READ = {path.stem: path.read_text() for path in corpus.files("templates/*.jinja")}
# One tells the time to the second, and so is never the same twice.
REAL = {name: template for name, template in _READ.items() if "%M:%S" not in template}

_TURN = "{{- '<|im_start|>' + m.role + '\\n' + said + '<|im_end|>\\n' -}}"
_CALLS = "{%- set said = (m.content or '') + (m.tool_calls | tojson if m.tool_calls else '') -%}"
_LIST = "{{- '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' -}}"
_TOOLS = "{%- if tools -%}" + _LIST + "{%- endif -%}"
_OPEN = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"

# Thinking is kept after the last question and stripped before it; the prompt ends inside <think>,
# or with empty thoughts if thinking is off, as in Qwen's.
THINKING = (
    _TOOLS + "{%- set ns = namespace(last=-1) -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}" + _CALLS + "{%- if m.role == 'assistant' -%}"
    "{%- if loop.index0 > ns.last -%}"
    "{%- set said = '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' + said -%}"
    "{%- endif -%}{%- endif -%}" + _TURN + "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}"
    "{%- if enable_thinking is defined and not enable_thinking -%}{{- '\\n</think>\\n\\n' -}}"
    "{%- endif -%}{%- endif -%}"
)
# No control token but one at the very beginning.
BARE = (
    "{{- bos_token -}}{%- for m in messages -%}" + _CALLS + "{{- m.role | upper + ': ' + said -}}"
    "{{- '\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}"
)
# Turns follow one another without a word between them, and the reply has no beginning.
BRACKETS = (
    "{{- bos_token -}}{%- for m in messages -%}" + _CALLS + "{%- if m.role == 'assistant' -%}"
    "{{- ' ' + said + '<|endoftext|>' -}}{%- else -%}"
    "{{- '<|im_start|>' + said + '<|im_end|>' -}}{%- endif -%}{%- endfor -%}"
)
# Tools stand before the last question, so that they move; roles must alternate.
MOVING = (
    "{%- set ns = namespace(last=-1, before='') -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}"
    "{%- if ns.before == 'user' -%}{{- raise_exception('Roles must alternate.') -}}{%- endif -%}"
    "{%- endif -%}{%- set ns.before = m.role -%}{%- endfor -%}"
    "{%- for m in messages -%}"
    + _CALLS
    + "{%- if tools and loop.index0 == ns.last -%}"
    + _LIST
    + "{%- endif -%}"
    + _TURN
    + "{%- endfor -%}"
    + _OPEN
)
CALLING = _TOOLS + "{%- for m in messages -%}" + _CALLS + _TURN + "{%- endfor -%}" + _OPEN
PLAIN = chatml()
OWN = {
    "plain": PLAIN,  # knows no tools
    "calling": CALLING,
    "thinking": THINKING,
    "bare": BARE,
    "brackets": BRACKETS,
    "moving": MOVING,
}
MADE = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parent / "corpus" / "templates").glob("*.jinja"))
}
ALL = {**OWN, **MADE, **REAL}

_CONTROL = re.compile(
    r"<\|[^|<>\s{}']{1,40}\|>|<\uff5c[^\uff5c<>{}']{1,40}\uff5c>|</?[a-z]+(?:_[a-z]+)+>"
    r"|</?s>|\[/?[A-Z_]{2,30}\]"
)


@cache
def templated(name: str) -> Preparer:
    """A text model's host with this template, to whose tokenizer its control tokens are known."""
    template = ALL[name]
    checkpoint = read_checkpoint(str(checkpoint_dir("llama")), trust_remote_code=False)
    hf = PreTrainedTokenizerFast.from_pretrained(checkpoint.path)
    hf.add_special_tokens(
        {"additional_special_tokens": list(dict.fromkeys(_CONTROL.findall(template)))}
    )
    hf.chat_template = template
    return Preparer(checkpoint, Tokenizer(hf, checkpoint), VOCAB)
