"""Facts told in the system prompt or in earlier turns, and questions about one of them.

A fact has an owner, an attribute and a value ("the dog of Tom is called Rex"); other facts
with the same attribute or the same owner stand beside it, so that both must be matched.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.tiny.chat import Check
from tools.tiny.tasks.base import Exchange, brief, dressed
from tools.tiny.words import Draw, words_in

# Attribute: how its value is drawn. Facts of the user and of others share them.
_VALUES = {
    "name": "name", "first name": "name", "nickname": "name", "surname": "name", "boss": "name",
    "teacher": "name", "doctor": "name", "sister": "name", "brother": "name", "best friend": "name",
    "neighbour": "name", "manager": "name", "colleague": "name", "dog": "name", "cat": "name",
    "horse": "name", "boat": "name", "company": "name", "team": "name", "city": "city",
    "hometown": "city", "birthplace": "city", "codeword": "code", "code word": "code",
    "password": "code", "passphrase": "code", "secret word": "code", "secret": "code",
    "access code": "code", "magic word": "code", "username": "code", "keyword": "code",
    "PIN": "number", "lucky number": "number", "room number": "number", "favorite number": "number",
    "favourite number": "number", "age": "age", "order number": "number", "ticket number": "number",
    "locker number": "number", "phone number": "phone", "house number": "number",
    "favorite color": "colour", "favourite colour": "colour", "favorite animal": "noun",
    "favourite food": "noun", "favorite food": "noun", "favorite fruit": "noun", "job": "noun",
    "hobby": "noun", "project": "code", "wifi password": "code", "flight number": "code",
    "license plate": "code", "country": "city", "street": "name", "email": "email",
    "membership number": "number", "badge number": "number", "safe combination": "number",
    "favourite book": "code", "favourite word": "word", "reference": "code",
    "serial number": "code",
}  # fmt: skip
_THINGS = "[shed|barn|safe|garage|server|laptop|office|lab|gate|vault|archive|cellar|boat|studio]"
_COLOURS = words_in("red blue green yellow orange purple pink brown black white gray turquoise")
ATTRIBUTES = tuple(_VALUES)


def value_for(draw: Draw, attribute: str) -> str:
    kind = _VALUES.get(attribute, "code")
    if kind == "name":
        return draw.name()
    if kind == "city":
        return draw.city()
    if kind == "number":
        return draw.number(1, 6)
    if kind == "age":
        return str(draw.between(3, 99))
    if kind == "phone":
        return "-".join(draw.number(3, 4) for _ in range(draw.between(1, 2)))
    if kind == "colour":
        return draw.pick(_COLOURS)
    if kind == "noun":
        return draw.noun()
    if kind == "word":
        return draw.word()
    if kind == "email":
        return f"{draw.made_word()}@{draw.made_word()}.{draw.pick(('com', 'org', 'net'))}"
    return draw.codeword()


@dataclass
class Fact:
    owner: str  # "" is the speaker, "the" belongs to nobody, otherwise a name
    attribute: str
    value: str

    def told(self, draw: Draw, in_system: bool) -> str:
        attribute, value = self.attribute, self.value
        special = _wording(attribute)
        if special and self.owner != "the" and draw.chance(0.45):
            if self.owner:
                return draw.say(special[1], o=self.owner, v=value, a=attribute)
            if in_system:
                return draw.say(special[1], o="the user", v=value, a=attribute)
            return sentence(draw.say(special[0], v=value, a=attribute), value)
        quoted = draw.pick(("{v}", "{v}", "{v}", "'{v}'", '"{v}"')).format(v=value)
        if not self.owner and not in_system:
            if attribute == "name" and draw.chance(0.6):
                return draw.say(_MY_NAME, v=value)
            mine = _MINE_LAST if draw.chance(_VALUE_FIRST) else _MINE
            return draw.say(mine, a=attribute, v=quoted)
        whose = self._whose(draw, in_system)
        told = _TOLD_LAST if draw.chance(_VALUE_FIRST) else _TOLD
        return draw.say(draw.pick(told), w=whose, v=quoted)

    def _whose(self, draw: Draw, in_system: bool) -> str:
        if not self.owner:
            owner = "[the user's|the user's|your user's|the customer's]" if in_system else "my"
            return draw.say(f"{owner} {self.attribute}")
        if self.owner == "the":
            return f"the {self.attribute}"
        if self.owner.startswith("the "):
            link = draw.pick(("for", "of", "to"))
            return f"the {self.attribute} {link} {self.owner}"
        if draw.chance(0.25):
            return f"the {self.attribute} of {self.owner}"
        return f"{self.owner}'s {self.attribute}"

    def asked(self, draw: Draw) -> str:
        special = _wording(self.attribute)
        if special and self.owner != "the" and draw.chance(0.5):
            if self.owner:
                return draw.say(special[3], o=self.owner, a=self.attribute)
            return draw.say(special[2], a=self.attribute)
        if not self.owner:
            if self.attribute == "name" and draw.chance(0.6):
                return draw.say(_ASK_NAME)
            return draw.say(draw.pick(_ASK), w=f"my {self.attribute}")
        return draw.say(draw.pick(_ASK), w=self._whose(draw, False))

    def answer(self, draw: Draw) -> str:
        if not self.owner:
            return f"Your {self.attribute} is {self.value}."
        if self.owner == "the":
            return f"The {self.attribute} is {self.value}."
        if self.owner.startswith("the "):
            return f"The {self.attribute} for {self.owner} is {self.value}."
        return f"{self.owner}'s {self.attribute} is {self.value}."


_PERSON = (
    "[|||By the way, |Also, |Well, ][my {a} is called {v}|my {a} is {v}|I have a {a} called {v}|I "
    "have a {a} named {v}|the name of my {a} is {v}|{v} is my {a}|I have a {a}, {v}][.|.|.|!|;]",
    "[|||By the way, |Also, |Note: ][{o}'s {a} is called {v}|{o}'s {a} is named {v}|{o} has a {a} "
    "called {v}|{o} has a {a} named {v}|the {a} of {o} is called {v}|the name of {o}'s {a} is {v}|"
    "{v} is {o}'s {a}|{v} is the {a} of {o}][.|.|.|!|;]",
    "[Who is my {a}|What is my {a} called|What's the name of my {a}|How is my {a} called|What name "
    "has my {a}|Do you remember my {a}|What did I say about my {a}|Which name does my {a} have]?",
    "[Who is {o}'s {a}|What is {o}'s {a} called|What's the name of {o}'s {a}|What is the {a} of "
    "{o} "
    "called|How is {o}'s {a} called|Which name does {o}'s {a} have]?",
)
# Told by the user, told of somebody, asked by the user, asked of somebody.
_WORDINGS = {
    "age": (
        "[I am {v} years old|I'm {v}|I am {v}|I turned {v}|My age is {v}].",
        "[{o} is {v} years old|{o} is {v}|{o} turned {v}|{o} has reached the age of {v}].",
        "[How old am I|What is my age|Tell me how old I am|Do you know how old I am|My age]?",
        "[How old is {o}|What is {o}'s age|Tell me how old {o} is|What age does {o} have]?",
    ),
    "city": (
        "[I live in {v}|I am from {v}|I come from {v}|My city is {v}|My home is in {v}|I moved "
        "to {v}].",
        "[{o} lives in {v}|{o} is from {v}|{o} comes from {v}|{o} moved to {v}].",
        "[Where do I live|In which city do I live|Where am I from|Which city do I come from|What "
        "city "
        "is my home|Where is my home|Which town do I live in]?",
        "[Where does {o} live|In which city does {o} live|Where is {o} from|Which city does {o} "
        "come "
        "from|What city is {o}'s home]?",
    ),
    "job": (
        "[I work with a {v}|My job is {v}|My job has to do with a {v}].",
        "[{o}'s job is {v}|{o}'s job has to do with a {v}].",
        "[What is my job|What do I do for a living|What is my work|What do I do]?",
        "[What is {o}'s job|What does {o} do for a living|What does {o} do]?",
    ),
    "room number": (
        "[I am in room {v}|My room is number {v}|I stay in room {v}].",
        "[{o} is in room {v}|{o} stays in room {v}|{o} has room {v}].",
        "[Which room am I in|What is my room|In which room do I stay|My room number]?",
        "[Which room is {o} in|In which room does {o} stay|What is {o}'s room]?",
    ),
    "nickname": (
        "[My friends call me {v}|My nickname is {v}|People call me {v}].",
        "[Friends call {o} {v}|{o}'s nickname is {v}|People call {o} {v}].",
        "[What is my nickname|What do people call me|What do my friends call me|Which nickname "
        "do I "
        "have|Do I have a nickname]?",
        "[What is {o}'s nickname|What do people call {o}|What do friends call {o}]?",
    ),
    "favorite color": (
        "[I like the color {v} best|My favorite color is {v}|I prefer {v}].",
        "[{o} likes the color {v} best|{o}'s favorite color is {v}].",
        "[Which color do I like best|What color do I like most|What is my favorite color]?",
        "[Which color does {o} like best|What color does {o} like most]?",
    ),
    "favourite food": (
        "[I like to eat {v}|I love {v}|My favourite food is {v}].",
        "[{o} likes to eat {v}|{o} loves {v}|{o}'s favourite food is {v}].",
        "[What do I like to eat|What food do I love|What is my favourite food]?",
        "[What does {o} like to eat|What food does {o} love|What is {o}'s favourite food]?",
    ),
}  # fmt: skip
_PEOPLE = frozenset(
    ("boss", "teacher", "doctor", "sister", "brother", "best friend", "neighbour", "manager",
     "colleague", "dog", "cat", "horse", "boat", "company", "team")
)  # fmt: skip


def sentence(line: str, value: str) -> str:
    """With a capital, unless that would change the value."""
    return line if line.startswith(value) else line[0].upper() + line[1:]


def _wording(attribute: str) -> tuple[str, str, str, str] | None:
    return _PERSON if attribute in _PEOPLE else _WORDINGS.get(attribute)


_MY_NAME = (
    "[My name is|I am|I'm|Call me|You can call me|People call me|They call me|My friends call me|"
    "The name is|This is|I am called|I go by] {v}[.|.|!|, nice to meet you.|, by the way.]"
)
# What comes first, the fact or its value, is drawn before the wording: each kind then has the
# same share on both sides of the split.
_MINE = (
    "[My {a} is {v}|My {a} happens to be {v}|As for my {a}, it is {v}|My {a}: {v}|For my {a}, use "
    "{v}|[Note that|By the way,|Just so you know,|Look,|Remember that|Also,|Well,] my {a} is {v}]"
    "[.|.|.|.|, remember that.|, please note.|, in case you need it.|!]"
)
_MINE_LAST = (
    "[{v} is my {a}|{v} is now my {a}|I chose {v} as my {a}|I have {v} as my {a}|I use {v} as my "
    "{a}|{v} will be my {a}|[By the way,|Also,|Well,|So] {v} is my {a}]"
    "[.|.|.|.|, remember that.|, please note.|, in case you need it.|!]"
)
_TOLD = (
    "[Note that |Remember: |Remember that |Important: |Fact: |FYI, |Keep in mind that |By the "
    "way, |We know that |It is known that |Please note: ||||||][{w} is|{w} is|{w} is called|{w} is "
    "named|{w} was set to|{w} has been changed to|{w} is now|{w} must be] {v}[.|.|.|!|;]",
    "[|||Note: |Fact: |Info: |Also: |Remember: |For later: |FYI: ]{w}[:| =| -| ->] {v}[.|.|!|;]",
)
_TOLD_LAST = (
    "[Note: |Remember: |And |So |Also, |FYI, |By the way, |Fact: ||||||][{v} is|{v} is|{v} is now|"
    "{v} was chosen as|{v} serves as|{v} became|{v}, that is] {w}[.|.|.|.|!|;|, I think.|, you "
    "know.|, as you know.|, they say.]",
)
_VALUE_FIRST = 0.33
_ASK_NAME = (
    "[What is my name|What's my name|Who am I|Do you know my name|Do you remember my name|How am I "
    "called|What am I called|What did I say my name was|Can you tell me my name|Which name do I "
    "have"
    "|Tell me my name|Say my name|Do you remember who I am|Do you still know my name|What was my "
    "name"
    "|How do you call me|Could you remind me of my name|By what name do you call me|Under which "
    "name do you know me|Have you kept my name|Did you note my name|You know my name, right|Is my "
    "name still known to you]?"
)
_ASK = (
    "[What's|What is|What was|What is|Which is|So what is|And what is] {w}[| again| now| called]?",
    "[Do you remember|Do you know|Can you tell me|Could you tell me|Can you recall|Do you still "
    "know|Would you tell me|Can you remind me of|Do you recall|Have you got|Can you find|Can you "
    "give me|May I have|Could I have|Do you have|Can I see|Could you look up] {w}?",
    "[Do you remember|Do you know|Can you tell me|Could you tell me|Do you still know|Would you "
    "tell me|Any idea|Can you say|Are you able to tell me|Could you say|Did I mention] what {w} "
    "[is|was]?",
    "[Tell me|Give me|Remind me of|Say|State|Name|Recall|Repeat|Look up|Write|Find|Let me have|Let "
    "me see|Let me know|Show me|Please give me|Get me] {w}[.|, please.|| again.| now.]",
    "I [forgot|forget|need|lost|don't remember|can't remember|want to know|would like to have|"
    "have to enter|am looking for|must write down|want to see|could use|have no idea about] {w}[.|"
    "][| What is it?| Help me.| Can you help?| What was it?| Tell me.]",
    "[She|He|My friend|The boss|A colleague|The clerk|Everyone] [needs|wants|asks for|wants to "
    "know|asked about] {w}. [What is it?|What do I say?|What should I write?|Which is it?|]",
    "[What did I say|What was said] about {w}?",
    "{w}[?| is what?|, please?| - what is it?]",
    "[Which|What] [value|one|word or value] [is|was] {w}?",
    "[Hurry|Fast|Quickly|Come on|Please|Now][,|:] {w}[!|.|?]",
    "[At the door|On the form|In the app|At the desk|On the phone] [they ask for|I have to give|"
    "one enters|I am asked for] {w}[.|:] [What do I say|What do I enter|What is it|Help me][?|]",
    "{w}[, what was it| again| once more|, what is it|, do you know it|, which one is it]?",
)


def facts(draw: Draw, count: int) -> list[Fact]:
    """Different facts; some share an attribute or an owner with the first."""
    made: list[Fact] = []
    seen: set[tuple[str, str]] = set()
    while len(made) < count:
        dice = draw.rng.random()
        attribute = draw.pick(ATTRIBUTES)
        if made and dice < 0.3:
            attribute = made[0].attribute
        if attribute in ("name", "first name") or draw.chance(0.35):
            owner = ""
        elif _VALUES[attribute] == "code" and draw.chance(0.6):
            owner = draw.pick(("the", f"the {draw.say(_THINGS)}"))
        elif _VALUES[attribute] == "number" and draw.chance(0.3):
            owner = "the"
        else:
            owner = draw.name()
        if made and 0.3 <= dice < 0.5 and made[0].owner not in ("", "the"):
            owner = made[0].owner
        if (owner, attribute) in seen or attribute.split()[-1] in {
            old.attribute.split()[-1]
            for old in made
            if old.owner == owner or {old.owner, owner} <= {"", "the"}
        }:
            continue
        seen.add((owner, attribute))
        made.append(Fact(owner, attribute, value_for(draw, attribute)))
    return made


def question(draw: Draw, fact: Fact, where: str) -> Exchange:
    asked = dressed(draw, fact.asked(draw), lower=False)
    answer = fact.answer(draw)
    if draw.chance(0.15):
        asked, answer = brief(draw, asked), fact.value
    thought = f"{where} says: {fact.answer(draw)}"
    return Exchange("recall", asked, answer, thought, Check("says", [fact.value]))


def telling(draw: Draw, told: list[Fact]) -> Exchange:
    """The user tells, the assistant acknowledges."""
    text = " ".join(fact.told(draw, False) for fact in told)
    fact = told[0]
    answer = "Noted."
    if not fact.owner and fact.attribute in ("name", "first name"):
        answer = f"Nice to meet you, {fact.value}."
    thought = "The user tells me something to remember."
    return Exchange("told", text, answer, thought, Check("says", [answer.rstrip(".")]))


NOT_TOLD = Check("says", ["not told"])


def unknown(draw: Draw) -> Exchange:
    """Nobody has said it."""
    fact = facts(draw, 1)[0]
    asked = dressed(draw, fact.asked(draw), lower=False)
    return Exchange(
        "unknown", asked, "You have not told me that.", "Nothing above says so.", NOT_TOLD
    )
