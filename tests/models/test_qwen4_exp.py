"""Rows of Qwen 4 that share a batch: each attends to the blocks of tokens that it chose. B1."""

import mlx.core as mx
import pytest

from bushel.engine.batching_check import batching_fault
from bushel.models import Model, load
from bushel.models.load import open_host
from bushel.models.row_positions import qwen4_exp

from ..families import checkpoint_dir

# Its library runs a token of each row in two ways: with sums that do not depend on the company, or,
# where it cannot make the head's so, like a prompt.
WAYS = pytest.mark.parametrize("like_a_prompt", [False, True])


def loaded(like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch) -> Model:
    model = load(str(checkpoint_dir("qwen4_exp")))
    if like_a_prompt:
        language = type(model.network.language_model)
        monkeypatch.setattr(language, "_supports_batch_invariant_decode", lambda _: False)
    return model


@WAYS
def test_rows_short_and_long_get_what_they_would_alone(
    like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 5, 24 and 75 tokens, where attention leaves some out from 20 on."""
    assert batching_fault(loaded(like_a_prompt, monkeypatch)) is None


@WAYS
def test_control_with_the_librarys_own_mask_rows_look_at_everything(
    like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qwen4_exp, "install", lambda network: None)
    fault = batching_fault(loaded(like_a_prompt, monkeypatch))
    assert fault is not None
    assert "away from the same rows alone" in fault


def test_whoever_prepares_requests_computes_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker opens the checkpoint for its shapes; its library would begin to run the layers."""
    started: list[object] = []
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: started.append(arrays))
    assert open_host(str(checkpoint_dir("qwen4_exp"))).sees
    assert not started


def test_hidden_states_of_one_token_can_be_had() -> None:
    """A text of one token has an embedding, and so has the last piece of a long one."""
    model = load(str(checkpoint_dir("qwen4_exp")))
    token = mx.array([[77]])
    logits, hidden = model.forward_with_hidden(token, [0], model.make_state())
    assert hidden.shape == (1, 1, model.network.config.text_config.hidden_size)
    assert mx.allclose(logits, model.forward(token, [0], model.make_state()), atol=1e-4)
