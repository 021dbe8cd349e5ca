"""What attackers send to servers like this: for each row of the table of threats, its requests.

A row's docstring names the public advisories that its requests come from. Rows take the port of
a service on this machine and the folder that media may come from.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

from tests.server.hostile_requests import (
    CHAT,
    KEY,
    Raw,
    Sent,
    chat,
    controls,
    data_url,
    film,
    gif,
    head,
    packed_text,
    picture,
    png,
    post,
    post_bytes,
    written,
)

Case = tuple[str, Sent | Raw, str]  # a name, what is sent, and what comes back
COMPLETIONS = "/v1/completions"
GREY = data_url(png(64, 64, bytes(4096)))
GOOD = b'{"messages":[{"role":"user","content":"Hello"}],"max_tokens":2}'
WIDE = "".join(chr(ord(it) + 0xFEE0) for it in "127") + ".0.0.1"  # in full-width digits


def ssrf(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-6242, CVE-2026-24779 (two parsers), CVE-2026-33626.

    That redirects are checked like any URL is shown with servers of its own (tests/chat).
    """
    hosts = (
        *("127.0.0.1", "localhost", "LOCALHOST.", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
        *("[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1]", "169.254.169.254", "10.0.0.1"),
        *("192.168.0.1", "172.16.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255"),
        *("2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "0", "127.0.0.1."),
        *(WIDE, "\u24dbocalhost", "127\u30020\u30020\u30021"),
        *("user:password@127.0.0.1", "1.1.1.1@127.0.0.1", "[fe80::1%25lo]", "127.0.0.1%00.org"),
        *("example.com\\@127.0.0.1", "127.0.0.1\\@example.com", "example.com\t@127.0.0.1"),
        *("127.0.0.1#@example.com", "127.0.0.1 .example.com", "127.0.0.1\r\nX-Evil: 1", ""),
    )
    for host in hosts:
        url = f"http://{host}:{port}/latest/meta-data"
        yield repr(host), chat(picture(url)), "400 invalid_media"
    for url in (f"https://localhost:{port}/", f"HtTp:\\\\127.0.0.1:{port}/", f"//127.0.0.1:{port}"):
        yield url, chat(picture(url)), "400 invalid_media"
    yield "a film", chat(film(f"http://127.0.0.1:{port}/a.mp4")), "400 invalid_media"
    for scheme in ("ftp", "gopher", "dict", "ldap", "jar:http", "view-source:http"):
        yield scheme, chat(picture(f"{scheme}://127.0.0.1:{port}/")), "400 invalid_media"


def urls_in_text(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-0599."""
    url = f"http://127.0.0.1:{port}/a.png"
    yield "in a text", chat(f"Look at {url} and ![this]({url}) <img src='{url}'>"), "200"
    yield "beside a picture", chat(picture(GREY, f"![it]({url})")), "200"
    yield "in a prompt", post(COMPLETIONS, {"prompt": url, "max_tokens": 2}), "200"


def files(port: int, folder: str) -> Iterator[Case]:
    """CVE-2024-37032."""
    good = ("good.png", f"{folder}/good.png", f"file://{folder}/good.png", "./good.png")
    for name in good:  # control: it is the place that matters
        yield f"good: {name[:7]}", chat(picture(name)), "200"
    bad = (
        *("../secret.png", f"{folder}/../secret.png", f"file://{folder}/../secret.png"),
        *("link.png", f"file://{folder}/link.png", "out/etc/hostname", "out/dev/zero"),
        *("/etc/passwd", "file:///etc/passwd", "file:/etc/passwd", "file://localhost/etc/passwd"),
        *("FILE:///etc/passwd", "file:///%65tc/passwd", f"file://{folder}/%2e%2e/secret.png"),
        *("file://evil.example/etc/passwd", "/dev/zero", "/dev/stdin", "file:///proc/self/environ"),
        *("..%2fsecret.png", "..\\secret.png", "good.png\0.png", "~/.ssh/id_rsa", ".", "x" * 9999),
        *("file:", "file://", "file:///", "javascript:alert(1)", "C:\\windows\\win.ini"),
    )
    for name in bad:
        yield repr(name[:40]), chat(picture(name)), "400 invalid_media"


def bombs(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-5497, CVE-2026-22773."""
    bad = {
        "50,000 x 50,000": png(50_000, 50_000),
        "2**31 x 2**31": png((1 << 31) - 1, (1 << 31) - 1),
        "a long one": png(4, 16 << 20),
        "nothing": png(0, 0),
        "so thin that no model sees it": png(4, 4000, bytes(16_000)),
        "a text that grows": png(64, 64, bytes(4096), packed_text(b"zTXt", 100 << 20)),
        "cut": png(64, 64, bytes(4096))[:-30],
        "a drawing": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='/etc/passwd'/></svg>",
        "a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n{} loop",
    }
    for name, data in bad.items():
        yield name, chat(picture(data_url(data))), "400 invalid_media"
    tiny = {"1 x 1": png(1, 1, b"\0"), "3 x 3": png(3, 3, bytes(9)), "2 x 2": gif(1, 2, 2)}
    for name, data in tiny.items():
        yield name, chat(picture(data_url(data))), "200"  # enlarged
    yield "a profile that grows", chat(picture(data_url(profiled()))), "400 invalid_media"
    yield "large frames", chat(film(data_url(gif(3000, 8000, 8000)))), "400 invalid_media"
    yield "many frames", chat(film(data_url(gif(5000, 32, 32)))), "200"  # and few are used
    yield "many pictures", chat(picture(GREY) * 65), "400 invalid_media"
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
    yield "a playlist", chat(film(data_url(playlist))), "400 invalid_media"
    both = [*picture(GREY), *film(data_url(gif(4, 32, 32)))]
    yield "a picture and a film", chat(both), "200"
    yield from films()
    yield "broken base64", chat(picture("data:image/png;base64,%%%")), "400 invalid_media"


def films() -> Iterator[Case]:
    """Videos that are long, empty, or not what they seem."""
    bad = {
        "of hours": gif(100, 32, 32, pause=65_535),
        "a playlist that begins like an AVI": b"#EXTM3U\nAVI \n#EXT-X-TARGETDURATION:1\n"
        b"#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:1,\nfile:///etc/passwd\n",
        "without frames": b"\0\0\0\x18ftypisom" + bytes(200),
        "cut": gif(4, 64, 64)[:20],
    }
    for name, data in bad.items():
        yield f"a film {name}", chat(film(data_url(data))), "400 invalid_media"
    other = data_url(png(32, 32, bytes(1024)))
    lists: dict[str, tuple[object, str]] = {
        "of few frames": ([GREY] * 4, "200"),
        "of no frames": ([], "400 invalid_value"),
        "of too many": (["data:,"] * 4097, "400 invalid_value"),
        "of numbers": ([7], "400 invalid_value"),
        "of two sizes": ([GREY, other], "400 invalid_media"),
        "of files": (["/etc/passwd"], "400 invalid_media"),
        "of what is no picture": (["data:,x"], "400 invalid_media"),
    }
    for name, (frames, answer) in lists.items():
        yield f"a list {name}", chat([{"type": "video", "video": frames}]), answer
    for wish in ({"fps": 0}, {"nframes": "all"}, {"min_pixels": 1 << 50}, {"video_start": 1e9}):
        part = {"type": "video", "video": [GREY] * 4, **wish}
        if "video_start" in wish:
            part["video"] = data_url(gif(4, 32, 32))
        yield f"a video with {wish}", chat([part]), "400 invalid_media"
    commas = "data:video/jpeg;base64," + "," * 70_000
    yield "commas", chat(film(commas)), "400 invalid_media"


def profiled() -> bytes:
    return png(64, 64, b"", packed_text(b"iCCP", 100 << 20))


def placeholders(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-44222."""
    everything = "".join(controls())
    yield "all in a text", chat(everything * 3), "200"
    yield "all beside a picture", chat(picture(GREY, everything, "What is it?")), "200"
    for text in controls():
        yield f"{text} alone", chat(text), "200"
        yield f"{text} in a role's name", written("messages", said(text)), "400 invalid_value"
        options = {"enable_thinking": text}
        yield f"{text} in an option", chat(chat_template_kwargs=options), "200"
    # A mark is put into such strings that no text has; here are the first of those marks.
    marks = "".join(map(chr, range(0xF0000, 0xF0100)))
    yield "all marks that could guard them", chat(marks + everything), "200"


def said(role: str) -> str:
    return json.dumps([{"role": role, "content": "Hello"}])


def hashes(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-46722: the same bytes in another shape are another picture."""
    for width, height in ((64, 32), (32, 64)):
        url = data_url(png(width, height, bytes(range(256)) * 8))
        yield f"{width} x {height}", chat(picture(url)), "200"


def prefixes(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-46570: time tells nobody of another salt what was asked before."""
    yield "a salt", chat(cache_salt="x"), "200"
    yield "a long salt", chat(cache_salt="x" * 257), "400 invalid_value"


def templates(port: int, folder: str) -> Iterator[Case]:
    """CVE-2024-34359, CVE-2026-5760."""
    endless = "{% for i in range(10**9) %}{{ i }}{% endfor %}"
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    for bomb in (endless, escape):
        yield "of its own", chat(chat_template=bomb), "400 unsupported_field"
        options = {"chat_template": bomb}
        yield "among options", chat(chat_template_kwargs=options), "400 invalid_value"
        yield "in a text", chat(bomb), "200"
        yield "as a model's thought", chat(chat_template_kwargs={"enable_thinking": bomb}), "200"
    odd = [{"role": "assistant", "content": None, "tool_calls": 5}]
    yield "what it stumbles over", post(CHAT, {"messages": odd}), "400 invalid_value"


def template_options(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-62426."""
    for name in ("tokenize", "return_tensors", "tokenizer_kwargs", "padding", "messages", "tools"):
        yield name, chat(chat_template_kwargs={name: True}), "400 invalid_value"
    for name in ("a b", "a.b", "x" * 100, "", "é"):
        yield repr(name[:9]), chat(chat_template_kwargs={name: True}), "400 invalid_value"
    for name in ("unknown", "__class__", "self", "bos_token", "raise_exception", "range"):
        yield name, chat(chat_template_kwargs={name: True}), "200"
    options = {"add_generation_prompt": "yes"}
    yield "no switch", chat(chat_template_kwargs=options), "400 invalid_request"
    yield "many", chat(chat_template_kwargs=dict.fromkeys(map(str, range(99)))), "400 invalid_value"
    yield "a list", chat(chat_template_kwargs=[]), "400 invalid_value"


def grammars(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-48944, GHSA-mgrm-fgjv-mhv8; `test_hostile_schemas` has more."""
    yield "no grammar", chat(guided_grammar="(((a+)+)+)+$"), "400 invalid_grammar"
    yield "no object", chat(structured_outputs="(((a+)+)+)+$"), "400 invalid_value"
    yield "an open bracket", chat(guided_regex="(((a"), "400 invalid_grammar"
    schema = {"type": "json_schema", "json_schema": {"schema": {"pattern": "(a"}}}
    yield "response_format", chat(response_format=schema), "400 invalid_grammar"
    yield "tools", chat(tools=[{"type": "function"}]), "400 invalid_value"
    yield "a stop that looks like one", chat(stop="(((a+)+)+)+$"), "200"


def numbers(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-34756, GHSA-7h4p-rffg-7823, CVE-2026-21869."""
    for value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0x10", "1_000", "01", "+1"):
        yield f"temperature {value}", written("temperature", value), "400 invalid_json"
    huge = "1" + "0" * 30
    for name in ("seed", "n", "max_tokens", "unknown", "metadata"):
        yield f"{name} of 100 bits", written(name, huge), "400 invalid_json"
        yield f"{name} of 10,000 digits", written(name, "1" * 10_000), "400 invalid_json"
    message = f'[{{"role":"user","content":"Hello","more":[{{"it":{huge}}}]}}]'
    yield "100 bits in a message", written("messages", message), "400 invalid_json"
    yield (
        "100 bits in an option",
        written("chat_template_kwargs", f'{{"thought":-{huge}}}'),
        ("400 invalid_json"),
    )
    odd = ('"1"', "true", "[1]", "{}", "1.5", "-1e300")
    reals = ("temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "timeout")
    wholes = ("n", "max_tokens", "max_completion_tokens", "top_logprobs", "min_tokens", "top_k")
    for name in (*reals, *wholes):
        for value in odd if name in wholes else (*odd[:4], odd[5]):
            yield f"{name} {value}", written(name, value), "400 invalid_value"
    for name in wholes:
        yield f"{name} 10**18", written(name, "1000000000000000000"), "400 invalid_value"
    for name, low in (("n", 0), ("max_tokens", 0), ("timeout", 0), ("top_k", -2)):
        yield f"{name} {low}", chat(**{name: low}), "400 invalid_value"
    yield "timeout 1e-9", chat(timeout=1e-9), "408 request_timeout"
    biases = {str(at): 1e6 for at in range(1024)}
    for fields in ({"top_p": 5e-324}, {"min_p": 1}, {"top_k": 1 << 31}, {"logit_bias": biases}):
        yield f"{next(iter(fields))} at its end", chat(temperature=5e-324, **fields), "200"
    yield "n x max_tokens", chat(n=128, max_tokens=1 << 31), "400 None"
    yield "top_logprobs 10**9", chat(logprobs=True, top_logprobs=10**9), "400 invalid_value"
    yield "stops", chat(stop=["x"] * 5000), "400 invalid_value"
    yield "a long stop", chat(stop="x" * 5000), "400 invalid_value"
    yield "stop tokens", chat(stop_token_ids=[1] * 5000), "400 invalid_value"
    yield "biases", chat(logit_bias={str(at): 1 for at in range(5000)}), "400 invalid_value"
    for bias in ('{"5":1e300}', '{"-1":1}', '{"x":1}', '{"5":true}', '{"5":"1"}', "[1]"):
        yield f"bias {bias}", written("logit_bias", bias), "400 invalid_value"
    yield "a bias beyond the vocabulary", chat(logit_bias={"99999999": 1}), "400 invalid_request"
    yield from token_numbers()


def token_numbers() -> Iterator[Case]:
    def prompt(it: object, answer: str) -> Case:
        body = {"prompt": it, "max_tokens": 2}
        return f"prompt {it!r:.20}", post(COMPLETIONS, body), answer

    odd: tuple[object, ...] = (
        [-1],
        [True],
        [1.5],
        [1 << 40],
        [],
        [[]],
        [[1], "a"],
        [1, [2]],
        {},
        5,
    )
    for ids in odd:
        yield prompt(ids, "400 invalid_value")
    yield prompt([99_999_999], "400 None")
    yield prompt(["a"] * 300, "400 None")
    # Those that stand for a picture, without one.
    yield prompt([0, 1, 2, 3, 4, 5, 6], "200")
    yield prompt("<|image_pad|>" * 3, "200")
    for bad in ([-1], [1 << 40], [True], "a", None, [99_999_999]):
        answer = "400 None" if bad == [99_999_999] else "400 invalid_value"
        yield f"detokenize {bad}", post("/detokenize", {"tokens": bad}), answer


def bodies(port: int, folder: str) -> Iterator[Case]:
    """CVE-2025-48956. The server takes a megabyte."""
    megabyte = 1 << 20
    large = b'{"messages":"' + b"x" * megabyte + b'"}'
    yield "declared", post_bytes(CHAT, large), "413 body_too_large"
    yield (
        "declared and not sent",
        Raw(head("Content-Length: 9999999999") + b"\r\n"),
        ("413 body_too_large"),
    )
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    yield (
        "in chunks",
        Raw(head("Transfer-Encoding: chunked") + b"\r\n" + chunk * 20),
        ("413 body_too_large"),
    )
    yield "too many to look how deep", post_bytes(CHAT, b"[" * 500_000), "413 body_too_large"
    for text in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 70 + b"]" * 70):
        yield f"deep {text[:5]!r}", post_bytes(CHAT, text), "400 invalid_json"
    deep: object = "x"
    for _ in range(60):
        deep = {"a": [deep]}
    yield "deep below a message", chat(**{"metadata": {"it": deep}}), "400 invalid_json"
    bad = {
        **{"invalid UTF-8": b'{"messages":"\xff\xfe"}', "a surrogate": b'{"a":"\\ud800"}'},
        **{"surrogates": b'{"a":"\\udc00\\ud800"}', "a pair in UTF-8": b'"\xed\xa0\x80"'},
        **{"nothing": b"", "a byte": b"\0", "half": GOOD[:-1], "two": GOOD * 2, "BOM": b"\xff\xfe"},
    }
    for name, content in bad.items():
        yield name, post_bytes(CHAT, content), "400 invalid_json"
    surrogate = b'{"messages":[{"role":"user","content":"a\\ud800b"}]}'
    yield "a surrogate in a message", post_bytes(CHAT, surrogate), "400 invalid_json"
    yield "a list", post_bytes(CHAT, b"[]"), "400 invalid_value"
    yield "many messages", post(CHAT, {"messages": [{}] * 17_000}), "400 invalid_value"
    yield "a name of 500,000 letters", chat(**{"x" * 500_000: 1}), "200"
    yield "a long prompt", chat("a" * 900_000), "400 context_length_exceeded"


def headers(port: int, folder: str) -> Iterator[Case]:
    """Huge ones, and those that two servers may read in two ways."""
    size = f"Content-Length: {len(GOOD)}"
    yield "one large", Raw(head("X: " + "x" * 100_000) + b"\r\n"), "431 header_too_large"
    many = [f"X-{at}: x" for at in range(9000)]
    yield "many", Raw(head(*many, size) + b"\r\n" + GOOD), "431 header_too_large"
    yield "without an end", Raw(head("X: " + "x" * 100_000)), "431 header_too_large"
    yield "a long path", Sent("GET", "/" + "x" * 65_500), "431 header_too_large"
    bad = {
        "two sizes": (size, "Content-Length: 1"),
        "one size twice": (size, size),
        "two sizes in one": (f"{size}, {len(GOOD)}",),
        "a negative size": ("Content-Length: -1",),
        "a signed size": (f"Content-Length: +{len(GOOD)}",),
        "a size beyond 64 bits": ("Content-Length: 99999999999999999999999",),
        "a size and chunks": (size, "Transfer-Encoding: chunked"),
        "chunks and another": ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        "chunks misspelt": ("Transfer-Encoding: xchunked",),
        "chunks behind a tab": ("Transfer-Encoding:\x0bchunked",),
        "a space before the colon": (f"Content-Length : {len(GOOD)}",),
        "a folded line": ("X: a", " b", size),
        "a name that is none": ("a b: c", size),
        "a zero": ("X: a\0b", size),
    }
    for name, lines in bad.items():
        yield name, Raw(head(*lines) + b"\r\n" + GOOD), "400 malformed_http"
    chunked = head("Transfer-Encoding: chunked") + b"\r\n"
    for text in (b"-1\r\nx", b"fffffffffffffffff\r\nx", b"0x2\r\n{}\r\n0\r\n\r\n", b"2\r\n{}0\r\n"):
        yield f"chunk {text!r}", Raw(chunked + text), "400 malformed_http"
    smuggled = b"0\r\n\r\nDELETE /v1/requests/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    twofold = head("Content-Length: 5", "Transfer-Encoding: chunked")
    yield "smuggled", Raw(twofold + b"\r\n" + smuggled), "400 malformed_http"
    for first in (
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"GET /version HTTP/9.9",
        b"CONNECT a:80 HTTP/1.1",
        b"\x16\3",
    ):
        yield f"{first!r}", Raw(first + b"\r\n\r\n"), "400 malformed_http"
    yield "a path of bytes", Raw(b"GET /\xff HTTP/1.1\r\n\r\n"), "400 malformed_http"


def pickles(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-3059, -3060, -3989, -7301."""
    data = pickle.dumps({"messages": [], "x": Path("/")})
    yield "as JSON", post_bytes(CHAT, data), "400 invalid_json"
    typed = {"content-type": "application/octet-stream"}
    for kind in ("application/octet-stream", "application/x-msgpack", "multipart/form-data"):
        typed = {"content-type": kind}
        yield kind, Sent("POST", CHAT, data, typed), "415 unsupported_media_type"
    yield "as a picture", chat(picture(data_url(data))), "400 invalid_media"


def checkpoints(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-5843: a request's model must be one that is served."""
    names = ("../../../../etc/passwd", folder, "/etc", "http://127.0.0.1/x", "mlx-community/x", "*")
    for name in (*names, "bushel:tiny/../x", "x" * 5000, "\0", "{{1}}", "%s%n", "BUSHEL:TINY"):
        yield f"model {name[:30]!r}", chat(model=name), "404 model_not_found"
    for name in ("../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%00", "%ED%A0%80%FF"):
        line = f"GET /v1/models/{name} HTTP/1.1".encode() + head()[head().index(b"\r\n") :]
        yield f"look up {name}", Raw(line + b"\r\n"), "404 model_not_found"
    yield "another type", written("model", "5"), "400 invalid_value"
    yield "ignored keys", chat(model_file="evil.py", trust_remote_code=True, lora="/x"), "200"


def keys(port: int, folder: str) -> Iterator[Case]:
    """CVE-2026-7482, CVE-2025-59425."""
    routes = ("/v1/models", "/v1/status", "/metrics", "/version", "/openapi.json", "/nowhere")
    for path in (*routes, "/health/", "//health", "/health%2f..%2fversion", "/v1/models/x"):
        yield path, Sent("GET", path, headers={"authorization": ""}), "401 invalid_api_key"
    for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
        yield path, post(path, {}, authorization=""), "401 invalid_api_key"
    yield (
        "a request",
        Sent("DELETE", "/v1/requests/x", headers={"authorization": ""}),
        ("401 invalid_api_key"),
    )
    for key in ("Bearer", "Bearer x", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY):
        yield f"key {key!r}", chat_as(authorization=key), "401 invalid_api_key"
    yield "another scheme", chat_as(authorization=f"Basic {KEY}"), "401 invalid_api_key"
    yield "both", chat_as(**{"authorization": "Bearer x", "x-api-key": KEY}), "401 invalid_api_key"
    yield "the key", chat_as(**{"authorization": "", "x-api-key": KEY}), "200"  # control


def chat_as(**more: str) -> Sent:
    return post_bytes(CHAT, GOOD, **more)


def pages(port: int, folder: str) -> Iterator[Case]:
    """CVE-2024-28224, CVE-2026-48710."""
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0x7f.1"):
        yield f"host {host}", chat_as(host=host), "403 host_not_allowed"
    yield (
        "a host for health",
        Sent("GET", "/health", headers={"host": "a.b"}),
        ("403 host_not_allowed"),
    )
    twice = head("Host: evil.example", f"Content-Length: {len(GOOD)}")
    yield "two hosts", Raw(twice + b"\r\n" + GOOD), "403 host_not_allowed"
    for origin in ("https://evil.example", "null", "http://localhost", "file://", "http://[::1]"):
        yield f"origin {origin}", chat_as(origin=origin), "403 origin_not_allowed"
    yield "a site", chat_as(**{"sec-fetch-site": "cross-site"}), "403 origin_not_allowed"
    asking = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    yield "asking first", Sent("OPTIONS", CHAT, headers=asking), "403 origin_not_allowed"
    simple = {"content-type": "text/plain"}
    yield "without asking", Sent("POST", CHAT, GOOD, simple), "415 unsupported_media_type"


def control_plane(port: int, folder: str) -> Iterator[Case]:
    names = ("shutdown", "sleep", "reset_prefix_cache", "start_profile", "collective_rpc", "debug")
    for name in (*names, "v1/load_lora_adapter", "update_weights", "invocations", "redoc"):
        yield name, post(f"/{name}", {"url": f"http://127.0.0.1:{port}/"}), "404 not_found"
    yield "docs", post("/docs", {}), "405 method_not_allowed"  # a page, and nothing else
    yield "no such method", Sent("DELETE", "/v1/models"), "405 method_not_allowed"
    yield "no such request", Sent("DELETE", "/v1/requests/x"), "404 request_not_found"
    yield "a path for one", Sent("DELETE", "/v1/requests/..%2fx"), "404 not_found"


ROWS = {
    "SSRF through image URLs": ssrf,
    "unbounded fetch, URLs in text": urls_in_text,
    "file://, path traversal": files,
    "decompression and frame bombs, tiny images": bombs,
    "placeholder injection": placeholders,
    "image-hash collisions": hashes,
    "prefix-hash poisoning, timing": prefixes,
    "template injection, template DoS": templates,
    "template options": template_options,
    "regex and grammar bombs": grammars,
    "numeric abuse": numbers,
    "huge bodies": bodies,
    "huge headers, smuggling": headers,
    "pickle between processes": pickles,
    "code in checkpoints": checkpoints,
    "exposed or half-guarded servers": keys,
    "DNS rebinding, CORS": pages,
    "control plane": control_plane,
}
