# %% [markdown]
"""
# 09 · How well does an agent remember?

**By the end you can** measure a memory without asking a model for grades, name what your measure cannot see, show how much of a figure
comes from the words of the questions, and test whether a deleted fact is gone.

**40 minutes.** No key and no network. Run the first code cell, then read. Before each cell, predict its output; then run it.
"""

# %% tags=["setup"]
import re

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.items import item_text
from noetic_nb.lessons import check

# %% [markdown]
"""
## 1 · Evidence instead of answers

The usual test of a memory asks a model, and lets a second model grade the answer. Both make mistakes, and you cannot tell whose mistake
you see. A layer has one task that you can check without any model: when the question is asked, the **evidence** must be in the request.

`lab.made_dialogues` makes dialogues from a seed and marks the evidence of each question. Here is one question.
"""

# %%
dialogues = lab.made_dialogues(6, kinds=["told", "changed", "deleted"])
question = next(each for each in dialogues[0].questions if each.kind == "changed")
print(question.text)
print("evidence:", question.evidence[0].value, "of", question.evidence[0].owner)
print("outdated:", question.outdated[0].value)

# %% [markdown]
"""
`lab.memory_bench` plays the dialogues to layers. It plans each request as the harness does, and looks whether the evidence is in it. A figure has
four *rungs*, each harder to reach than the one before: the message word for word (`verbatim`), its value, the value in a sentence about its
owner (`owned`), and all that an answer needs, with nothing outdated behind it (`answerable`).

**Predict.** A layer keeps every word that was said, without repeats and without names. Which rungs does it reach?
"""


# %%
def layer_of(write):
    """Make a layer that sends one text, written from all that was said."""

    def store(params):
        said = [*(params.state or []), *map(item_text, params.log)]
        return {"state": list(dict.fromkeys(said))}

    def recall(params):
        return write(params.state) if params.state else None

    hooks = nn.MemoryHooks(store=store, recall=recall)
    budget = {"min": 0, "max": 2_000}
    layer = nn.MemoryLayer(
        id="text", slot=120, scope="resource", budget=budget, hooks=hooks
    )
    return [nn.history_window(2), layer]  # so that the text has to tell it


def rungs(layers, dialogues=dialogues, budget=4_000):
    """Return the recall on each rung."""
    table = lab.memory_bench({"set": layers}, dialogues, budgets=[budget])
    return table.set_index("rung")[["recall", "low", "high"]].round(2)


NAMES = {
    name.split()[-1]  # "Pavel", and "boss" of "my boss"
    for each in dialogues
    for one in each.questions
    for part in one.evidence
    for name in part.owner
}


def bag_of_words(said):
    words = dict.fromkeys(word for text in said for word in re.findall(r"[\w-]+", text))
    return " ".join(word for word in words if word not in NAMES)


rungs(lambda: layer_of(bag_of_words))

# %% [markdown]
"""
The bag of words has the *values* and is useless: nobody can say whose they are. A measure that looks for the value alone praises it. Ask of
each measure which useless memory would get full marks.

### Exercise 9.1 · Whose is it?

Write `is_evident(sent, owner, others, value)`: `sent` is a list of texts, `owner` and `others` are names. Return True where one *sentence* has the
value and its owner, and none of the others. Compare whole words, without case. A sentence ends with `.`, `!`, `?` or `;` before a blank or the
end of the text.
"""


# %% tags=["exercise"]
def is_evident(sent, owner, others, value):
    return value in " ".join(sent)


# %% tags=["solution"]
def is_evident(sent, owner, others, value):
    def words(text):
        return " " + " ".join(re.findall(r"\w+", text.lower())) + " "

    for text in sent:
        for sentence in re.split(r"[.!?;](?=\s|$)", text):
            has = [
                name
                for name in (owner, value, *others)
                if words(name) in words(sentence)
            ]
            if has == [owner, value]:
                return True
    return False


# %% tags=["check"]
check("9.1", is_evident)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* The stub is the measure of many published figures. Let the class collect requests that it takes for good: a list of codes, the
right code said of somebody else, `10` in `104`. Each is a case of the check.
"""

# %% [markdown]
"""
## 2 · The words of the question

Search by words finds a message that shares words with the question. Test questions are mostly written by somebody who has just read the
message. The dial `overlap` changes the questions only: at 1 each names the person and the thing as the message does, at 0 it shares no
content word with it.

