"""Open vocabulary: words made of syllables beside lists of common ones, split by hash.

About a tenth of everything that can be drawn (words, names, phrasings, fonts, sizes) belongs
to the held-out side and never occurs in training.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def words_in(text: str) -> list[str]:
    return text.split()


_ONSETS = words_in(
    "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gl gr kr pl pr qu sh sl st str th tr"
)
_VOWELS = words_in("a e i o u a e i o ai au ea ee ia ie io ou oo y")
_CODAS = ["", "", "", "", *words_in("n r l s t m d k x nd rt st ng lk")]
NAMES = words_in("""
Anna Tom Maria Peter Lucas Emma Noah Olivia Liam Sofia Mia Ben Clara David Elena Felix
Grace Henry Ines Jack Karin Leo Marta Nina Oscar Paula Quentin Rosa Samuel Tara Uwe Vera Walter
Yara Zoe Ahmed Aisha Chen Diego Fatima Hiroshi Ivan Jamal Kofi Lena Mohamed Nadia Omar Priya
Ravi Sven Tariq Yuki Zara Alice Bob Carol Frank Gina Hugo Iris Julia Kurt Lisa Max Nora Otto
Rita Simon Theo Ursula Victor Wendy Dan Kate Mark Paul Sam Sarah Laura Adam Eve Jane John""")
CITIES = words_in("""
Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Athens Prague Warsaw Zurich
Geneva Munich Hamburg Lyon Milan Naples Porto Seville Kyoto Tokyo Osaka Seoul Beijing Shanghai
Delhi Mumbai Cairo Lagos Nairobi Boston Chicago Denver Dallas Houston Seattle Toronto Montreal
Lima Quito Bogota Santiago Sydney Melbourne Auckland Helsinki Stockholm Copenhagen Brussels
Amsterdam Budapest Istanbul Moscow Kiev Riga Tallinn Bern Basel""")
NOUNS = words_in("""
apple bread table river garden window bottle pencil letter market engine bridge forest
island doctor farmer teacher student kitchen morning evening winter summer spring autumn money
music paper stone silver golden copper castle village station airport ticket camera radio phone
laptop printer basket blanket candle carpet chair coffee cookie cotton desert dinner dragon eagle
falcon feather finger flower ginger glass hammer harbor helmet honey horse house jacket jungle
ladder lantern lemon library lion mango maple marble meadow melon mirror monkey mountain museum
napkin needle ocean office olive onion orange orchard otter panda parrot pepper piano pillow
planet pocket potato pumpkin rabbit rocket saddle salmon school shadow shelf ship shirt shoe
shop sister spider spoon storm street sugar sun temple thunder tiger tomato tower train turtle
umbrella valley violin wagon walnut water whale wheat wheel willow wolf wool yard zebra barn boat
book box boy brother cake car cat child city clock cloud coat cow cup day desk dog door duck egg
family farm field fire fish floor friend game gate girl goat grass hat hill hour key king lake
lamp leaf light map meal milk moon mouse name night nose park path pear pen pig plane plant queen
rain road rock roof room rope sand sea seed sheep sky snow soap song soup star stick tea team tent
tree truck wall watch week well wind wine wood word work world year engineer baker pilot nurse
report project meeting budget invoice server database cluster folder file message ticket account
""")
VERBS = words_in("""
walk run carry paint build clean close cook count cut draw drink drive eat find fix fly
follow give grow help hold join jump keep learn leave lift like listen look love make meet move
need open order pay plan play pull push put read ride sell send show sing sit sleep speak stand
start stay stop study swim take talk teach tell think throw touch travel try turn use visit wait
wash wear win wish write borrow bring buy call catch change choose collect cross dance""")
ADJECTIVES = words_in("""
big small old new young long short tall warm cold quiet loud heavy light dark bright
clean dirty dry wet early late easy hard fast slow full empty happy sad kind strong weak sweet
sour soft sharp round flat deep wide narrow rich poor safe rare plain fresh gentle brave calm
clever famous friendly hungry lazy lucky modern narrow noisy patient polite proud simple strange
""")
ADVERBS = words_in(
    "slowly quickly often never always sometimes today yesterday again early soon there"
)


# Words of everyday requests that the tasks' own grammar hardly uses.
COMMON = words_in("""
I you he she it we they me him her us them my your his its our their mine this that these those
who whom whose which what when where why how there here then than because although while until
before after during between among about above below over under again further once only same so
very too also just even still already yet never ever always often usually sometimes maybe perhaps
do does did done doing have has had having be am is are was were been being can could shall should
will would may might must ought need dare used not no nor neither either both each few more most
other some such own any all many much several enough little less least one two three four five six
seven eight nine ten hundred thousand million first second third next last another every everyone
someone anyone nobody something anything nothing everything somewhere anywhere question answer
explain describe show tell give write read list name number picture image photo color colour shape
please thanks sorry hello today tomorrow yesterday now soon later early late time hour minute day
week month year example reason problem idea thing person people place part point fact group case
system program computer code function value string integer object array boolean true false null
error result input output user assistant message tool call name arguments parameters properties
required description type enum items format date path content text query search find create update
delete remove add get set send start stop open close check run execute test build install version
summary translate language english french german spanish word sentence letter paragraph story poem
correct wrong right left up down top bottom middle center corner side big small large tiny huge
""")

LISTED = [word.lower() for word in (*NAMES, *CITIES, *NOUNS, *VERBS, *ADJECTIVES, *COMMON)]
# Between the two halves of a password; "$%&" would otherwise never be copied.
_JOINTS = "-_ -_ -_ .:/#&+*$%~@^!?"

# Of a draw to find something on its own side; one in ten is held out, so that 300 suffice
# wherever a pattern or a list has anything on that side at all.
TRIES = 300


@cache
def held_out(key: str) -> bool:
    return zlib.crc32(f"bushel:{key}".encode()) % 10 == 0


# Parts of them make other words, on either side of the split.
_TAUGHT = [word for word in LISTED if len(word) > 2 and not held_out(word)]

Node = str | tuple["Node", ...] | list["Node"]  # text, a sequence, or a choice
_TOKENS = re.compile(r"[\[\]|]|[^\[\]|]+")


@cache
def _parsed(pattern: str) -> Node:
    tokens = _TOKENS.findall(pattern)

    def sequence(at: int) -> tuple[Node, int]:
        parts: list[Node] = []
        while at < len(tokens) and tokens[at] not in "]|":
            if tokens[at] == "[":
                options: list[Node] = []
                while tokens[at] != "]":
                    node, at = sequence(at + 1)
                    options.append(node)
                parts.append(options)
            else:
                parts.append(tokens[at])
            at += 1
        return tuple(parts), at

    return sequence(0)[0]


def _expand(node: Node, rng: random.Random) -> str:
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return _expand(node[int(rng.random() * len(node))], rng)
    return "".join([_expand(part, rng) for part in node])


class Draw:
    """Draws from one side of the split, by one seed.

    `pieces` are a tokenizer's tokens of letters; with them, some words are made of those.
    """

    def __init__(self, seed: int | str, held: bool = False, pieces: Sequence[str] = ()):
        self.rng = random.Random(seed)
        self.held = held
        self.pieces = pieces

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        return self.rng.sample(options, count)

    def between(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def mine(self, key: str) -> bool:
        return held_out(key) == self.held

    def one_of(self, options: Sequence[str]) -> str:
        """One of this side's part of a list."""
        for _ in range(TRIES):
            word = self.pick(options)
            if self.mine(word):
                return word
        return word

    def say(self, pattern: str, **values: object) -> str:
        """`[this|that] word {value}`: a phrasing of this side, then the values."""
        tree = _parsed(pattern)
        for _ in range(TRIES):
            text = _expand(tree, self.rng)
            if self.mine(text):
                break
        text = " ".join(text.split(" ")) if "  " not in text else re.sub(" +", " ", text)
        text = text.strip(" ")
        for key, value in values.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    def made_word(self) -> str:
        """A word that no list holds."""
        for _ in range(TRIES):
            dice = self.rng.random()
            word = self._blend() if dice < 0.3 else self._spelt() if dice < 0.36 else self._sung()
            if dice > 0.85 and self.pieces:
                word = self._joined().lower()
            if 3 < len(word) <= 12 and self.mine(word):
                break
        return word

    def _sung(self) -> str:
        """Syllables."""
        count = self.pick((1, 2, 2, 2, 3))
        word = "".join(
            self.pick(_ONSETS) + self.pick(_VOWELS) + self.pick(_CODAS) for _ in range(count)
        )
        if count == 1 and len(word) < 4:
            word += self.pick("aeio") + self.pick("nrtls")
        return word

    def _blend(self) -> str:
        """Parts of listed words: other words of the language are made of them too."""
        parts = []
        for _ in range(self.pick((2, 2, 3))):
            word = self.pick(_TAUGHT)
            size = self.between(2, 5)
            first = self.pick((0, max(0, len(word) - size), self.between(0, len(word) - 1)))
            parts.append(word[first : first + size])
        return "".join(parts)

    def _joined(self) -> str:
        """Tokens side by side; many stand only in the template or inside longer ones otherwise."""
        return "".join(self.pick(self.pieces) for _ in range(self.pick((1, 2, 2))))

    def _spelt(self) -> str:
        """Letters, as in a password."""
        return "".join(self.pick("abcdefghijklmnopqrstuvwxyz") for _ in range(self.between(4, 7)))

    def _own_joined(self) -> str:
        for _ in range(TRIES):
            word = self._joined()
            written = (word, word.lower(), word[0].upper() + word[1:])
            if len(word) <= 14 and all(self.mine(one) for one in written):
                break
        return word

    def name(self) -> str:
        if self.pieces and self.chance(0.15):
            word = self._own_joined()
            return word[0].upper() + word[1:]
        return self.one_of(NAMES) if self.chance(0.3) else self.made_word().capitalize()

    def city(self) -> str:
        return self.one_of(CITIES) if self.chance(0.5) else self.made_word().capitalize()

    def noun(self) -> str:
        if self.pieces and self.chance(0.15):
            return self._own_joined().lower()
        return self.one_of(NOUNS)

    def word(self) -> str:
        if self.chance(0.5):
            return self.made_word()
        if self.pieces and self.chance(0.35):
            return self._own_joined()
        return self.one_of(self.pick((NOUNS, NOUNS, ADJECTIVES, VERBS, COMMON)))

    def codeword(self) -> str:
        kind = self.rng.random()
        if kind < 0.3:
            return self.word()
        if kind < 0.45:
            return self.word().upper()
        if kind < 0.6:
            return self.word().capitalize()
        if kind < 0.75:
            return f"{self.word()}{self.pick(_JOINTS)}{self.word()}"
        if kind < 0.85:
            return f"{self.word()}{self.between(0, 99)}"
        letters = "".join(self.pick("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(self.between(2, 4)))
        return f"{letters}{self.pick(['-', '', ' '])}{self.number(2, 4)}"

    def number(self, least: int = 1, most: int = 4) -> str:
        digits = self.between(least, most)
        low = 10 ** (digits - 1) if digits > 1 else 0
        for _ in range(TRIES):
            number = str(self.between(low, 10**digits - 1))
            if digits < 3 or self.mine(number):
                break
        return number

    def sentence(self) -> str:
        """A sentence that means little, to stand between others."""
        text = self.say(
            self.pick(_SENTENCES),
            n=self.noun(),
            m=self.noun(),
            o=self.noun(),
            a=self.pick(ADJECTIVES),
            b=self.pick(ADJECTIVES),
            v=self.pick(VERBS),
            d=self.pick(ADVERBS),
            p=self.name() if self.chance(0.5) else self.pick(NAMES),
            c=self.pick(CITIES),
            k=self.between(2, 90),
        )
        return text[0].upper() + text[1:]


_SENTENCES = (
    "the {a} {n} [is|was|stands|lies|sat] [near|behind|under|beside|above] the {b} {m}.",
    "{p} [went|travelled|drove|walked] to {c} [to {v}|with a {n}|and saw the {a} {m}].",
    "[we|they|people here|the neighbours] {v} [the {n}|a {a} {n}|with the {m}] {d}.",
    "it [is|was] a {a} [day|morning|night|week], and the {n} was {b}.",
    "[there are|I counted|she saw] {k} {a} [things|boxes|books|birds] [in|near] the {n}.",
    "a {n} [can|may|should|will] {v} {d}, but the {m} [cannot|will not|never did].",
    "{p} [says|thinks|wrote|believes] that the {n} [looks|seems|is] {a}.",
    "[if|when|because] the {n} is {a}, the {m} [must be|stays|becomes] {b}.",
    "[in|near|far from] {c} the {n} and the {m} are {a}, [so|and] {p} {d} [waits|sings|laughs].",
    "nobody [knows|remembers|asked] why the {a} {n} [left|came|stopped] {d}.",
    "[you|I|we] [could|would|should] {v} the {n} before the {m} and the {o}.",
    "the {n}, the {m} and the {o} [cost|weigh|need] {k} [coins|pounds|hours].",
)
