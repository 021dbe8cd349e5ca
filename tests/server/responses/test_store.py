"""What is kept of responses, for how long, and for whom."""

from __future__ import annotations

import httpx
import pytest

from bushel.core.delta import TextDelta
from bushel.server.responses.store import Bounds, Kept, Store, encoded
from tests.depth import often
from tests.server.responses.scripted_replies import Talk, event, nameless
from tests.server.scripted_service import Service, options


def kept(name: str, *texts: str, owner: str = "me", before: Kept | None = None) -> Kept:
    items = [{"id": f"msg_{text}", "type": "message", "content": text} for text in texts]
    earlier = before.conversation if before else ()
    return Kept(name, owner, "", b"{}", earlier, encoded(items), ())


def test_the_oldest_go_first() -> None:
    store = Store(Bounds(entries=2))
    for name in "ab":
        store.keep(kept(name, name))
    assert store.get("me", "a")  # asked for, so b is the oldest now
    store.keep(kept("c", "c"))
    assert [store.get("me", name) is None for name in "abc"] == [False, True, False]
    assert store.item("me", "", "msg_b") is None
    assert store.item("me", "", "msg_a") == {"id": "msg_a", "type": "message", "content": "a"}
    store.check_integrity()


def test_bytes_are_bounded_and_a_conversation_counts_in_full() -> None:
    one = kept("a", "x" * 1000)
    store = Store(Bounds(bytes=3 * one.size))
    last: Kept | None = None
    for turn in range(20):
        last = kept(f"r{turn}", "x" * 1000, before=last)
        store.keep(last)
        store.check_integrity()
    assert last is not None
    assert last.size > 3 * one.size
    assert len(store) == 0  # it alone is too large
    store.keep(one)
    assert len(store) == 1


def test_what_nobody_asks_for_is_forgotten() -> None:
    now = 0.0
    store = Store(Bounds(seconds=10), clock=lambda: now)
    store.keep(kept("a", "a"))
    now = 6.0
    assert store.get("me", "a")
    now = 15.0
    assert store.get("me", "a")
    now = 25.1
    assert store.get("me", "a") is None
    assert store.bytes == 0
    store.check_integrity()


def test_owners_do_not_see_each_other() -> None:
    store = Store()
    store.keep(kept("a", "a"))
    store.keep(kept("a", "b", owner="you"))
    assert store.item("me", "", "msg_b") is None
    assert store.item("me", "other salt", "msg_a") is None
    assert not store.drop("they", "a")
    assert store.drop("me", "a")
    assert store.get("you", "a")
    store.check_integrity()


def test_a_flood_of_one_owner_drops_its_own() -> None:
    """By bytes and by number; what an equal share holds is safe from everyone else. B68."""
    size = kept("a", "x").size
    for bounds in (Bounds(entries=8), Bounds(bytes=8 * size)):
        store = Store(bounds)
        for name in "abc":
            store.keep(kept(name, "x"))
        for turn in range(10, 60):
            store.keep(kept(f"{turn}", "x", owner="you"))
            store.check_integrity()
        assert all(store.get("me", name) for name in "abc")
        assert [store.get("you", f"{turn}") is None for turn in (54, 55, 59)] == [
            True,
            False,
            False,
        ]
        for turn in range(10, 20):  # control: more than its share is not safe
            store.keep(kept(f"{turn}", "x"))
        assert not store.get("me", "a")
        assert store.get("you", "59")
        store.check_integrity()


# -- over HTTP ------------------------------------------------------------------------------------


def error(reply: httpx.Response) -> tuple[int, str, str | None]:
    told = reply.json()["error"]
    return reply.status_code, told["code"], told["param"]


