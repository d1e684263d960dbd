"""Words that mark facts: words that begin a sentence but are no names, and words that announce a decision."""

from __future__ import annotations

import re
from typing import Final

# Words that begin sentences and are no names, in lower case.
_NOT_NAMES_TEXT: Final = """
    a about above according actually added after afterwards again ah all almost alright already also although always
    am an and another any anybody anyone anything anyway are as ask at awesome back based be because been before below
    besides best better between both bring but buy by call can cannot certainly change check choose clearly click
    close come confirm congratulations consider contact cool could currently date dear definitely delete despite did
    do does done due during each earlier either email else enjoy enter error even every everybody everyone everything
    exactly excellent except fair fantastic few finally find fine first following for forget forward found from fun
    further generally get give given glad go good goodbye got great had half happy hardly has have having he hello
    help her here hers hey hi high hmm his hold hope how however hurry if important in indeed inside instead into is
    it its just keep kindly know last lastly later least leave less let lets like likewise listen little look lots
    lovely low luckily make many may maybe me meanwhile might mine more moreover most move much must my name need
    needed neither never nevertheless new next nice no nobody none noone nope nor not note nothing now number of off
    often oh ok okay on once one only onto open or order other others otherwise ought our ours out outside over
    overall own pay perfect perhaps pick place please plus possibly previously probably put quite rather read ready
    really recently regarding reminder remember remind result right said same save say second see seems send set
    several shall she should show similarly simply since so some somebody somehow someone something sometimes soon
    sorry sounds start status still stop such sure take talk tell than thank thanks that the their theirs them then
    there therefore these they thing things think third this those though through thus till to today together tomorrow
    tonight too total totally toward true try turn two type under understood unfortunately unless unlike until up
    update updated upon us use used usually very via wait was watch way we welcome well were what whatever when
    whenever where whereas wherever whether which while who whoever whom whose why will with within without wonderful
    would wow write yeah yep yes yesterday yet you your yours yourself i i'm i'll i've i'd we're we'll we've you're
    you'll he's she's it's that's there's here's what's let's don't didn't doesn't isn't can't won't couldn't wouldn't
    shouldn't haven't hasn't wasn't weren't ab aber ach alle allerdings alles als auch auf aus außerdem bald bei beide
    beim bis bitte da dabei dadurch dafür dagegen daher damals damit danach dank danke dann daran darauf darum das
    dass dein deine dem den denn der des deshalb die dies diese dieser dieses doch dort du durch ein eine einem einen
    einer eines einfach endlich entschuldigung er erst es etwa etwas euch euer eure falls fast für ganz gar gegen
    genau gerade gern gerne gestern gibt gut habe haben hallo hat hatte hättest heute hier hinter ich ihm ihn ihnen
    ihr ihre im immer inzwischen ist ja jede jeder jedes jetzt kann kannst kein keine können könnte leider liebe
    lieber mach machen man manchmal mehr mein meine mir mit möchte morgen muss müssen na nach natürlich neben nein
    nicht nichts nie niemand noch nun nur ob oder ohne prima schade schon schön sehr sei sein seine seit sich sie sind
    sobald sogar soll sollen sollte sondern sonst super stimmt trotzdem über übrigens um und uns unser unsere unter
    viel viele vielleicht vielen vom von vor vorher wann war waren warum weder wegen weil weiter welche wenn wer werde
    werden wie wieder wir wird wo wohl wollen worden würde wurde zu zuerst zuletzt zum zur zwar zwischen au aussi avec
    bien bonjour ce cela ces cette comme comment d'accord dans de donc elle elles en encore est et il ils j'ai je la
    le les leur lui mais merci mes moi mon ma ne nous non notre ou où oui par parce pas peut pour pourquoi puis quand
    que quel quelle qui sa salut sans ses si son sont sur ta tes ton très tu un une voici voilà votre vous ahora al
    antes aquí así aunque bueno claro como con cuando cuándo del desde donde dónde el él ella ellos entonces esa ese
    eso esta está este esto gracias ha hay hola hoy las lo los luego mañana más mi mis mucho muy nada nos o para pero
    por porque pues qué quién se sí sin sobre su sus también te tengo una usted y ya yo che chi cosa grazie ciao
    buongiorno gli per anche perché quando dove io lei noi voi loro и а но да нет это что как где когда кто я ты он
    она мы вы они мой моя наш привет спасибо пожалуйста здравствуйте сегодня завтра вчера также если потом для на в во
    с со по из у к о об от до не ни же ли бы то так там тут здесь вот ещё уже очень και το τα τη την της του ο η οι με
    για από σε δεν ναι όχι είναι τι πού πότε ποιος γεια ευχαριστώ"""
