"""Stems of words, and the senses that words share: "foods" asks for "peanuts", "based" for "lives"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from noetic_nb.lab._recall_quality.folded_text import folded
from noetic_nb.lab._recall_quality.word_lists import WORDS
from noetic_nb.layers._helpers.embedding import root_of

# "ordered" asks for an "order": words are compared by so many letters, in scripts with blanks.
STEM: Final = 5

_EMPTY: Final = frozenset(map(folded, WORDS["not_names"])) - WORDS["saying"] | WORDS["empty"]

# Several words that mean one.
_PHRASES: Final = tuple(
    (re.compile(rf"\b(?:{form})\b"), f" {word} ")
    for form, word in (
        (
            r"(?:g[ai]ve|giving|given) up|no longer|not any ?more|any ?more|any longer|stop(?:ped)?|cut out",
            "quit avoid",
        ),
        (
            r"(?:leave|leaves|left) out|stay away from|keep away from|do without|watch out for|can ?not (?:stand|bear|have|eat)|"
            r"can ?t (?:stand|bear|have|eat)|don ?t (?:eat|drink|like)|not (?:eat|drink|like)|never (?:eat|drink|call|use)",
            "avoid",
        ),
        (r"turn(?:ed)? down|rule[ds]? out|say no to|said no to", "reject"),
        (r"settled? (?:on|for)|go(?:ing)? with|went (?:with|for)|opt(?:ed)? for|agreed? (?:on|to|that)", "choose"),
        (r"get into|get in|let myself in|log (?:in|on)(?:to)?|sign in|log (?:me|us) in", "login"),
        (r"call home|calls home|come from|grew up", "live"),
        (r"in charge of|responsible for|take care of|takes care of|look(?:s|ing)? after", "responsible"),
        (r"look(?:s|ing)? forward to|fond of|keen on|a fan of|into|would rather|d rather|am liebsten", "like"),
        (r"for a living", "job"),
        (r"takes? place|took place", "meeting"),
        (r"(?:get|got) married|tied the knot", "wedding"),
        (r"how (?:much|expensive)", "price"),
        (r"how (?:old)", "age"),
        (r"what time|by when|since when|how soon", "when"),
    )
)
# Words between two strokes share a sense.
_SENSES_TEXT: Final = """
food eat meal dish dinner lunch breakfast supper snack kitchen cook chef recipe menu restaurant diet cater grocery ingredient
cuisine meat fish shellfish seafood shrimp nut peanut hazelnut almond milk dairy lactose egg gluten wheat bread sugar salt
vegetable vegetarian vegan cheese fruit chicken beef pork olive spicy sweet chocolate dessert cake soup rice pasta tomato onion
garlic mushroom soy oat coriander cilantro celery mustard honey pepper strawberry sesame curry pizza steak eater | drink
beverage coffee tea water juice wine beer alcohol milk soda espresso decaf sober teetotal liquor whisky cocktail caffeine |
avoid omit exclude allergy allergic intolerant intolerance sensitive except forbid ban quit hate dislike detest loathe despise
refuse unpleasant bother annoy danger dangerous harmful | fear afraid scare terrify frighten phobia nervous panic dread anxious
anxiety spook terror | like love enjoy prefer preference favourite favorite fond fan keen adore rather hobby interest taste
wish | health healthy ill illness sick disease condition medical hospital pain hurt ache allergy allergic diabetes asthma
migraine knee back shoulder medicine medication pill surgery injury disability wheelchair pregnant hearing sight deaf ailment
symptom epilepsy | doctor physician dentist therapist surgeon clinic medical checkup | teeth tooth dentist dental | live reside
home based move relocate settle dwell address resident inhabit | city town place country village location | flat apartment home
house accommodation lodging room hotel rent landlord tenant hostel villa condo | alone single lonely company flatmate roommate
| price pay cost expensive charge fee bill invoice rent amount sum total money spend cheap budget euro dollar pound quote value
| salary earn wage income pay | order purchase buy bought | parcel package shipment delivery ship deliver track courier
consignment | own buy bought possess purchase acquire belong | car vehicle automobile drive van truck auto | bicycle bike cycle
| repair fix mend mechanic service maintain garage | flight plane fly airline airport airplane boarding aircraft | train rail
railway station platform track | depart leave start departure set | begin start open commence kick launch | meeting conference
appointment session interview call talk | music concert song band orchestra cello piano guitar violin flute drum instrument
sing choir melody gig | child kid son daughter baby toddler offspring | daughter girl | son boy | mother mum mom mama | father
dad papa | grandmother granny grandma nan | grandfather grandpa granddad | wife spouse partner married husband wed | brother
sister sibling | boss manager supervisor chief superior lead | friend pal buddy mate | colleague coworker teammate | teacher
teach tutor instructor lesson coach professor | pet animal dog cat puppy kitten rabbit horse parrot | choose chose chosen pick
select decide decision opt agree conclude conclusion decree | reject refuse decline veto deny | supplier vendor seller dealer
provider contractor merchant | furniture table chair desk sofa couch bed cupboard shelf wardrobe bench | shelter tent camp |
file config configuration setting document path folder directory | store save keep kept stash hold located location | backup
copy dump archive snapshot | database db sql postgres postgresql mysql sqlite warehouse | command run start execute launch
script invoke | test pytest suite check | deploy ship release publish rollout version upload | password code pin access login
key secret passphrase credential enter entry unlock combination | door building house entrance gate office | network wifi
internet wlan router connection | seat sit window aisle chair row | work job employ profession occupation career shift employer
| document report paper write letter essay text article | responsible write charge duty owner assign lead | language speak
german italian english french spanish tongue | colour color green red blue yellow black white shade | film movie cinema watch
series | book novel read author | sport gym exercise football tennis swim jog run workout train | smoke cigarette tobacco | bag
luggage suitcase baggage | phone mobile telephone ring call cell | mail email | holiday vacation trip travel journey tour |
warehouse depot goods stock storage | bill invoice receipt | party celebration event birthday | company firm employer business
| school university college class study | contract agreement deal | problem trouble issue bad bug error | sleep bed night
insomnia | morning evening night afternoon | height high altitude | needle injection jab vaccine syringe | spider insect | wear
clothes lenses glasses dress outfit | hear listen deaf ear | see sight eye glasses lenses blind | age old birthday born | short
brief concise | address title surname | port socket | branch git merge | library framework package dependency | deadline due
date | weekday monday tuesday wednesday thursday friday saturday sunday | nationality citizen passport | garden plant grow yard
| child birth pregnant expect | reply answer respond response | training workshop course seminar lesson class meeting |
passport licence license card document identity visa | wedding anniversary married bride groom | fuel petrol gas gasoline
octane diesel | lead head manage run direct organise organize charge responsible own | allergic allergy sting wasp bee insect
pollen dust fur | shoe size fit wear clothes | swim pool lake sea beach | cold winter heat warm temperature freeze | noise loud
quiet silent silence music | morning early wake get-up sunrise | crowd busy people packed | bank account iban cash card pay |
weekend saturday sunday | move shift relocate | lift elevator stairs floor staircase | key lock locker safe | light lamp bulb |
plate licence registration | client customer buyer | product item goods article | test exam check verify trial | error
exception failure crash fault | branch version release tag | format style layout | unit metric imperial kilometre mile celsius
fahrenheit | currency euro dollar pound franc | table booth seat reservation book reserve | stay night hotel hostel
accommodation | gift present | sauce dressing mayonnaise ketchup | breakfast morning | weight kilo pound heavy weigh | tall
height centimetre metre | eye glasses vision contact lens | hand left right | run jog marathon | church mosque temple faith
religion muslim christian jewish hindu buddhist | vote party politics | country nation germany france spain italy austria |
team group squad crew | plan schedule agenda timetable calendar | cancel abort drop call-off postpone delay | return refund
bring-back | call ring phone contact reach | signal sign | mouse keyboard screen monitor laptop computer | cloud server host
machine | limit maximum cap threshold ceiling | reason cause why | purpose goal aim target objective | rule policy constraint
requirement must | title heading headline | author writer | owner own belong | boat ferry ship vessel sail harbour | rent
rental lease tenancy contract landlord tenant | power electricity energy current | hire job employ recruit | bird parrot budgie
hen | image photo picture snapshot | publish online website site web | ticket booking reservation reference confirmation | vet
animal pet | skin rash cream latex | end finish expire run-out stop | furnish oven stove cooker fridge dishwasher washing |
hour time clock | pharmacy medicine tablet prescription | roof house attic cellar basement | police court lawyer judge |
newspaper magazine journal | wine cellar bottle | coach bus tram metro underground subway transport | walk hike foot stroll |
instrument play music | paint art museum gallery | game chess play cards | water sea river lake | nurse hospital clinic care"""


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a folded word without its English endings, cut to the letters by which words are compared."""
    return root_of(word)[:STEM]