@pytest.mark.parametrize("stream", often([False, True], True))
def test_a_response_goes_on_from_another(stream: bool) -> None:
    talk = Talk()
    first = talk.respond(instructions="Be brief.", stream=stream)
    name = talk.service.tickets[-1].id
    assert first.status_code == 200
    again = talk.ask("GET", f"/resp_{name}").json()
    found = [it for it in again["output"] if it["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": found[0]["call_id"], "output": "1"}
    second = talk.respond([output], previous_response_id=f"resp_{name}").json()
    assert talk.turns() == [("user", "Hello"), ("assistant", "Hi."), ("tool", "1")]
    assert second["previous_response_id"] == f"resp_{name}"
    talk.respond("And?", previous_response_id=second["id"])
    roles = [role for role, _ in talk.turns()]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_a_kept_response_is_the_one_that_was_given() -> None:
    talk = Talk()
    first = talk.respond()
    name = first.json()["id"]
    assert talk.ask("GET", f"/{name}").content == first.content
    assert talk.ask("DELETE", f"/{name}").json() == {
        "id": name,
        "object": "response",
        "deleted": True,
    }
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        gone = error(talk.ask(method, f"/{name}{path}"))
        assert gone == (404, "response_not_found", "response_id")


def test_a_reference_is_resolved_from_what_is_kept() -> None:
    talk = Talk()
    output = talk.respond().json()["output"]
    said = [{"type": "item_reference", "id": it["id"]} for it in output]
    talk.respond([{"role": "user", "content": "a"}, *said, {"role": "user", "content": "b"}])
    assert talk.turns() == [("user", "a"), ("assistant", "Hi."), ("user", "b")]
    assert error(talk.respond(said, key="yours"))[:2] == (404, "item_not_found")


def test_what_must_not_be_kept_is_not() -> None:
    talk = Talk()
    first = talk.respond(store=False).json()
    assert first["store"] is False
    assert talk.ask("GET", f"/{first['id']}").status_code == 404
    gone = talk.respond(previous_response_id=first["id"])
    assert error(gone) == (400, "previous_response_not_found", "previous_response_id")
    assert "restarts" in gone.json()["error"]["message"]
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert talk.respond([reference]).status_code == 404


def test_keys_and_salts_do_not_share_responses() -> None:
    talk = Talk()
    name = talk.respond(cache_salt="a").json()["id"]
    for more in ({"key": "yours", "cache_salt": "a"}, {}, {"cache_salt": "b"}):
        found = error(talk.respond(previous_response_id=name, **more))
        assert found[1] == "previous_response_not_found"
    assert talk.respond(previous_response_id=name, cache_salt="a").status_code == 200
    assert talk.ask("GET", f"/{name}", "yours").status_code == 404
    assert talk.ask("DELETE", f"/{name}", "yours").status_code == 404
    assert talk.ask("GET", f"/{name}").status_code == 200


def test_an_operator_sees_and_drops_the_responses_of_others() -> None:
    """Another key gets a 404 for both, the operator's key does not. B68."""
    talk = Talk(Service(options=options(api_keys=("mine", "yours"), operator_keys=("root",))))
    name = talk.respond(key="mine").json()["id"]
    assert talk.ask("GET", f"/{name}", "yours").status_code == 404
    assert talk.ask("DELETE", f"/{name}", "yours").status_code == 404
    assert talk.ask("GET", f"/{name}", "root").json()["id"] == name
    assert talk.ask("DELETE", f"/{name}", "root").status_code == 200
    assert talk.ask("GET", f"/{name}", "mine").status_code == 404


def test_a_response_that_failed_is_not_kept() -> None:
    service = Service(lambda job: [[event(TextDelta("H"))], RuntimeError("no")])
    talk = Talk(service)
    reply = talk.respond(stream=True)
    assert "response.failed" in reply.text
    assert talk.ask("GET", f"/resp_{service.tickets[0].id}").status_code == 404


def test_input_items_are_listed_in_pages() -> None:
    talk = Talk()
    first = talk.respond([{"role": "user", "content": it} for it in "abc"]).json()
    second = talk.respond("d", previous_response_id=first["id"]).json()
    path = f"/{second['id']}/input_items"
    newest = talk.ask("GET", path, params={"limit": 1}).json()
    assert newest["has_more"] is True
    assert nameless(newest["data"]) == [
        {
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "d"}],
        }
    ]
    rest = talk.ask("GET", path, params={"order": "asc", "limit": 2}).json()
    after = {"order": "asc", "after": rest["last_id"]}
    rest["data"] += talk.ask("GET", path, params=after).json()["data"]
    assert [it["type"] for it in rest["data"]] == [*["message"] * 4, "function_call", "message"]
    assert rest["data"][-1]["id"] == newest["first_id"]
    assert error(talk.ask("GET", path, params={"after": "x"}))[2] == "after"
    assert error(talk.ask("GET", path, params={"limit": 0}))[0] == 400


def test_nothing_can_be_cancelled_afterwards() -> None:
    talk = Talk()
    name = talk.respond().json()["id"]
    assert error(talk.ask("POST", f"/{name}/cancel"))[:2] == (400, "not_cancellable")
    assert error(talk.ask("GET", f"/{name}", params={"stream": "true"}))[0] == 400
