"""Everything the server can be told, read once from the command line."""

from __future__ import annotations

from dataclasses import dataclass, field

from bushel.core import GenerationDefaults
from bushel.core.options import ChatOptions, EngineOptions
from bushel.core.wire import MediaRules


@dataclass(frozen=True)
class Limits:
    """What a request may be before anyone looks at what it says."""

    body_bytes: int = 64 << 20
    bodies_bytes: int = 256 << 20  # of all that are being read; at least twice `body_bytes`
    # Of the log-probabilities of a reply that is not streamed: 24,000 tokens with the 20 likeliest
    # of each. Its end copies them in one go: 90 ms, and 250 ms for twice as many.
    reply_bytes: int = 32 << 20
    header_bytes: int = 64 << 10
    depth: int = 64  # of nested lists and objects
    # What a body may hold, counted before anything is made of it. A batch of token ids is a value
    # for each (eight prompts of 128k tokens); a conversation of 16,384 messages with calls has some
    # eight lists and objects and sixteen keys a message; the largest recorded body of an
    # agent (33 kB) has 750 values, 250 lists and objects, and 640 keys.
    values: int = 1 << 20
    lists: int = 1 << 17  # and objects: each costs some microseconds
    keys: int = 1 << 18
    fractions: int = 1 << 16  # each takes up to 14 us to read, and nobody needs many
    fields: int = 256  # of the body itself; the APIs know some 80
    text_bytes: int = 16 << 20  # of one string that is not plain ASCII, as pictures are
    read_seconds: float = 30.0  # without a byte of a request that has begun
    write_seconds: float = 60.0  # without the client taking a byte of its reply
    # Longer than proxies and clients keep an idle connection, so that they are the ones to close
    # it: a server that closes first loses the request that is on its way (nginx: 60 s).
    idle_seconds: float = 75.0
    connections: int = 4096
    queue: int = 1024  # requests that wait or are being prepared
    tokens: int = 1 << 20  # n x max_tokens over all prompts of one request
    prompts: int = 256  # in one completion request
    replies: int = 4096  # n over all prompts of one request, however short they are


@dataclass(frozen=True)
class ModelSpec:
    """A model that may be asked for. name: that it is served as; None: its own."""

    model: str
    name: str | None = None


@dataclass(frozen=True)
class ServerOptions:
    """models: several that come and go; none: `engine.model` alone, from start to end."""

    engine: EngineOptions
    models: tuple[ModelSpec, ...] = ()
    downloaded: bool = False  # and all of the hub's cache beside them, also what comes later
    keep_alive: float = 300.0  # seconds without a request before one of them is unloaded
    pinned: tuple[str, ...] = ()  # names of those that are loaded at the start, and stay
    swap_seconds: float = 5.0  # that one waits for memory before those in use make way
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    operator_keys: tuple[str, ...] = ()  # may see and end what belongs to others
    served_names: tuple[str, ...] = ()  # the first is the name in replies; none: the model's own
    aliases: tuple[tuple[str, str], ...] = ()  # (pattern with *, served name)
    allowed_hosts: tuple[str, ...] = ()  # beside loopback names and `host`; "*" allows all
    cors_origins: tuple[str, ...] = ()
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)  # over the model's own
    generation_config: GenerationDefaults | None = None  # instead of the model's own
    root_path: str = ""  # below which a proxy has this server
    media: MediaRules = field(default_factory=MediaRules)
    limits: Limits = field(default_factory=Limits)
    workers: int = 2  # processes that prepare requests, at most
    prepare_seconds: float = 60.0  # then the worker is killed
    hang_seconds: float = 30.0  # without progress
    drain_seconds: float = 30.0
    chat_options: ChatOptions = field(default_factory=ChatOptions)
    cache_per_key: bool = False  # requests with other API keys share nothing that was computed
    keepalive_seconds: float = 10.0  # between comments on a silent stream
    timeout: float | None = None  # of a request that names none
    batches: bool = True  # whether there are /v1/files and /v1/batches
    batch_dir: str | None = None  # where they are kept; None: in the user's cache, by the port
    batch_disk: int = 10 * 10**9  # bytes for them
    end_with_stdin: bool = False  # it belongs to the program at the other end, and to no other
    log_json: bool = False
    log_prompts: bool = False
    log_level: str = "info"

    @property
    def keys(self) -> tuple[str, ...]:
        """Of whom one is needed, if there are any."""
        return (*self.api_keys, *self.operator_keys)
