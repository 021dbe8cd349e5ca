"""mllama: pictures beside the text, looked at by layers of cross-attention, each row at its own."""

import numpy as np
import pytest

from bushel import LLM, SamplingParams
from bushel.core import Choice
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.checkpoint import CORPUS, VOCAB
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.library_vision_loop import Solo, solo_vision

BOUND, TOKENS = 1e-4, 12
SAID = (
    ("What is in it?", [picture(MEDIUM, 1)]),
    (CORPUS[:160], []),
    ("Which one is older?", [picture(SMALL, 2), picture(LARGE, 3)]),
    ("And this?", [picture(LARGE, 4)]),
)


def request(text: str, images: list) -> dict:
    content = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    return {"messages": [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]}


def rendered(text: str, images: list) -> str:
    places = "<|image|>" * len(images)
    return f"<|im_start|>user\n{places}{text}<|im_end|>\n<|im_start|>assistant\n"


def difference(choice: Choice, solo: Solo) -> float:
    assert choice.token_ids == solo.tokens
    found = np.empty((TOKENS, VOCAB))
    for at, entry in enumerate(choice.logprobs or []):
        ids, values = zip(*entry.top, strict=True)
        found[at, list(ids)] = values
    return float(np.abs(found - solo.logprobs).max())


@pytest.mark.parametrize("chunk", often([512, 8], 8))
def test_requests_at_once_are_answered_as_they_are_alone(chunk: int) -> None:
    """For prompts cut as the library cuts them: its text depends on that. B1, B7."""
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=VOCAB, n=2)
    with LLM(str(checkpoint_dir("mllama")), prefill_chunk=chunk) as llm:
        outputs = llm.generate([request(*said) for said in SAID], params)
        assert llm.status()["max_decode_batch"] > len(SAID)
        assert llm._engine is not None
        model = llm._engine.model
        for (text, images), output in zip(SAID, outputs, strict=True):
            said = model.network, model.host.processor, rendered(text, images), images  # type: ignore[attr-defined]
            solo = solo_vision(*said, TOKENS, prefill_step_size=chunk)
            assert len(output.choices) == 2
            for choice in output.choices:
                assert difference(choice, solo) < BOUND
