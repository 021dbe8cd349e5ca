"""`priority` in scripts: of requests that wait, the lowest value is answered first (B82)."""

from bushel import LLM

ONE = {"max_tokens": 2, "ignore_eos": True}


def test_the_lowest_value_is_answered_first() -> None:
    """And every answer is the one that the request gets alone. B82."""
    with LLM("bushel:tiny", max_batch=1) as llm:
        alone = llm.generate("Once", ONE)[0].token_ids
        running = llm.submit("Once", {"max_tokens": 8, "ignore_eos": True})
        llm.step()
        handles = {
            priority: llm.submit({"prompt": "Once", "priority": priority}, ONE)
            for priority in (3, 0, -2)
        }
        order: list[int] = []
        while len(order) < len(handles):
            llm.step()
            order += [each for each, it in handles.items() if it.done and each not in order]
        assert order == [-2, 0, 3]
        assert all(it.output.token_ids == alone for it in handles.values())
        assert running.done


def test_a_priority_that_is_none_is_that_requests_error() -> None:
    with LLM("bushel:tiny") as llm:
        for wrong in ("high", 1.5, True, 1 << 31):
            [output] = llm.generate({"prompt": "Once", "priority": wrong}, ONE)
            assert output.error is not None
            assert "priority" in output.error
        messages = [{"role": "user", "content": "Hi"}]
        [output] = llm.chat(messages, ONE, priority=-1)
        assert output.error is None