@cache
def _senses() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for number, line in enumerate(_SENSES_TEXT.split("|")):
        for word in line.split():
            found.setdefault(root_of(word).removesuffix("e"), set()).add(f"={number}")
    return {word: frozenset(names) for word, names in found.items()}


@lru_cache(maxsize=20_000)
def _senses_of(word: str) -> frozenset[str]:
    return _senses().get(root_of(word).removesuffix("e"), frozenset()) | {stem(word)}


def _telling(words: Iterable[str]) -> list[str]:
    return [word for word in words if word not in _EMPTY and (len(word) > 1 or not word.isascii())]


def telling_words(text: str) -> tuple[frozenset[str], ...]:
    """Return the words of a text that say something, each as its stem and senses, without repeats."""
    plain = folded(text)
    for form, word in _PHRASES:
        plain = form.sub(word, plain)
    return tuple(dict.fromkeys(map(_senses_of, _telling(plain.split()))))


def stems(words: Iterable[str]) -> frozenset[str]:
    """Return the stems of the words that say something."""
    return frozenset(map(stem, _telling(words)))


# Words that deny, by how they begin: what is avoided, feared or has ended is told by a sentence that denies it.
_DENIES: Final = re.compile(
    r"\b(?:no|not|t|never|nor|none|without|cannot|cant|wont|longer|anymore|free|against|bad|trouble|kein\w*|nicht|nie|niemals|ohne|"
    r"(?:avoid|allerg|intoleran|hat(?=e)|dislik|detest|loath|despis|stop|quit|afraid|scar|terrif|fear|phobi|refus|exclud|omit|forbid|ban(?=\b|n)|"
    r"uncomfort|suffer|sensitiv|gave|give|cut|ended|former|used|meid|verzicht|hass|ungern|unvertrag)\w*)\b"
)
_LIGHT: Final = frozenset(map(stem, WORDS["light"]))
# What a word says without saying it.
_IMPLIED: Final = {
    "vegetarian": "meat",
    "vegan": "meat dairy",
    "teetotal": "alcohol",
    "sober": "alcohol",
    "coeliac": "gluten",
    "celiac": "gluten",
}


def denies(words: str) -> bool:
    """Tell whether folded words deny something."""
    return _DENIES.search(words) is not None or not _IMPLIED.keys().isdisjoint(words.split())


def core(said: str) -> frozenset[str]:
    """Return the stems of a like or state by which it is recognized: its subject, without words that like or deny."""
    words = folded(said)
    found = stems(_DENIES.sub(" ", words).split())
    return found - _LIGHT or found or stems(words.split())


def sentence_stems(words: str) -> frozenset[str]:
    """Return the stems of the folded words of a sentence, and of the words they imply."""
    return stems([*words.split(), *[more for word in words.split() for more in _IMPLIED.get(word, "").split()]])
