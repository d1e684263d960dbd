"""Words by which facts, names, states of people, paths and commands are known, in lists of one name each."""

from __future__ import annotations

from typing import Final

_TEXT: Final = """
not_names: a about above according actually added after afterwards again ah all almost alright already also although always am an
and another any anybody anyone anything anyway are as ask at awesome back based be because been before below besides best better
between both bring but buy by call can cannot certainly change check choose clearly click close come confirm congratulations
consider contact cool could currently date dear definitely delete despite did do does done due during each earlier either email
else enjoy enter error even every everybody everyone everything exactly excellent except fair fantastic few finally find fine
first following for forget forward found from fun further generally get give given glad go good goodbye got great had half happy
hardly has have having he hello help her here hers hey hi high hmm his hold hope how however hurry if important in indeed inside
instead into is it its just keep kindly know last lastly later least leave less let lets like likewise listen little look lots
lovely low luckily make many may maybe me meanwhile might mine more moreover most move much must my name need needed neither never
nevertheless new next nice no nobody none noone nope nor not note nothing now number of off often oh ok okay on once one only onto
open or order other others otherwise ought our ours out outside over overall own pay perfect perhaps pick place please plus
possibly previously probably put quite rather read ready really recently regarding reminder remember remind result right said same
save say second see seems send set several shall she should show similarly simply since so some somebody somehow someone something
sometimes soon sorry sounds start status still stop such sure take talk tell than thank thanks that the their theirs them then
there therefore these they thing things think third this those though through thus till to today together tomorrow tonight too
total totally toward true try turn two type under understood unfortunately unless unlike until up update updated upon us use used
usually very via wait was watch way we welcome well were what whatever when whenever where whereas wherever whether which while
who whoever whom whose why will with within without wonderful would wow write yeah yep yes yesterday yet you your yours yourself i
i'm i'll i've i'd we're we'll we've you're you'll he's she's it's that's there's here's what's let's don't didn't doesn't isn't
can't won't couldn't wouldn't shouldn't haven't hasn't wasn't weren't ab aber ach alle allerdings alles als auch auf aus außerdem
bald bei beide beim bis bitte da dabei dadurch dafür dagegen daher damals damit danach dank danke dann daran darauf darum das dass
dein deine dem den denn der des deshalb die dies diese dieser dieses doch dort du durch ein eine einem einen einer eines einfach
endlich entschuldigung er erst es etwa etwas euch euer eure falls fast für ganz gar gegen genau gerade gern gerne gestern gibt gut
habe haben hallo hat hatte hättest heute hier hinter ich ihm ihn ihnen ihr ihre im immer inzwischen ist ja jede jeder jedes jetzt
kann kannst kein keine können könnte leider liebe lieber mach machen man manchmal mehr mein meine mir mit möchte morgen muss
müssen na nach natürlich neben nein nicht nichts nie niemand noch nun nur ob oder ohne prima schade schon schön sehr sei sein
seine seit sich sie sind sobald sogar soll sollen sollte sondern sonst super stimmt trotzdem über übrigens um und uns unser unsere
unter viel viele vielleicht vielen vom von vor vorher wann war waren warum weder wegen weil weiter welche wenn wer werde werden
wie wieder wir wird wo wohl wollen worden würde wurde zu zuerst zuletzt zum zur zwar zwischen au aussi avec bien bonjour ce cela
ces cette comme comment d'accord dans de donc elle elles en encore est et il ils j'ai je la le les leur lui mais merci mes moi mon
ma ne nous non notre ou où oui par parce pas peut pour pourquoi puis quand que quel quelle qui sa salut sans ses si son sont sur
ta tes ton très tu un une voici voilà votre vous ahora al antes aquí así aunque bueno claro como con cuando cuándo del desde donde
dónde el él ella ellos entonces esa ese eso esta está este esto gracias ha hay hola hoy las lo los luego mañana más mi mis mucho
muy nada nos o para pero por porque pues qué quién se sí sin sobre su sus también te tengo una usted y ya yo che chi cosa grazie
ciao buongiorno gli per anche perché quando dove io lei noi voi loro и а но да нет это что как где когда кто я ты он она мы вы они
мой моя наш привет спасибо пожалуйста здравствуйте сегодня завтра вчера также если потом для на в во с со по из у к о об от до не
ни же ли бы то так там тут здесь вот ещё уже очень και το τα τη την της του ο η οι με για από σε δεν ναι όχι είναι τι πού πότε
ποιος γεια ευχαριστώ;
name_particles: von van der den de del della di da la le du dos bin ibn ben al el af av zu zum ter y e;
titles: mr mrs ms miss dr prof professor sir herr frau monsieur madame señor señora don st;
person_words: is was has had will would says said wants wanted likes liked loves loved lives lived works worked moved called calls
asked asks needs needed prefers preferred told wrote booked bought paid ordered owns hates plays went goes came comes joined left
agreed decided chose met knows thinks thought can could should does did and ist war hat hatte wird möchte sagt sagte mag wohnt
lebt arbeitet zog ruft rief braucht bevorzugt fährt kommt kam geht ging kauft kaufte zahlt besitzt und est a veut habite aime vit
travaille préfère es está tiene quiere vive trabaja prefiere leads teaches writes runs manages handles repairs keeps studies
drives sells makes helps brings owes sends takes treats cooks gives speaks travels sings begins starts studied живёт живет
работает хочет любит сказал сказала;
common: access account address agent air amount answer appointment area assistant baggage balance bill bird book booking box boy
breakfast brother budget bus business cake car card case cat change chat child city class coffee color colour company contract
cost country course customer data daughter day deal delivery design detail dinner doctor document dog door economy email evening
event exercise family father fee file film fish flat flight flower food friend future game garden girl goal guest hair hand health
heat help history hobby home hotel house idea information internet invoice issue item job journey key kitchen language laptop law
life light line list love luggage lunch machine mail man manager meal member memory message money month morning mother movie music
name nature network news night noise number office order package page paper parent park parking part partner party passenger
passport password patient payment people person phone picture plan plane plant plate policy present price problem process product
profile project purchase question rain receipt record refund rent report request reservation rest result return river road room
rule sale school score seat server service ship shop sister site size sleep snow society software son song sound sport staff
status stock store story street study subject sugar summer sun support system table task tax tea teacher team technology test text
ticket time tool town train travel tree trip truth understanding use user value view wall war water weather website week weekend
wife wind window winter woman word work world year apology apologies beauty joy;
german: und ist nicht ich der die das wir ein eine mit für auf zu dem den hat haben sie wird im am vom;
pronouns: i we he she they;
owners: my our his her their;
people: mother father mum mom dad parent wife husband spouse partner son daughter kid child children baby toddler twin brother
sister grandmother grandfather grandma grandpa grandparent grandson granddaughter granny aunt uncle cousin niece nephew girlfriend
boyfriend fiancé fiancée boss manager friend neighbour neighbor colleague flatmate roommate family guest client boy girl dog cat
puppy pet horse team household in-laws teenager grandchild grandchildren;
of_person: i we he she they my our his her their me us him them;
leads: and but so oh well also because since please actually btw fyi remember note ok okay yes no yeah just then as although
though while that anyway besides kindly hey hi hello honestly sadly unfortunately luckily now sorry;
habit: always never usually rarely seldom only mostly normally typically generally mainly often nowadays;
adverbs: always never usually rarely seldom only mostly normally typically generally mainly often nowadays really also still just
now currently even actually quite rather much both all already sometimes hardly ever so very too somehow longer no absolutely
simply pretty more less most almost nearly;
be: am are is was were be 'm 're;
not_after: do does did can could will would must should may might;
liking: like love hate enjoy prefer adore detest loathe despise dislike avoid favour favor crave fear refuse suffer tolerate
fancy;
cannot: stand bear have eat drink tolerate take handle do live digest swim drive hear walk climb sleep stomach sit fly travel work
touch wear smell cope stay use lift carry read cook dance ride swallow chew run;
of_screens: open access log reach connect load join print download install upload edit delete move click type reset turn switch
play sign verify unlock attend pick process make;
ended: stopped quit gave given swore sworn switched converted turned became become went gone cut took taken;
prepositions: of to with at on about against from for in around without than by;
particles: up out off to into from away;
favourite: favourite favorite preference preferences preferred diet pronouns hobby hobbies religion weakness nationality allergies
allergy size budget usual;
moment: able about absolutely amazed amazing angry annoyed around at available aware awake awesome away back before better bored
busy by certain close cold confident confused correct curious delighted disappointed done down due eager early excited far fine
finished first for free full fully glad going gone gonna good grateful great happy here home honest hopeful hot hungry ill
impressed in inside interested just kidding kind last late likely lost lovely mad many mine near new next nice not of off offline
ok okay on one online open out outside over perfect pleased positive probably ready right sad safe satisfied saying serious set
sick sorry stuck sure surprised thankful the then there thirsty this through tired to together two unable under unhappy unsure up
upset warm welcome well what where who willing with within without worried worse wrong yet it that interesting important like as
familiar responsible afraid moment minute lot couple hurry bit customer user asleep confirmed allowed supposed eligible entitled
traveling travelling member;
felt: addicted terrified scared frightened petrified opposed devoted obsessed committed used accustomed disgusted fascinated;
settled: married retired divorced engaged widowed separated disabled trained related gifted;
lasting_acts: living avoiding learning dating recovering expecting saving training studying raising breastfeeding cutting caring
commuting renting allergic;
lasting: afraid sick tired fond bad good interested into off close comfortable careful strict new;
passing: accept add admit advise agree aim apologise apologize appreciate approve arrive ask assume attach authorise authorize be
beg believe bet bring call can cannot check choose claim come compare complain confirm consider contact continue could decide
demand deserve did do does doubt end enter expect explain feel figure file find finish fix forget get give go gonna guess had
handle has have hear help hope imagine include insist intend just know leave let look lose manage may mean mention might miss must
need notice object offer order owe pay plan please pick point promise propose provide put quote realise realize recall receive
recommend refer regret remember remind report request require return said say see seem select send shall should show sound start
state stay submit suggest suppose swear tell thank think trust try understand update urge wait wanna want was were will wish
wonder would write got worry;
past: ate began bent blew bought broke brought built came caught chose did drank drew drove fell felt flew forgot found gave got
grew heard held hid kept knew laid led left lent lost made meant met paid ran rang rode rose sang sat saw sent shook shot slept
sold spent spoke stole stood stuck swam taught told took thought threw understood won woke wore wrote went was were had set reset
read put shut cut hit;
owned: access account answer appointment bag bags booking bookings call card cards certificate certificates chance change changes
code comment complaint concern concerns copy couple doubt doubts email enough error errors everything feeling few file files
flight flights fun good great idea ideas information issue issues item items lot look meeting message minute moment more news
nothing number one option options order orders package payment plan plans point problem problems question questions receipt refund
request requests reservation reservations right second some something suggestion ticket tickets time to trip update;
vague: it that this them these those how your you what there here to if;
no_state: a an the some any back home out in on off up done ready going started paid error errors messages through;
no_ban: worry mind forget think know be get hesitate understand want have need see remember it that bother you we i let wait;
ordered: use write add put call contact answer reply send give make keep set include show format run ask sign start serve cook buy
book name speak talk address mention explain order bring leave wake text email ring message commit push;
alone: smoke drink drive swim snore stutter cook sing paint dance ski dive hunt knit commute;
fronted: since at in on after before for during with without these nowadays usually most every by due because when whenever;
either: read put set cut let hit shut;
body: knee knees back eyes eye ears ear hearing eyesight sight stomach heart skin hair feet foot leg legs hand hands hip hips
shoulder lungs liver teeth voice memory blood;
german_only: ich wir mein meine meinen meiner unser unsere nicht kein keine keinen mehr und ist bin gegen vor sie er hat am im der
die das bitte kann mir mich lieber gern gerne immer nie nur noch esse essen trinke aber auch für mit es ein eine einen seit nach
bei zu;
file_ends: py pyi ipynb js jsx ts tsx mjs cjs css scss htm html vue json jsonl yml yaml toml ini cfg conf env lock md mdx rst txt
log csv tsv parquet xls xlsx doc docx ppt pptx pdf sql sqlite sqlite3 db dump sh bash zsh ps1 bat go rs c h cc cpp hpp java kt
scala rb php pl swift dart lua jl tex bib xml svg png jpg jpeg gif webp zip tar gz tgz bz2 xz 7z whl jar exe dll so pem key crt tf
proto graphql patch diff bak;
folders: tmp etc var usr home opt srv mnt data root dev proc src lib bin tests test docs app apps packages users media build dist;
whole_names: makefile dockerfile .env .gitignore .bashrc .zshrc .npmrc .dockerignore .editorconfig .ssh .profile;
products: node.js vue.js next.js express.js d3.js three.js react.js nuxt.js;
programs: git npm npx yarn pnpm pip pip3 pipx uv poetry python3 python deno cmake cargo rustc gradle mvn docker docker-compose
podman kubectl helm terraform ansible-playbook ssh scp rsync curl wget ls mkdir chmod chown grep rg sed awk tar unzip ffmpeg psql
mysql sqlite3 redis-cli pytest tox nox ruff mypy flake8 pylint eslint prettier jest vitest tsc webpack vite systemctl journalctl
apt apt-get brew yum dnf conda mamba jupyter alembic uvicorn gunicorn celery dbt aws gcloud gh svn openssl gpg javac gcc g++ clang
dotnet gem composer rscript pandoc latexmk crontab;
wordlike: make go node bun find cat cd cp mv rm source service export echo touch head tail kill ps bash sh zsh sudo java ruby
rails php perl bundle flask black zip az;
does: install run push pull commit clone checkout rebase merge build test start up down exec apply get delete create init add
update upgrade publish deploy status diff log compose sync restart stop logs describe rollout reset stash fetch;
ends: before and to then after in when first for from again on it the a an with because so every is was or if until now please
that which by as but at once twice here there failed fails works;
empty: number called tell remind exactly please said mention mentioned again kind sort type thing things someone anyone ever there
here really often much long far each every per do does did done doing would should shall could can is are was were been being am
ve re ll something told you your need needs use uses used using take takes come comes want wants keep keeps stand stands gesagt
bitte genau nochmal noch mal heißt quel quelle quels quelles cuál cuáles qual quale quali welcher welches welchen welchem какои
какая какое какие каков моеи мою моего;
saying: order place name start buy write read open pay call send change test check close pick save move talk time watch;
light: eat drink have go make do like love user customer client person always please prefer only
"""
WORDS: Final = {
    name.strip(): frozenset(words.split()) for name, _, words in (one.partition(":") for one in _TEXT.split(";"))
}