The dial in words:
"""

# %%
for overlap in (1.0, 0.5, 0.0):
    [asked_once] = lab.made_dialogues(1, overlap=overlap, kinds=["told"])
    print(overlap, asked_once.questions[0].text)

# %% [markdown]
"""
**Predict.** The same dialogues, the same layer, 1 000 tokens. How much of its recall is left at overlap 0?
"""

# %%
for overlap in (1.0, 0.5, 0.0):
    asked = lab.made_dialogues(6, overlap=overlap, kinds=["told"])
    found = rungs(lambda: [nn.semantic_recall()], asked, budget=1_000)
    print(overlap, "·", found.recall["answerable"])

# %% [markdown]
"""
Nothing changed in the memory. A figure without the overlap of its questions cannot be compared with another one.

### Exercise 9.2 · Words in common

Write `word_overlap(question, message, stop)`: the share of the question's content words that stand in the message. Content words are the different
words of the question in lower case, without those in the set `stop`. A question without content words has the overlap 0.
"""


# %% tags=["exercise"]
def word_overlap(question, message, stop):
    return 0.0


# %% tags=["solution"]
def word_overlap(question, message, stop):
    asked = set(re.findall(r"\w+", question.lower())) - set(stop)
    told = set(re.findall(r"\w+", message.lower()))
    return len(asked & told) / len(asked) if asked else 0.0


# %% tags=["check"]
check("9.2", word_overlap)

# %% [markdown]
"""
## 3 · Summaries and deletion

A summary is cheap, and it loses facts without a trace. Section 1 measures that as well: a summary is a text in the request.

**Predict.** This one keeps each message that has a digit in it. Which share of the values does it keep, and with their owners?
"""


# %%
def digits_only(said):
    return "\n".join(text for text in said if re.search(r"\d", text))


rungs(lambda: layer_of(digits_only))

# %% [markdown]
"""
The second danger is the opposite one: a memory keeps facts that no longer hold. `attrs["outdated"]` of the table is the share of corrected and
deleted values that were sent with the question.

**Predict.** Plain history sends the newest messages of this session, `semantic_recall` brings back those near the question. Which of them answers
more questions, and which of them sends more outdated values?
"""

# %%
sets = {"history": [], "recall": lambda: nn.semantic_recall()}
forgetting = lab.memory_bench(sets, dialogues, budgets=[1_000])
answerable = forgetting[forgetting.rung == "answerable"].set_index("layers").recall
for name, shares in forgetting.attrs["outdated"].items():
    print(f"{name:8} answerable {answerable[name]:.0%}, outdated {shares[1_000]:.0%}")

# %% [markdown]
"""
The search is better at remembering *and* worse at forgetting. It finds the deleted message because it is about the same thing: "please forget
the code" does not take the code out of the store. Measure forgetting by itself; a high recall says nothing about it.

### Exercise 9.3 · A summary that forgets on request

Write `summary(messages)`: return one text with a line for each fact that holds at the end, and at most 45 words. Messages about facts have
three forms; all others are talk.

    The locker code of Ann is 4711.
    The locker code of Ann is now 2048.
    Please forget the locker code of Ann.

A deleted fact may be told again. The check measures as section 1 does: each fact in a sentence with its owner, and no value that was
corrected or deleted.

**Predict.** How many lines has the summary of these messages?
"""

# %%
EXAMPLE = [
    "The locker code of Ann is 4711.",
    "Ben came for tea and stayed 20 minutes.",
    "The seat of Ann is 1203.",
    "The locker code of Ann is now 2048.",
    "Please forget the seat of Ann.",
]
print(len(EXAMPLE), "messages,", sum(len(text.split()) for text in EXAMPLE), "words")


# %% tags=["exercise"]
def summary(messages):
    return "\n".join(messages)


# %% tags=["solution"]
def summary(messages):
    facts = {}
    for message in messages:
        if told := re.fullmatch(r"The (.+) of (\w+) is (?:now )?(\w+)\.", message):
            facts[told[1], told[2]] = told[3]
        elif gone := re.fullmatch(r"Please forget the (.+) of (\w+)\.", message):
            facts.pop((gone[1], gone[2]), None)
    return "\n".join(
        f"The {thing} of {owner} is {value}." for (thing, owner), value in facts.items()
    )


# %% tags=["check"]
check("9.3", summary)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* The forms are fixed so that the exercise is about bookkeeping and not about language. Ask afterwards: what would a model do with
"Ann got a new locker, and the old code is void"? Then put a model of your own into `layer_of` and measure it.
"""

# %% [markdown]
"""
## What this does not show

* Evidence in the request is necessary, not sufficient: a real model may overlook it. Measure both, and report them apart.
* The dialogues are made from templates. On recorded ones, such as LoCoMo, only the lower rungs are marked
  ([which layers remember](../docs/studies/memory_bench.md)).
* Deletion was measured in the *request*. Whether a store has really erased a text is a question for the store.

**Next.** [10 · Attackers that adapt, and judges that can be talked round](10_attackers.ipynb) uses the same idea for security: count effects,
not words.
"""
