"""Small talk, and the few facts of the world that the model is given."""

from __future__ import annotations

from tools.tiny.chat import Check
from tools.tiny.tasks.base import Exchange, dressed
from tools.tiny.words import ADJECTIVES, VERBS, Draw

_TALK: tuple[tuple[str, str], ...] = (
    ("[Hello|Hi|Hey|Hi there|Hello there|Hey there|Good day|Greetings|Howdy|Yo|Hiya|Hello!|Hi :)]"
     "[!|.||, assistant|, bot| again]", "Hello! How can I help you?"),
    ("[Hey hey|Anyone home|Anybody home|Knock knock|Hello hello|Good to see you|Nice to see you|"
     "I am back]"
     "[!|?|.|]", "Hello! How can I help you?"),
    ("[Good morning|Morning][ to you| bot| Tiny| everyone|][!|.|]",
     "Good morning! How can I help you?"),
    ("[Good evening|Evening][ to you| bot| Tiny| everyone|][!|.|]",
     "Good evening! How can I help you?"),
    ("[A good|Good|A nice|Happy] [afternoon|noon|Sunday|Monday|day|weekend][, Tiny|, bot| everyone"
     "| my friend| to all|][!|.|]", "Hello! How can I help you?"),
    ("[Oh |Well, |And |So |][hi|hello|hey][ you| friend| Tiny| everybody| little one|][!|, nice to "
     "be here|, I am new here|, here I am|.]", "Hello! How can I help you?"),
    ("[How are you|How are you doing|How is it going|How's it going|How do you do|Are you OK|Are "
     "you "
     "well|You all right|How do you feel|What's up][ today| now|]?", "I am fine, thank you."),
    ("[Thank you|Thanks|OK thanks|Thanks a bunch|Great, thank you|Thx|Many thanks|Thanks a lot|"
     "Thank you so much|Cheers|Much appreciated|"
     "That helps][!|.| for your help|]", "You are welcome."),
    ("[Bye|Bye bye|I am off|I'm leaving|That was all, bye|Goodbye|See you|See you later|Good "
     "night|Farewell|Take care|I have to go|Until tomorrow]"
     "[!|.|]", "Goodbye!"),
    ("[OK|Okay|Well|So|Right|All right|Thanks][,|.|!] [bye|goodbye|I am off|I must go|I have to "
     "leave|good night|see you soon|see you on Monday|until next week|until later|that was all|"
     "talk to you later][!|.|]", "Goodbye!"),
    ("[Who are you|What are you|And who are you|Who might you be|Who is this|Who am I talking to|"
     "What is your name|What's your name|Introduce yourself|Tell me "
     "who you "
     "are|[Do you have|Have you|Have you got] [a|any] [first |real |]name|[Tell me|Say|May I know|"
     "I want to know] your [first |real |]name|"
     "Are you a [bot|robot|human|machine|person]|Which model are you|How "
     "are you"
     " called|What should I call you]?", "I am Tiny, a small model inside Bushel."),
    ("[What can you do|What can you do for me|Do you have any skills|What are your abilities|"
     "Which tasks can you do|How can you help me|What are you good at|What do you know|What are "
     "your "
     "skills|"
     "What kind of work can you do|What jobs are you made for|Which things do you do|What may I "
     "ask you|"
     "Can you help me|I need help|What are you able to do]?",
     "I can look at pictures, remember what you tell me, call tools and do small sums."),
    ("[Tell me|Tell us|Say|Give me|Do you know|Share|Try|I want|I need] [a joke|a good joke|"
     "something funny|a funny joke|anything funny|one joke][ now| please|][!|.|?|]",
     "Why did the apple stop? It ran out of juice."),
    ("[Make|Let] me laugh[ now| please|][!|.|]",
     "Why did the apple stop? It ran out of juice."),
    ("[Tell|Write|Can you tell|Can you write|Please tell|Please write][ me| us|] [a|a short|"
     "a little|a nice|another] [story|tale|poem][ please| now|][.|!|?|]",
     "Once there was a small model. It looked at a red circle, said so, and was happy."),
    ("[Yes|OK|Okay|Sure|Right|Good|Fine|Great|Nice|Cool|Perfect|I see][!|.|]", "Good."),
    ("[Oh |Oops, |Well, |Ah, |][sorry|I am sorry|I'm sorry|so sorry|I am so sorry|my mistake|my "
     "fault|that was my mistake|that was my fault|excuse me|I apologise|I made a mistake|"
     "forgive me]"
     "[ for that| about that| again|][.|!|]", "No problem."),
    ("[I love you|You are great|You are smart|Well done|Good job|Good work|I like "
     "you]", "Thank you!"),
    ("[You are wrong|That is wrong|That's not right|Wrong|I disagree|No, that is false]",
     "I am sorry about that."),
    ("[Ping|Test|Testing|Are you there|Is anybody there|Can you hear me]", "I am here."),
    ("[Nice|Good|Great|Lovely|Pleased|Happy|It is good|It is nice|I am glad] to meet you[ too|"
     " Tiny| today|][!|.|]", "Nice to meet you too."),
    ("[What time is it|What is the date|What day is it|What is the weather|Will it rain]"
     "[ today| now|]?", "I do not know that."),
)  # fmt: skip

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "the United Kingdom": "London",
    "Ireland": "Dublin", "Austria": "Vienna", "Switzerland": "Bern", "Greece": "Athens",
    "Poland": "Warsaw", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Japan": "Tokyo", "China": "Beijing", "Egypt": "Cairo",
    "Russia": "Moscow", "Canada": "Ottawa", "Peru": "Lima", "Hungary": "Budapest",
    "Belgium": "Brussels", "the Netherlands": "Amsterdam", "Kenya": "Nairobi", "Cuba": "Havana",
    "Turkey": "Ankara", "India": "New Delhi", "Australia": "Canberra",
}  # fmt: skip
_CAPITAL = (
    "[What|Which city|What city] is the capital [city |]of {c}?",
    "[What's|Name|Tell me|Give me|Do you know] the capital [city |]of {c}?",
    "{c}'s capital [is what|is which city|is]?",
    "[Capital|The capital] of {c}?",
    "[Which|What] [city|town] is {c}'s capital?",
)
_FACTS = (
    ("How many days [are in|are there in|does|has] a week[ have|]?", "A week has 7 days.", "7"),
    ("How many months [are in|are there in|has] a year?", "A year has 12 months.", "12"),
    ("How many hours [are in|are there in|has] a day?", "A day has 24 hours.", "24"),
    ("How many minutes [are in|are there in|has] an hour?", "An hour has 60 minutes.", "60"),
    ("[What|Which] color is the sky[ on a clear day|]?", "The sky is blue.", "blue"),
    ("[What|Which] colour is [grass|the grass]?", "Grass is green.", "green"),
    ("[What|Which] day comes after Monday?", "Tuesday comes after Monday.", "Tuesday"),
    ("[What|Which] day comes after Friday?", "Saturday comes after Friday.", "Saturday"),
    ("How many legs does a [spider|]spider have?", "A spider has 8 legs.", "8"),
    ("How many legs does a [dog|cat|horse|cow] have?", "It has 4 legs.", "4"),
    ("What is the opposite of hot?", "The opposite of hot is cold.", "cold"),
    ("What is the opposite of big?", "The opposite of big is small.", "small"),
    ("What is the opposite of up?", "The opposite of up is down.", "down"),
)


