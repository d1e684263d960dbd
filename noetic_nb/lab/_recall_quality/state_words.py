"""Words and phrases by which likes, habits and states of people are known, and those of acts, thoughts and requests."""

from __future__ import annotations

import re
from typing import Final

# A longer sentence is a paste.
LONGEST_SENTENCE: Final = 400


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRONOUNS: Final = _words("i we he she they")
OWNERS: Final = _words("my our his her their")
PEOPLE: Final = _words(
    "mother father mum mom dad parent wife husband spouse partner son daughter kid child children baby toddler twin "
    "brother sister grandmother grandfather grandma grandpa grandparent grandson granddaughter granny aunt uncle "
    "cousin niece nephew girlfriend boyfriend fiancé fiancée boss manager friend neighbour neighbor colleague "
    "flatmate roommate family guest client boy girl dog cat puppy pet horse team household in-laws teenager "
    "grandchild grandchildren"
)
OF_PERSON: Final = PRONOUNS | OWNERS | _words("me us him them")
LEADS: Final = _words(
    "and but so oh well also because since please actually btw fyi remember note ok okay yes no yeah just then as "
    "although though while that anyway besides kindly hey hi hello honestly sadly unfortunately luckily now sorry"
)
HABIT: Final = _words(
    "always never usually rarely seldom only mostly normally typically generally mainly often nowadays"
)
ADVERBS: Final = HABIT | _words(
    "really also still just now currently even actually quite rather much both all already sometimes hardly ever so "
    "very too somehow longer no absolutely simply pretty more less most almost nearly"
)
BE: Final = _words("am are is was were be 'm 're")
NOT_AFTER: Final = _words("do does did can could will would must should may might")
LIKING: Final = _words(
    "like love hate enjoy prefer adore detest loathe despise dislike avoid favour favor crave fear refuse suffer "
    "tolerate fancy"
)
CANNOT: Final = _words(
    "stand bear have eat drink tolerate take handle do live digest swim drive hear walk climb sleep stomach sit fly "
    "travel work touch wear smell cope stay use lift carry read cook dance ride swallow chew run"
)
OF_SCREENS: Final = _words(
    "open access log reach connect load join print download install upload edit delete move click type reset turn "
    "switch play sign verify unlock attend pick process make"
)
ENDED: Final = _words(
    "stopped quit gave given swore sworn switched converted turned became become went gone cut took taken"
)
PREPOSITIONS: Final = _words("of to with at on about against from for in around without than by")
PARTICLES: Final = _words("up out off to into from away")
CONDITION: Final = re.compile(
    r"(?:allerg|intoleran|diabet|asthma|migrain|arthrit|epilep|phobi|celiac|coeliac|vegetarian|vegan|pescatarian|teetotal|kosher|"
    r"halal|anxiet|depress|tinnitus|eczema|psoriasis|vertigo|an(?:a)?emi|hypertens|thyroid|claustro|stutter|hernia|osteo|dyslexi|autis|adhd|insomnia|pregnan|pacemaker|wheelchair|lactose|deaf|sober)\w*$|\w*phobi[ac]$|"
    r"(?:left|right)-hande[dr]$|(?:near|short|long|far)-?sighted$|colou?r-?blind$|\w+-free$"
)
FAVOURITE: Final = _words(
    "favourite favorite preference preferences preferred diet pronouns hobby hobbies religion weakness nationality "
    "allergies allergy size budget usual"
)
# What is said of a moment is no state.
MOMENT: Final = _words(
    "able about absolutely amazed amazing angry annoyed around at available aware awake awesome away back before "
    "better bored busy by certain close cold confident confused correct curious delighted disappointed done down due "
    "eager early excited far fine finished first for free full fully glad going gone gonna good grateful great happy "
    "here home honest hopeful hot hungry ill impressed in inside interested just kidding kind last late likely lost "
    "lovely mad many mine near new next nice not of off offline ok okay on one online open out outside over perfect "
    "pleased positive probably ready right sad safe satisfied saying serious set sick sorry stuck sure surprised "
    "thankful the then there thirsty this through tired to together two unable under unhappy unsure up upset warm "
    "welcome well what where who willing with within without worried worse wrong yet it that interesting important "
    "like as familiar responsible afraid moment minute lot couple hurry bit customer user asleep confirmed allowed "
    "supposed eligible entitled traveling travelling member"
)
# "Tired of", "not happy with": of a moment without the preposition, a state with it.
FELT: Final = _words(
    "addicted terrified scared frightened petrified opposed devoted obsessed committed used accustomed disgusted "
    "fascinated"
)
SETTLED: Final = _words("married retired divorced engaged widowed separated disabled trained related gifted")
LASTING_ACTS: Final = _words(
    "living avoiding learning dating recovering expecting saving training studying raising breastfeeding cutting "
    "caring commuting renting allergic"
)
LASTING: Final = _words("afraid sick tired fond bad good interested into off close comfortable careful strict new")
# No habits, even in the present: thoughts, requests, and what is done by saying it.
PASSING: Final = _words(
    "accept add admit advise agree aim apologise apologize appreciate approve arrive ask assume attach authorise "
    "authorize be beg believe bet bring call can cannot check choose claim come compare complain confirm consider "
    "contact continue could decide demand deserve did do does doubt end enter expect explain feel figure file find "
    "finish fix forget get give go gonna guess had handle has have hear help hope imagine include insist intend just "
    "know leave let look lose manage may mean mention might miss must need notice object offer order owe pay plan "
    "please pick point promise propose provide put quote realise realize recall receive recommend refer regret "
    "remember remind report request require return said say see seem select send shall should show sound start "
    "state stay submit suggest suppose swear tell thank think trust try understand update urge wait wanna want was "
    "were will wish wonder would write got worry"
)
PAST: Final = _words(
    "ate began bent blew bought broke brought built came caught chose did drank drew drove fell felt flew forgot "
    "found gave got grew heard held hid kept knew laid led left lent lost made meant met paid ran rang rode rose sang "
    "sat saw sent shook shot slept sold spent spoke stole stood stuck swam taught told took thought threw understood "
    "won woke wore wrote went was were had set reset read put shut cut hit"
)
OWNED: Final = _words(
    "access account answer appointment bag bags booking bookings call card cards certificate certificates chance "
    "change changes code comment complaint concern concerns copy couple doubt doubts email enough error errors "
    "everything feeling few file files flight flights fun good great idea ideas information issue issues item items "
    "lot look meeting message minute moment more news nothing number one option options order orders package payment "
    "plan plans point problem problems question questions receipt refund request requests reservation reservations "
    "right second some something suggestion ticket tickets time to trip update"
)
VAGUE: Final = _words("it that this them these those how your you what there here to if")
NO_STATE: Final = _words(
    "a an the some any back home out in on off up done ready going started paid an error errors messages through"
)
NO_BAN: Final = _words(
    "worry mind forget think know be get hesitate understand want have need see remember it that bother you we i let "
    "wait"
)
ORDERED: Final = _words(
    "use write add put call contact answer reply send give make keep set include show format run ask sign start serve "
    "cook buy book name speak talk address mention explain order bring leave wake text email ring message commit push"
)
REGULAR: Final = re.compile(
    r"\bevery (?:day|morning|evening|night|week|weekend|month|year|other|\w+day)\b|"
    r"\bon (?:mon|tues|wednes|thurs|fri|satur|sun)days\b|"
    r"\b(?:once|twice) an? |\bat night\b|\bthese days\b|\bnowadays\b|\bfrom now on\b"
)
NO_LONGER: Final = re.compile(
    r"\bno longer\b|\banymore\b|\bany longer\b|\bany more\b(?=$| (?:when|because|since|at|in|on|after|than|these|now)\b)"
)
FOR_NOW: Final = re.compile(r"\bstill\b|\bright now\b|\bat the moment\b|\btoday\b|\bcurrently\b|\balready\b|\byet\b")
STANDING: Final = re.compile(
    r"\b(?:from now on|in (?:the )?future|going forward|whenever|by default|at all times|(?:each|every) time)\b"
)
EFFECT: Final = re.compile(
    r"\b(?:makes?|gives?) (?:me|us|him|her|my [\w-]+) (?!a call|a minute|a moment|a second|the|think|wonder)\w|"
    r"\b(?:hurts?|upsets?|bothers?|scares?) (?:me|us|him|her|my)\b|"
    r"\b(?:bad|dangerous|deadly|unsafe|hard(?:er)?|painful|too \w+) for (?:me|us|him|her|my)\b|"
    r"\bagrees? with (?:me|him|her|my)\b|"
    r"\b(?:drives?|stress(?:es)?|annoys?|irritates?|bores?|calms?|relaxes|suits?|triggers?|"
    r"disgusts?|frightens?|worries|tires?) (?:me|us|him|her|my)\b|"
    r"\b(?:is|are) (?:one of )?(?:my|our|his|her) (?:favou?rites?|things?|passion|weakness|hobby|go-to)\b|"
    r"\b(?:is|are) what (?:i|we|he|she) (?:go for|goes for|likes?|prefers?|needs?)\b|"
    r"\b(?:i|we|he|she|they|my [\w-]+) (?:grew up|(?:was|were) (?:born|raised)|(?:was|were) diagnosed)\b|"
    r"\b(?:is|are|am) (?:currently )?on (?:an? |the )?(?:[\w-]+ ){0,2}"
    r"(?:diet|medication|meds|pills?|antibiotics|insulin|shifts?)\b|"
    r"\b(?:want|need|like) (?:all |your |every )?(?:\w+ )?"
    r"(?:replies|answers|responses|messages|dates|amounts|prices|names|letters) "
    r"(?:in|as|by|to|with|without|only)\b|\b(?:important|matters) to (?:me|us)\b|"
    r"\b(?:i|we|he|she) finds? (?:[\w-]+ ){1,4}(?:\w+(?:ful|ous|able|ible|ting|ring|sing|ying)|hard|difficult|easy)$|"
    r"\bmy cup of tea\b|\bnot (?:really )?(?:my|our) thing\b|"
    r"\b(?:doctor|dentist|physician|therapist|nurse|vet) (?:has )?(?:told|advised|ordered|forbade|forbids|wants|says)\b"
)
ALONE: Final = _words("smoke drink drive swim snore stutter cook sing paint dance ski dive hunt knit commute")
SINCE: Final = re.compile(r"\bsince\b|\bfor (?:[a-z]+ )?(?:years|months|ages|decades)\b")
FRONTED: Final = _words(
    "since at in on after before for during with without these nowadays usually most every by due because when whenever"
)
EITHER: Final = _words("read put set cut let hit shut")
BODY: Final = _words(
    "knee knees back eyes eye ears ear hearing eyesight sight stomach heart skin hair feet foot leg legs hand hands "
    "hip hips shoulder lungs liver teeth voice memory blood"
)
SHORT_NO: Final = re.compile(r"^no (?:[\w-]+ ){1,4}(?:for (?:me|us|him|her)|please)\b")
MANNER: Final = re.compile(
    r"^(?:keep|answer|reply|respond|speak|talk|write|address|call|use|stick)\b.*\b(?:short|brief|concise|simple|formal|informal|"
    r"me (?:by|in|as)|to me in|in (?:[a-z]+ish|german|french|italian|plain|one|bullet|metric)|(?:metric|bullet|plain) \w+|only)\b"
)
GERMAN: Final = re.compile(
    r"\b(?:allergi\w*|unverträglich\w*|vertr(?:age|ägt|agen)|vegetari\w*|vegan\w*|schwanger|angst vor|lieber|am liebsten|"
    r"bevorzug\w*|mag|mögen|hass(?:e|t|en)|liebe|liebt|lieben|nicht mehr|kein\w*|nie|niemals|immer|nur noch|gern|gerne|"
    r"ungern|leiden|ausstehen|abgewöhnt|aufgehört|lieblings\w+|verzicht\w*|meid\w*|diabet\w*|rollstuhl|linkshänder\w*|"
    r"bitte (?:nie|immer|nicht|kein\w*))\b"
)
GERMAN_PERSON: Final = re.compile(r"\b(?:ich|wir|er|sie|man|mich|mir|uns|bitte|(?:mein|unser|sein|ihr)\w*)\b")
GERMAN_NONE: Final = re.compile(
    r"\b(?:möchte|würde|hätte|immer noch|nicht mehr lange|noch immer|liebe grüße|"
    r"keine (?:ahnung|frage|zeit|idee|sorge)|kein (?:problem|thema|stress))\b"
)
# What marks such a sentence in other languages.
ABROAD: Final = re.compile(
    r"\b(?:allergi(?:que|c[oa])|al[ée]rgic[oa]|intoléran\w+|intolerante|végétari\w+|vegetarian[oa]|vegan[oa]|je préfère|"
    r"prefier[oe]|preferisco|prefiro|déteste|odio|odia|j'aime|n'aime|me gust\w+|me encanta|mi piac\w+|ne mange|"
    r"ne bois|non mangi\w|non bev\w|"
    r"ya no|non .* più|não .* mais|аллерги\w*|ненави\w+|предпочита\w+|не люб\w+|люблю|больше не|не ем|не пью)\b"
    r"|过敏|過敏|アレルギー|알레르기|喜欢|喜歡|不吃|不喝|好き|嫌い|좋아|싫어|苦手",
)
CLAUSE: Final = re.compile(
    # A comma, or such a word, ends a clause where another subject follows; else it stands in a list.
    r"[;()–—]+\s*|\s-+\s|(?:[,:]\s*(?:(?:and|but|so)\s)?|\s(?:and|but|so|because|since|although|though|while)\s)"
    r"(?=(?:i|we|he|she|they|it|that|this|you|my|our|his|her|their|please|never|always|do not|don['’]t)\b)",
    re.IGNORECASE,
)
TOKEN: Final = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
SHORT: Final = {
    "can't": "can not",
    "cannot": "can not",
    "won't": "will not",
    "i'm": "i am",
    "let's": "let us",
    "gonna": "going to",
}
SUFFIXES: Final = (("n't", "not"), ("'ve", "have"), ("'re", "are"), ("'d", "would"), ("'ll", "will"), ("'m", "am"))


GERMAN_ONLY: Final = _words(
    "ich wir mein meine meinen meiner unser unsere nicht kein keine keinen mehr und ist bin gegen vor sie er hat am "
    "im der die das bitte kann mir mich lieber gern gerne immer nie nur noch esse essen trinke aber auch für mit es "
    "ein eine einen seit nach bei zu"
)
