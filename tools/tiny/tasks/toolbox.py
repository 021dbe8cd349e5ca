"""Tools that a user may ask for: everyday ones by hand, and others made of words.

A `Use` is one request in words together with the call it asks for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tools.tiny.tasks.catalogue import CLOSE, KIN, TOOLS
from tools.tiny.tasks.mind import text_to_copy
from tools.tiny.words import ADJECTIVES, NOUNS, VERBS, Draw, words_in

_TYPES = {"s": "string", "i": "integer", "n": "number", "b": "boolean", "e": "string", "l": "array"}
_GENERIC = (
    "name:s:name", "id:i:id", "count:i:small", "color:s:colour", "size:e:small,medium,large",
    "level:i:percent", "tag:s:word", "limit:i:small", "city:s:city", "code:s:code", "label:s:word",
    "path:s:path", "place:s:street", "person:s:names", "amount:n:num", "owner:s:name",
    "mode:e:fast,slow,auto", "price:n:num",
    "force:b:true", "verbose:b:true", "year:i:year", "key:s:code", "group:s:word", "items:l:words",
)  # fmt: skip
_BOOLEAN = {
    "on": ("on", "off"),
    "lock": ("lock", "unlock"),
    "true": ("true", "false"),
}
_ROOMS = [
    "kitchen",
    "bedroom",
    "bathroom",
    "office",
    "garage",
    "hall",
    "garden",
    "cellar",
    "studio",
    "attic",
]
_ROADS = words_in("Street Road Lane Avenue Square Hill Court Park Bridge Way Place")
_LANGUAGES = [
    "French",
    "German",
    "Spanish",
    "Italian",
    "Japanese",
    "Polish",
    "Turkish",
    "Swedish",
    "Dutch",
    "Greek",
]


@dataclass(frozen=True)
class Use:
    tool: dict[str, Any]
    request: str
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.tool["function"]["name"])

    @property
    def call(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": self.arguments}


def _value(draw: Draw, how: str) -> tuple[Any, str]:
    """A value, and how a request says it."""
    if "," in how:
        value: Any = draw.pick(how.split(","))
        return value, value
    if how in _BOOLEAN:
        yes = draw.chance(0.5)
        return yes, _BOOLEAN[how][0 if yes else 1]
    match how:
        case "city":
            value = draw.city()
        case "name":
            value = draw.name()
        case "ticker":
            value = "".join(
                draw.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(draw.between(2, 4))
            )
        case "phrase":
            words = [draw.word() for _ in range(draw.between(1, 4))]
            value = text_to_copy(draw).strip(".") if draw.chance(0.1) else " ".join(words)
        case "email":
            value = f"{draw.made_word()}@{draw.made_word()}.{draw.pick(('com', 'org', 'net'))}"
        case "small":
            value = draw.between(1, 60)
        case "percent":
            value = draw.between(0, 100)
        case "id":
            value = int(draw.number(1, 5))
        case "year":
            value = draw.between(1900, 2035)
        case "num":
            value = draw.between(0, 999)
            value = value + draw.pick((0.5, 0.25, 0.1)) if draw.chance(0.3) else value
        case "time":
            value = f"{draw.between(0, 23)}:{draw.pick(('00', '15', '30', '45'))}"
        case "path" | "folder":
            value = "/".join(draw.word() for _ in range(draw.between(1, 3)))
            value = draw.pick(("/", "", "./")) + value
            value += draw.pick((".txt", ".md", ".py", ".json", ".csv")) if how == "path" else ""
        case "command":
            value = draw.pick(("ls", "cat", "rm", "grep", "echo", "pytest", "git", "make"))
            value += f" {draw.pick(('-l', '-a', '-v', ''))} {draw.word()}".replace("  ", " ")
        case "street":
            value = f"{draw.name()} {draw.pick(_ROADS)}"
            value = f"{draw.between(1, 99)} {value}" if draw.chance(0.3) else value
        case "names":
            value = " ".join(draw.name() for _ in range(draw.pick((1, 2, 2))))
        case "room":
            value = draw.pick(_ROOMS) if draw.chance(0.7) else draw.noun()
        case "language":
            value = draw.pick(_LANGUAGES)
        case "currency":
            value = draw.pick(words_in("EUR USD GBP JPY CHF PLN SEK euros dollars pounds yen"))
        case "colour":
            value = draw.pick(words_in("red blue green yellow black white orange"))
        case "code":
            value = draw.codeword()
        case "noun":
            value = draw.noun()
        case "words":
            value = [draw.word() for _ in range(draw.between(1, 3))]
            return value, (" and " if len(value) == 2 else ", ").join(value)
        case _:
            value = draw.word()
    return value, str(value)


def _schema(draw: Draw, name: str, about: str, parameters: list[list[str]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    described = draw.chance(0.4)
    for key, kind, how in parameters:
        entry: dict[str, Any] = {"type": _TYPES[kind[0]]}
        if kind[0] == "e":
            entry["enum"] = how.split(",")
        if kind[0] == "l":
            entry["items"] = {"type": "string"}
        if described:
            entry["description"] = draw.say(
                f"[The|A|] {key.replace('_', ' ')}[ to use|]"
            ).capitalize()
        properties[key] = entry
    required = [key for key, kind, _ in parameters if not kind.endswith("?")]
    function = {
        "name": name,
        "description": about,
        "parameters": {"type": "object", "properties": properties, "required": required},
    }
    if draw.chance(0.1):
        del function["description"]
    return {"type": "function", "function": function}


class Offer:
    """A tool, and requests for it."""

    tool: dict[str, Any]
    kin: str = ""  # tools of one kin could be meant by one vague request
    reads = False  # a file, whose text is then told as it is

    @property
    def name(self) -> str:
        return str(self.tool["function"]["name"])

    def ask(self, draw: Draw) -> Use:
        raise NotImplementedError

    @property
    def topic(self) -> set[str]:
        """What it is about; two tools with a word in common could both fit a request."""
        function = self.tool["function"]
        text = f"{function['name']} {function.get('description', '')}"
        text = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower().replace("_", " ")
        return set(text.split()) - _COMMON


class ByHand(Offer):
    def __init__(self, draw: Draw):
        names, about, spec, self.requests = draw.pick(TOOLS)
        self.parameters = [part.split(":") for part in spec.split()]
        self.kin = KIN.get(names.split("/")[0], "")
        self.reads = names.startswith("read_file")
        name = draw.pick(names.split("/"))
        self.tool = _schema(draw, name, draw.say(about), self.parameters)

    def ask(self, draw: Draw) -> Use:
        request = draw.say(draw.pick(self.requests.split("/")))
        if not request.startswith("{"):  # a value keeps its case
            request = request[0].upper() + request[1:]
        arguments = {}
        for key, _, how in self.parameters:
            value, said = _value(draw, how)
            if f"{{{key}}}" in request:
                arguments[key] = value
                request = request.replace(f"{{{key}}}", said)
        return Use(self.tool, _politely(draw, request) if draw.chance(0.25) else request, arguments)


_POLITE = (
    "[Please|please|Pls|Can you|can you|Could you|could you|Would you|would you please|I want you "
    "to|I'd like you to|You should|Go ahead and|Kindly|Now|Just|I need you to|Will you|Be nice "
    "and|It is time to|We should|Do me a favour and|My wish:|Next,]"
)
_GERUND = "[How about|What about|Do you mind|Try|I suggest|I am thinking of|Any chance of]"
_ORDERS = words_in(
    "Turn Switch Send Book Open Read Play Call Order Find Check Add Search Show Delete Convert "
    "Translate Run Set Get Write Look Reserve Track Print Start Create Lock Close Water Feed Pay "
    "Rent Clean Move Save Buy Remove Change Make Execute List Roll Define Tag Dim Phone Cancel "
    "Pick Join Deliver Measure Bring"
)
_DOUBLED = frozenset(words_in("Set Get Run Tag Dim"))


def _politely(draw: Draw, request: str) -> str:
    """An order as a wish, where the request is an order."""
    verb, _, rest = request.partition(" ")
    if verb not in _ORDERS or not rest:
        return request
    if draw.chance(0.75):
        return f"{draw.say(_POLITE)} {verb.lower()} {rest}{draw.pick(('', '', '.', '?'))}"
    stem = verb.lower().rstrip("e") if verb.endswith("e") else verb.lower()
    stem += stem[-1] if verb in _DOUBLED else ""
    return f"{draw.say(_GERUND)} {stem}ing {rest}{draw.pick(('', '?', '?'))}"


_GIVEN = (
    "{k} {v}", "{k} {v}", "{k} = {v}", "{k}: {v}", "{k} set to {v}", "the {k} {v}", "{v} as {k}",
    "{v} as the {k}", "{k} is {v}", "{k} being {v}", "{v} for the {k}",
)  # fmt: skip
_VERBS = words_in(
    "get find fetch list create delete update set start stop check open close order count show "
    "send load save reset rename copy move print scan test deploy archive approve cancel"
)
_ABOUT = (
    "{V} [a|the] {n}", "{V}s [a|the] {n}", "[Use this to|Lets you|Can] {v} [a|the|any] {n}",
    "[Tool|Function] to {v} [a|the] {n}",
    "{V} [a|the] {n} [for the user|in the system|by its values]",
)  # fmt: skip
_REQUEST = (
    "[|||Please |Can you |Could you |I want you to |I need to |Go and |Would you |Now |"
    "I'd like to |I have to |Let us |Time to ]{v} [the|a|my|our|that|this] {n}"
)


# Without the verb, or with it elsewhere: the noun is enough, for no other tool has it.
_LOOSELY = (
    "[I need|I want|I'd like|Give me|Get me|Let me have|We need|I am here for|Do something about|"
    "It is about|What about|How about|Is there] [the|a|my|our|that|some] {n}",
    "[The|My|Our|That|This|A] {n}[, please| is needed| is what I want| must be done| is next]",
    "[{V} me [the|a|some] {n}|{V} [some|any|more|another] {n}|{v} {n}]",
)
_PASSIVE = "[The|My|Our|That|This|A] {n} [should|must|has to|needs to|can] be {d}"
_REGULAR = frozenset(
    words_in(
        "fetch list create delete update start check open close order count show load save rename "
        "move print test deploy archive approve walk paint clean cook fix follow join jump help"
    )
)
_PLACED = {
    "city": ("in", "for", "near"), "street": ("at", "to", "in"), "name": ("for", "called", "of"),
    "names": ("for", "to", "from"), "code": ("with", "under", "for"), "path": ("in", "from", "at"),
}  # fmt: skip


class Made(Offer):
    """Verb, noun and parameters drawn at random."""

    def __init__(self, draw: Draw, verb: str = ""):
        self.verb = verb or draw.pick(VERBS if draw.chance(0.3) else _VERBS)
        noun = draw.made_word() if draw.chance(0.4) else draw.one_of(NOUNS)
        if draw.chance(0.2):
            noun = f"{draw.pick(ADJECTIVES)}_{noun}"
        self.noun = noun.replace("_", " ")
        flat = "".join(part.capitalize() for part in noun.split("_"))
        verb = self.verb
        name = draw.pick((f"{verb}_{noun}", f"{verb}_{noun}", f"{verb}{flat}", f"{noun}_{verb}"))
        chosen = [part.split(":") for part in draw.some(_GENERIC, draw.between(0, 3))]
        for parameter in chosen:  # any word can be a parameter's name
            if draw.chance(0.35) and parameter[1][0] in "sin":
                parameter[0] = draw.made_word() if draw.chance(0.5) else draw.one_of(NOUNS)
        unique = {parameter[0]: parameter for parameter in chosen}
        self.parameters = [
            [key, kind + "?" if draw.chance(0.25) else kind, how]
            for key, kind, how in unique.values()
        ]
        about = draw.say(draw.pick(_ABOUT), V=verb.capitalize(), v=verb, n=self.noun)
        self.tool = _schema(draw, name, about, self.parameters)

    def ask(self, draw: Draw) -> Use:
        arguments, given, placed = {}, [], ""
        alone = sum(kind[0] == "s" for _, kind, _ in self.parameters) == 1
        for key, kind, how in self.parameters:
            if kind.endswith("?") and draw.chance(0.5):
                continue
            value, spoken = _value(draw, how)
            arguments[key] = value
            if alone and how in _PLACED and draw.chance(0.4):
                placed = f" {draw.pick(_PLACED[how])} {spoken}"
            elif kind[0] == "i" and draw.chance(0.3):
                given.append(f"{spoken} {key}s")
            else:
                given.append(draw.pick(_GIVEN).format(k=key, v=spoken))
        request = self._wish(draw) + placed
        if given:
            joined = draw.pick((", ", " and ", ", ")).join(given)
            request += f" {draw.pick(('with', 'using', 'where', 'for', 'and use'))} {joined}"
        request = request[0].upper() + request[1:] + draw.pick(("", ".", "?", ""))
        return Use(self.tool, request, arguments)

    def _wish(self, draw: Draw) -> str:
        dice = draw.rng.random()
        if dice < 0.8:
            return draw.say(_REQUEST, v=self.verb, n=self.noun)
        if dice < 0.87 and self.verb in _REGULAR:
            done = self.verb + ("d" if self.verb.endswith("e") else "ed")
            return draw.say(_PASSIVE, n=self.noun, d=done)
        return draw.say(draw.pick(_LOOSELY), n=self.noun, v=self.verb, V=self.verb.capitalize())


def offer(draw: Draw) -> Offer:
    return ByHand(draw) if draw.chance(0.5) else Made(draw)


def offers(draw: Draw, count: int) -> list[Offer]:
    """Tools of which no two could be meant by one request."""
    kept: list[Offer] = []
    for _ in range(count * 3):
        new = offer(draw)
        if not any(new.topic & old.topic or new.kin in CLOSE & {old.kin} for old in kept):
            kept.append(new)
        if len(kept) == count:
            break
    return kept


_COMMON = frozenset(
    words_in(
        "a an the get set of in for to or by on off current look up text find list show send "
        "create start open check update delete order count use this lets you can any tool function "
        "user system its values time move copy save load stop close print test"
    )
)