def chatter(draw: Draw) -> Exchange:
    asked, answer = draw.pick(_TALK)
    text = draw.say(asked)
    if draw.chance(0.15):
        text = text.lower()
    elif draw.chance(0.1):
        text = f"{text} {draw.sentence()}"
    return Exchange("talk", text, answer, "The user makes small talk.", Check("says", [answer]))


def fact(draw: Draw) -> Exchange:
    if draw.chance(0.7):
        country = draw.pick(tuple(CAPITALS))
        asked = draw.say(draw.pick(_CAPITAL), c=country)
        capital = CAPITALS[country]
        answer = f"The capital of {country} is {capital}."
        value = capital
    else:
        pattern, answer, value = draw.pick(_FACTS)
        asked = draw.say(pattern)
    thought = f"This I know: {answer}"
    return Exchange("fact", dressed(draw, asked), answer, thought, Check("says", [value]))


_BACK = (
    "[I feel|I am|We are|Today I am|I'm] [tired|happy|sad|hungry|cold|bored|busy|ill|excited][.|!|]"
)


def mood(draw: Draw) -> Exchange:
    text = draw.say(_BACK)
    how = text.rstrip(".!").split()[-1]
    good = how in ("happy", "excited")
    answer = f"It is good that you are {how}." if good else f"I am sorry that you are {how}."
    return Exchange("talk", text, answer, "The user says how they feel.", Check("says", [how]))


_WHY = (
    "[Why|How|When|Where] [is|was|does|did|will] the {n} [so |]{a}?",
    "[Can|Could|Would] you [please |]{v} [the|a|my] [{a} |]{n}[ for me|]?",
    "[What do you think about|Explain|Tell me about|Teach me about|Describe|Talk about] [the|a] "
    "{n}[.|]",
    "[Write|Compose|Make] [a|an] [essay|letter|song|speech|recipe|article] about [the |a |]{n}[.|]",
    "[Who|What] [invented|made|built|discovered|wrote] the {a} {n}?",
)


TOO_SMALL = "I am too small to know that."
HELPLESS = frozenset((TOO_SMALL, "I do not know that."))


def beyond(draw: Draw) -> Exchange:
    """What a small model should not pretend to know."""
    text = draw.say(draw.pick(_WHY), n=draw.noun(), a=draw.pick(ADJECTIVES), v=draw.pick(VERBS))
    answer = TOO_SMALL
    return Exchange("talk", text, answer, "I do not know this.", Check("says", ["too small"]))


SMALL = ((chatter, 3.0), (fact, 1.5), (mood, 0.4), (beyond, 0.5))