NOT_NAMES: Final = frozenset(_NOT_NAMES_TEXT.split())

_PARTICLES_TEXT: Final = """
    von van der den de del della di da la le du dos bin ibn ben al el af av zu zum ter y e"""
PARTICLES: Final = frozenset(_PARTICLES_TEXT.split())
"""Words in lower case that stand inside a name."""

_TITLES_TEXT: Final = """
    mr mrs ms miss dr prof professor sir herr frau monsieur madame señor señora don st"""
TITLES: Final = frozenset(_TITLES_TEXT.split())

_PERSON_WORDS_TEXT: Final = """
    is was has had will would says said wants wanted likes liked loves loved lives lived works worked moved called
    calls asked asks needs needed prefers preferred told wrote booked bought paid ordered owns hates plays went goes
    came comes joined left agreed decided chose met knows thinks thought can could should does did and ist war hat
    hatte wird möchte sagt sagte mag wohnt lebt arbeitet zog ruft rief braucht bevorzugt fährt kommt kam geht ging
    kauft kaufte zahlt besitzt und est a veut habite aime vit travaille préfère es está tiene quiere vive trabaja
    prefiere leads teaches writes runs manages handles repairs keeps studies plays drives sells makes helps brings owes
    sends takes treats cooks gives speaks travels sings begins starts studied живёт живет работает хочет любит сказал сказала"""
PERSON_WORDS: Final = frozenset(_PERSON_WORDS_TEXT.split())
"""What follows a name that begins a sentence."""

# Nouns that begin sentences in talk of all kinds.
_COMMON_TEXT: Final = """
    access account address agent air amount answer appointment area assistant baggage balance bill bird book booking
    box boy breakfast brother budget bus business cake car card case cat change chat child city class coffee color
    colour company contract cost country course customer data daughter day deal delivery design detail dinner doctor
    document dog door economy email evening event exercise family father fee file film fish flat flight flower food
    friend future game garden girl goal guest hair hand health heat help history hobby home hotel house idea
    information internet invoice issue item job journey key kitchen language laptop law life light line list love
    luggage lunch machine mail man manager meal member memory message money month morning mother movie music name
    nature network news night noise number office order package page paper parent park parking part partner party
    passenger passport password patient payment people person phone picture plan plane plant plate policy present
    price problem process product profile project purchase question rain receipt record refund rent report request
    reservation rest result return river road room rule sale school score seat server service ship shop sister site
    size sleep snow society software son song sound sport staff status stock store story street study subject sugar
    summer sun support system table task tax tea teacher team technology test text ticket time tool town train travel
    tree trip truth understanding use user value view wall war water weather website week weekend wife wind window
    winter woman word work world year apology apologies beauty joy"""
_COMMON: Final = frozenset(_COMMON_TEXT.split())
_NOUN_END: Final = re.compile(r"(?:ing|tion|sion|ment|ness|ity|ship|ance|ence|ism|ly|ung|heit|keit|schaft|tät)$")

# Of a text in German, where every noun has a capital letter.
_GERMAN_TEXT: Final = """
    und ist nicht ich der die das wir ein eine mit für auf zu dem den hat haben sie wird im am vom"""
