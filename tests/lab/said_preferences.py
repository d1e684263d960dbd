"""Sentences about likes, habits and states of people, small talk, and questions in other words than the fact.

The rules were written with the lists of `FITTED`; those of `HELD_OUT` were written before the rules, by the same author.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# The words that the fact must contain come after the separator.
_FITTED_STATES: Final = """
I'm allergic to shellfish, so please keep that in mind.|allergic to shellfish
My husband no longer drinks coffee after lunch.|no longer drinks coffee
I can't stand the smell of cigarettes.|can't stand the smell of cigarettes
We always book two seats next to each other.|always book two seats
She prefers tea over coffee in the morning.|prefers tea over coffee
I've been a vegan since last summer.|been a vegan
Please never call me before noon.|never call me before noon
My daughter is afraid of big dogs.|afraid of big dogs
I don't eat anything with gluten in it.|don't eat anything with gluten
He gave up smoking.|gave up smoking
I have a bad back.|have a bad back
My favourite composer is the older of the two brothers.|favourite composer is
I hate crowded trains.|hate crowded trains
We've switched to oat milk at home.|switched to oat milk
I'm more of a night owl.|night owl
I'd rather sit by the window.|rather sit by the window
My mother uses a wheelchair.|uses a wheelchair
I work night shifts at the harbour.|work night shifts
He's lactose intolerant, by the way.|lactose intolerant
I only listen to audio books on the way to work.|only listen to audio books
My son is into astronomy these days.|into astronomy
I quit the gym in spring.|quit the gym
Anna loves spicy food.|loves spicy food
My wife is pregnant.|is pregnant
I have trouble hearing with my left ear.|trouble hearing with my left ear
I don't mind long layovers.|don't mind long layovers
Keep your answers short from now on.|answers short from now on
I speak Italian with my kids.|speak Italian with my kids
I'm not a fan of horror films.|not a fan of horror films
We used to live on a farm.|used to live on a farm
I need subtitles when I watch a film.|need subtitles
My knees don't like stairs.|don't like stairs
Ich bin gegen Nüsse allergisch.|gegen Nüsse allergisch
Ich esse kein Fleisch mehr.|kein Fleisch mehr
Meine Frau trinkt lieber Tee.|lieber Tee
Ich kann laute Musik nicht ausstehen.|laute Musik nicht ausstehen
My mum is coeliac.|coeliac
Peanuts make me ill.|make me ill
I'm vegan.|vegan
We don't do dairy in this house.|dairy
I've gone off coffee lately.|gone off coffee
She only wears black.|only wears black
I never learned to swim.|never learned to swim
My brother quit drinking last year.|quit drinking
I get seasick on small boats.|seasick
I sleep badly in hotels.|sleep badly
He is deaf in one ear.|deaf in one ear
I would rather pay in cash.|rather pay in cash
Window seats are what I go for.|Window seats
I have a thing for old maps.|old maps
My favourite season is autumn.|favourite season
No pork for me, please.|No pork
We're expecting a baby in June.|expecting a baby
I switched from Mac to Linux.|switched from Mac to Linux
I can't eat anything with lactose.|can't eat anything with lactose
My daughter has a nut allergy.|nut allergy
Please address me as Doctor.|address me as Doctor
I'm more comfortable in Spanish.|more comfortable in Spanish
He doesn't like surprises.|doesn't like surprises
I go jogging every morning.|jogging every morning
I grew up on a boat.|grew up on a boat
I'm no longer married.|no longer married
Thai food is my favourite.|my favourite
I'm on a low-carb diet.|low-carb diet
My wife hates the cold.|hates the cold
I usually get up at five.|usually get up
Use tabs, never spaces.|never spaces
I live on the fourth floor without a lift.|fourth floor
I take pills for my blood pressure.|take pills
I've started learning Greek.|learning Greek
Mornings are bad for me.|bad for me
I'm saving up for a boat.|saving up
Strong perfume gives my wife a headache.|gives my wife a headache
I'm colour-blind.|colour-blind
My son refuses to eat vegetables.|refuses to eat vegetables
We're vegetarians at home.|vegetarians
I don't wear wool.|don't wear wool
Since the accident I walk with a stick.|walk with a stick
I can't do stairs any more.|can't do stairs any more
Loud bars aren't my thing.|aren't my thing
My partner is a morning person.|morning person
I tend to forget passwords.|tend to forget passwords
I've been off alcohol since March.|off alcohol
She'd rather walk than drive.|rather walk than drive
He has given up on dating apps.|given up on dating apps
I drink my tea without sugar.|drink my tea without sugar
Our daughter plays handball.|plays handball
I have to avoid grapefruit.|avoid grapefruit
Dogs make me nervous.|make me nervous
I collect stamps.|collect stamps
I'm used to long days.|used to long days
My knees are bad.|knees are bad
Don't ever share my address with anyone.|share my address
I love it when it snows.|love it when it snows
I'm getting divorced.|getting divorced
He speaks only Polish.|speaks only Polish
I read the paper on Sundays.|on Sundays
My flight anxiety is terrible.|anxiety
I became a father last spring.|became a father
The smell of fish makes me sick.|makes me sick
I always carry cash.|always carry cash
My mother lives with us now.|lives with us
I don't believe in horoscopes.|don't believe in horoscopes
I'm trying to learn Danish.|trying to learn Danish
Ich trinke keinen Alkohol.|keinen Alkohol
Wir essen nur noch vegan.|nur noch vegan
I want all replies in British English.|replies in British English
I stopped driving after the accident.|stopped driving
I'm intolerant to histamine.|intolerant to histamine
My flatmate smokes.|smokes
I never answer calls from unknown numbers.|never answer calls
I like my coffee strong.|coffee strong
We don't celebrate birthdays.|don't celebrate birthdays
My dad lost his licence, so he cycles everywhere.|cycles everywhere
I'm bored by museums.|bored by museums
She is engaged to a pilot.|engaged to a pilot
I need a ground floor room because of my knee.|ground floor room
I'm quite sensitive to light.|sensitive to light
I go to bed at nine.|go to bed at nine
He's moved to a plant-based diet.|plant-based diet
I dislike small talk.|dislike small talk
Always round the numbers up.|round the numbers up
I own three parrots.|own three parrots
My son has outgrown his nut allergy.|nut allergy
I only trust paper maps.|only trust paper maps
We prefer to travel by night train.|prefer to travel by night train
I can't tolerate heat.|can't tolerate heat
My aunt is a retired judge.|retired judge
I suffer from hay fever every spring.|hay fever
You should know that I stutter.|stutter
I'm happiest outdoors.|happiest outdoors
My kids watch no television.|watch no television
I no longer work for the city.|no longer work for the city
I got rid of my television.|got rid of my television
Blue cheese disgusts me.|disgusts me
I've decided against children.|against children
Please stick to metric units.|metric units
I share a desk with two others.|share a desk
I carry an inhaler.|carry an inhaler
My boss insists on printed reports.|insists on printed reports
Crowds stress me out.|stress me out
I wear a size 44 shoe.|size 44 shoe
Meine Mutter mag keine Katzen.|mag keine Katzen
Ich arbeite am liebsten nachts.|am liebsten nachts
"""
_HELD_OUT_STATES: Final = """
Bee stings are dangerous for me, I carry an injector.|carry an injector
I've stopped eating sugar.|stopped eating sugar
My partner is severely allergic to cats.|allergic to cats
Oh, and I never fly on Sundays.|never fly on
I'm a huge fan of brass bands.|fan of brass bands
My father doesn't hear well any more.|doesn't hear well any more
I'd prefer a room away from the lift.|prefer a room away from the lift
Always write the dates out in full, please.|Always write the dates out in full
I suffer from migraines.|suffer from migraines
We keep bees in the garden.|keep bees in the garden
My boss can't bear long meetings.|can't bear long meetings
I enjoy swimming in cold lakes.|enjoy swimming in cold lakes
Our kids are picky eaters.|picky eaters
I don't drive at night.|don't drive at night
My brother has diabetes.|has diabetes
I became a vegetarian two years ago.|became a vegetarian
She is left-handed.|left-handed
I gave my car away and take the bus now.|take the bus
My favorite colour is dark green.|dark green
I'm trying to avoid plastic.|avoid plastic
He wears contact lenses.|wears contact lenses
I'm terrified of heights.|terrified of heights
My grandmother can only eat soft food.|can only eat soft food
We have a very old cat.|have a very old cat
I've never liked olives.|never liked olives
My doctor told me to cut out salt.|cut out salt
I prefer being addressed by my first name.|prefer being addressed by my first name
Please don't use emojis with me.|don't use emojis
I play the cello in an orchestra.|play the cello
I am not comfortable with needles.|not comfortable with needles
My flatmate moved out and I live alone now.|live alone
I have been sober for three years.|been sober
Meine Tochter verträgt keine Milch.|verträgt keine Milch
Ich fahre nicht mehr Auto.|nicht mehr Auto
Am liebsten sitze ich am Gang.|Am liebsten sitze ich am Gang
Mein Mann hat Angst vor Spinnen.|Angst vor Spinnen
"""
_FITTED_SMALL_TALK: Final = """
Thanks, that helps a lot.
I am looking at it now, one second.
Could you wait a moment please?
I think we should check that again.
That sounds like a plan.
I have a question about my bill.
I need to change my booking.
Sorry, I did not see your message.
I was on the phone just now.
Do you like this one better?
I'm back, sorry for the wait.
We are almost done here.
I will get back to you soon.
It has been raining all day.
I sent it to you this morning.
Let me have a look.
I don't know yet.
I'm not sure about that.
I can't find the page.
I want to return it.
You are very kind.
Good morning, how are you?
I see, that makes sense.
I understand, no problem.
Okay, I'll try that.
I just sent the form.
Let me know when it's done.
I'm looking forward to it.
It's not working for me.
We spoke yesterday.
I'm afraid that's wrong.
You're right about that.
I was wondering if you could help.
I'm not at home right now.
Never mind, found it.
I have one more question.
I'm calling about my bill.
I've been waiting for an hour.
That would be great.
I'm done, thanks.
I hope that's fine.
I already paid that.
Does it matter to you?
I need a minute.
I'm on the train now.
That was quick, thanks.
I changed the date already.
Let's see what happens.
You could try the other link.
I got the mail, thanks.
I'm glad it worked.
There is a typo in the second line.
I think it's the wrong one.
We met yesterday at lunch.
I'll be there in ten minutes.
Could be, I'm not sure.
My battery is low.
I've uploaded the file.
I don't understand the second step.
It took forever.
I was just about to ask that.
Same here.
I'm reading it right now.
Please hold on.
I'm typing on my phone.
That page is empty.
I found it under the bed.
We need two more minutes.
I really appreciate your help.
Sorry, wrong window.
I asked them already.
Is it done?
It looks good to me.
I tried to call you.
I'll think about it.
The link does not open.
I have it in front of me.
We are nearly there.
You were right.
I want to change the order.
I heard a noise.
I would love that.
I'm ready when you are.
It started five minutes ago.
"""
_HELD_OUT_SMALL_TALK: Final = """
I'm happy with that, thank you.
I guess it will take a while.
I would like to cancel it.
Please go ahead when you are ready.
We just got home.
I'll send you the file in a minute.
The bus was late again.
I tried it twice and it failed.
I hope you had a nice weekend.
You can close it now.
I don't see it on the screen.
I am in a hurry today.
It works now, great.
I have no idea.
Can you tell me more about it?
I forgot to mention one thing.
The weather is lovely here.
I'm still waiting for an answer.
I didn't get the mail.
Please check it once more.
That is all for now.
I mean the other one.
I have to go now.
We are on it.
"""
# A statement, a question about it, and another statement that the question is not about.
_FITTED_QUESTIONS: Final = """
I'm allergic to shellfish.|Which foods do I have to avoid?|I work night shifts at the harbour.
I no longer drink coffee.|Would you get me something hot, and what beverage did I give up?|I hate crowded trains.
My sister lives in Graz.|Where is my sister based?|My order is A17-B.
My order is A17-B.|Which purchase was mine?|My sister lives in Graz.
The rent is $950.|What do I pay for the flat each month?|The party is on 12 March.
We decided to use the blue tent.|Which shelter did we settle on?|The rent is $950.
My dentist appointment is on 12 March.|When do I have to see the doctor for my teeth?|The rent is $950.
Bruno Keller repairs my car.|Who fixes my vehicle?|My sister lives in Graz.
The config is in /etc/desk/main.yaml.|In which file are the settings kept?|We decided to use the blue tent.
Run `pytest -x tests/desk` before you push.|How do I start the tests?|The config is in /etc/desk/main.yaml.
I'd rather sit by the window.|What kind of seat do I like?|I'm allergic to shellfish.
My daughter is called Ines.|What is the name of my girl?|Bruno Keller repairs my car.
The meeting begins at 14:30.|At what time do we start our conference?|The rent is $950.
We agreed on the red bicycle for Finn.|What did we choose for Finn?|My sister lives in Graz.
My flight is LH438.|Which plane am I on?|My order is A17-B.
I have a bad back.|Is there a health problem I told you about?|I hate crowded trains.
The invoice came to 1,250 euros.|How expensive was the bill?|My flight is LH438.
The door code is 4471.|How do I get into the building?|The invoice came to 1,250 euros.
My manager is Olga Petrova.|Who is my boss?|Bruno Keller repairs my car.
The warehouse is in Tallinn.|In what city do we store the goods?|My manager is Olga Petrova.
I'm allergic to bee stings.|What could be dangerous for me in the garden?|My rent is 700 euros.
I never eat pork.|What meat should you not serve me?|I take the bus to work.
We moved to Leipzig in May.|Which city are we living in these days?|My doctor is Bernd Weiß.
My doctor is Bernd Weiß.|Who is my physician?|We moved to Leipzig in May.
The server listens on port 8443.|What port do I connect to?|The logs are in /var/log/desk.log.
The logs are in /var/log/desk.log.|Where can I find the log file?|The server listens on port 8443.
We decided to postpone the launch.|What was our decision about the release?|The budget is 12,000 euros.
The budget is 12,000 euros.|How much money can we spend?|We decided to postpone the launch.
My passport number is C01X00T47.|Which document number do I have to enter?|We moved to Leipzig in May.
The workshop is on 3 June at 9:30.|When does the training take place?|My doctor is Bernd Weiß.
I prefer short answers.|How should you reply to me?|My rent is 700 euros.
My cat is called Mimi.|What's my pet's name?|I never eat pork.
I'm scared of dogs.|Which animals frighten me?|The budget is 12,000 euros.
Run `npm test` first.|What do I type to check everything?|The budget is 12,000 euros.
The car needs 95 octane.|What fuel does my vehicle take?|My cat is called Mimi.
Olga leads the project.|Who's heading the project?|The car needs 95 octane.
I work as a nurse.|What's my profession?|My cat is called Mimi.
My size is 42.|What shoe size do I wear?|Olga leads the project.
Our anniversary is on 4 July.|On which day did we get married?|I'm scared of dogs.
My bike was stolen in Ghent.|Where did I lose my bicycle?|My size is 42.
I collect stamps.|Do you know what my hobby is?|My mother lives with us now.
I have to avoid grapefruit.|Is there any fruit I should stay away from?|I collect stamps.
My uncle works at the harbour.|What job does my uncle have?|The fence costs 640 euros.
The fence costs 640 euros.|How expensive is the fence?|My uncle works at the harbour.
The tickets are for 19 September.|What day are we going to the show?|I collect stamps.
Our landlord is Mateus Ferreira.|Who do we rent from?|The tickets are for 19 September.
We picked Postgres for the backend.|Which database did we go for?|Our landlord is Mateus Ferreira.
The keys are with Anna Novák.|Who has the keys?|The fence costs 640 euros.
The report is saved as docs/q3_report.md.|Where did you put the write-up?|I collect stamps.
My membership is M-20931.|What's my member number?|We picked Postgres for the backend.
To reset it, use `systemctl restart desk`.|How can I restart the service?|My membership is M-20931.
My daughter plays handball.|What sport does my girl do?|The fence costs 640 euros.
I'm allergic to penicillin.|Which medicine must the doctor not give me?|I collect stamps.
I speak only Polish.|Which language should the guide use with me?|My uncle works at the harbour.
Breakfast is served until 10:15.|Until when can we eat in the morning?|My membership is M-20931.
Our office moved to Malmö.|Where is the company located now?|Breakfast is served until 10:15.
We agreed to meet at the red bridge.|What meeting point did we settle on?|My daughter plays handball.
The loan runs for 25 years.|How long do I have to pay back the bank?|My daughter plays handball.
I sleep badly in hotels.|Why do I dislike staying overnight elsewhere?|The loan runs for 25 years.
My dog is called Bruno.|How is the puppy named?|The keys are with Anna Novák.
I'm allergic to latex.|Which material should the nurse keep away from my skin?|My aunt is a retired judge.
I like my coffee strong.|How do I take my espresso?|I own three parrots.
I own three parrots.|How many birds do I keep?|Crowds stress me out.
We hired Sara Lindqvist for the kitchen.|Who got the job?|I own three parrots.
The lease ends on 30 November.|When does our rental contract run out?|We hired Sara Lindqvist for the kitchen.
The gate code is 7719.|How can the gardener open the gate?|The lease ends on 30 November.
I keep the photos in ~/pictures/2025/.|In what directory are my images?|The gate code is 7719.
We chose the slow cooker over the oven.|What did we go for in the end, the oven or something else?|I own three parrots.
My electricity bill was 184 euros.|How much was the power last time?|The lease ends on 30 November.
I no longer work for the city.|Who did I use to work for?|I like my coffee strong.
To publish, run `make publish`.|How do we put the site online?|I own three parrots.
My vet is in Tallinn.|In which town is the animal doctor?|The gate code is 7719.
My godson is called Finn.|What's the name of the boy I am godfather of?|My electricity bill was 184 euros.
The ferry sails at 6:40.|At what hour does our boat leave?|I own three parrots.
Blue cheese disgusts me.|Is there a cheese I find awful?|I own three parrots.
My ticket is ZX-4410.|Could you give me my booking reference?|My vet is in Tallinn.
"""
_HELD_OUT_QUESTIONS: Final = """
I don't eat meat any more.|What should the kitchen leave out for me?|I live alone now.
My brother moved to Porto.|What town does my brother call home?|My parcel is RX-2291.
The hotel costs 120 euros a night.|What is the price of our accommodation?|My brother moved to Porto.
We chose the oak table for the office.|Which piece of furniture did we pick?|The hotel costs 120 euros a night.
The concert starts at 19:45.|By when must we be there for the music?|My parcel is RX-2291.
My parcel is RX-2291.|Under what number is my package shipped?|The concert starts at 19:45.
Priya Iyer teaches my son maths.|What is the tutor of my boy called?|My brother moved to Porto.
I'm terrified of heights.|What am I scared of?|I play the cello in an orchestra.
I play the cello in an orchestra.|Which instrument do I make music with?|I'm terrified of heights.
The backup is at /var/lib/desk/dump.sql.|Where did we save the copy of the database?|The hotel costs 120 euros a night.
Deploy it with `make release`.|Which command ships the new version?|The backup is at /var/lib/desk/dump.sql.
My car was bought on 3 May 2021.|Since when do I own my vehicle?|The hotel costs 120 euros a night.
I prefer a room away from the lift.|How do I like my hotel rooms?|I'm terrified of heights.
My wife is Mette Baker.|Who am I married to?|Priya Iyer teaches my son maths.
The wifi password is 'tulip heron'.|How do I log on to the network?|My wife is Mette Baker.
We agreed that Tomás writes the report.|Who is in charge of the document?|My brother moved to Porto.
My salary is 4,200 euros.|How much do I earn?|My parcel is RX-2291.
The train leaves from platform 9.|Where does my train depart?|My salary is 4,200 euros.
My grandmother can only eat soft food.|What can granny have for dinner?|I live alone now.
We rejected the second supplier.|Which vendor did we turn down?|My salary is 4,200 euros.
"""


class Asked(NamedTuple):
    """A statement, a question about it, and another statement."""

    said: str
    question: str
    beside: str


def _lines(text: str) -> list[str]:
    return text.strip().split("\n")


def _states(text: str) -> list[tuple[str, str]]:
    return [(said, core) for said, core in (line.split("|") for line in _lines(text))]


def _asked(text: str) -> list[Asked]:
    return [Asked(*line.split("|")) for line in _lines(text)]


STATES: Final = {"FITTED": _states(_FITTED_STATES), "HELD_OUT": _states(_HELD_OUT_STATES)}
SMALL_TALK: Final = {"FITTED": _lines(_FITTED_SMALL_TALK), "HELD_OUT": _lines(_HELD_OUT_SMALL_TALK)}
QUESTIONS: Final = {"FITTED": _asked(_FITTED_QUESTIONS), "HELD_OUT": _asked(_HELD_OUT_QUESTIONS)}