GERMAN: Final = frozenset(_GERMAN_TEXT.split())
GERMAN_ARTICLES: Final = re.compile(
    r"(?:der|die|das|den|dem|des|(?:k|m|d|s)?ein(?:e[nmrs]?)?|ihre?[nmrs]?|unser[enmrs]*|eure?[nmrs]?|dies\w*|jed\w*|welch\w*|"
    r"zum|zur|im|am|vom|beim|ins|ans|viele?n?|alle[nmrs]?|manche\w*|wenige?|mehr|kein\w*|ohne|per|pro|vor|seit|zu|als|"
    r"\w{3,}(?:e[nmrs]?|ig|lich|isch))$"
)

# A name of a script without capital letters is known by what stands beside it.
_HAN_SURNAME: Final = (
    "[王李张張刘劉陈陳杨楊赵趙黄黃周吴吳徐孙孫胡朱高林何郭马馬罗羅梁宋郑鄭谢謝韩韓唐冯馮于董萧蕭程曹袁邓鄧许許傅沈曾彭吕呂蔡苏蘇卢盧丁叶葉余潘杜戴"
    "夏钟鐘田姜]"
)
INTRODUCED: Final = re.compile(
    "(?:我叫|名叫|叫做|姓名是|名字是|名字叫)(?P<han>[\u4e00-\u9fff·]{2,5}?)(?=[，,。.！!、\\s住在今是]|$)"
    f"|(?P<sir>{_HAN_SURNAME}[\u4e00-\u9fff]{{0,2}}?)(?=先生|女士|小姐|老师|老師|经理|经理|医生|醫生)"
    "|(?P<san>[\u4e00-\u9fff]{1,4}|[\u30a0-\u30ff]{2,12})(?=さん|様|さま|氏|くん|ちゃん)"
    "|(?:私は|名前は|わたしは)(?P<desu>[\u4e00-\u9fff\u3040-\u30ff・]{2,12}?)(?=さん|です|と申し)"
    "|(?P<ssi>[\uac00-\ud7a3]{2,4}) ?(?=씨|님)|제 이름은 (?P<ireum>[\uac00-\ud7a3]{2,4}?)(?=입니다|이에요|예요)"
    "|(?:اسمي|السيدة|السيد|الدكتورة|الدكتور)\\s+(?P<arabic>\\w+(?:\\s(?:بن\\s|بنت\\s|أبو\\s)?\\w+)?)"
    "|(?:שמי|קוראים לי|השם שלי הוא)\\s+(?P<hebrew>\\w+(?:\\s\\w+)?)"
    "|(?:मेरा नाम|श्रीमती|श्री)\\s+(?P<hindi>[\u0900-\u097f]+(?:\\s[\u0900-\u097f]+)?)(?=\\s+(?:है|ने|को|से|का|की)|[।,.]|$)"
    "|(?:ชื่อ|คุณ)(?P<thai>[\u0e00-\u0e7f]{2,12})"
)

DECIDED: Final = re.compile(
    r"\b(?:decided|decision|we agreed|agreed (?:to|on|that)|have chosen|has chosen|chose|settled (?:on|for)|opted|"
    r"go(?:ing)? with|"
    r"approved|rejected|ruled out|the plan is|final answer|made up my mind|let's do|signed off|"
    r"entschieden|entschlossen|entscheidung|entscheide|beschlossen|beschluss|vereinbart|wir nehmen|geeinigt|genehmigt|abgelehnt|"
    r"décidé|décidons|décision|convenu|choisi|decidido|decidí|decisión|acordado|acordamos|elegido|"
    r"deciso|decisione|concordato|decidiu|decidimos|решил[аи]?|решено|договорил\w+|решение|αποφάσισ\w+)\b"
    r"|决定|決定|決め(?:た|ました)|同意了|商定|결정|قررنا|قررت|اتفقنا|החלטנו|החלטתי|फैसला|निर्णय|ตัดสินใจ",
    re.IGNORECASE,
)
"""A sentence that has one of these and asks nothing is a decision."""


def is_common_noun(word: str) -> bool:
    """Tell whether a word in lower case is more likely a noun than a name."""
    singular = word.removesuffix("s")
    return word in _COMMON or singular in _COMMON or bool(_NOUN_END.search(word))
