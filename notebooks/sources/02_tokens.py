# %% [markdown]
"""
# 02 · What a token costs

**By the end you can** say how far a count of tokens is from the bill, why a long conversation costs more than its length, which part of
a request is cached, and how to arrange a request so that more of it is cached.

**35 minutes.** No key and no network: the model is a function of its request, and its provider is simulated: it caches by published
rules. Run the first code cell, then read. Before each cell, predict its output; then run it.
"""

# %% tags=["setup"]
import noetic_nb as nn
from noetic_nb import tokenizers
from noetic_nb.lessons import check
from noetic_nb.models.prompt_caching import cache_rules
from noetic_nb.testing import FakeClock, SeededIds, SimulatedProvider
from noetic_nb.widgets import Workbench

# %% [markdown]
"""
## 1 · The unit of the bill

Providers charge by the **token**: a piece of text out of a vocabulary that the model was trained with. The vocabulary
is a large file, so many programs only *estimate*: here, a token for every four characters. `o200k_base` is the
vocabulary of gpt-4o and gpt-4.1, and counts exactly. It needs `pip install 'noetic_nb[tokens]'`; without it the cells
below go on with the estimate alone.
"""

# %%
estimate = tokenizers.get("estimate")
try:
    exact = tokenizers.get("o200k_base")
except nn.NoeticConfigError as error:
    exact = None
    print("No exact counts here, the lesson goes on without them.", error.hint)

# %% [markdown]
"""
**Predict.** The same question in three languages, a record as a tool returns it, and forty blanks. For which of them is
the estimate furthest off, and in which direction?
"""

# %%
TEXTS = {
    "English": "Where is my parcel? I have waited for two weeks.",
    "German": "Wo ist mein Paket? Ich warte seit zwei Wochen.",
    "Chinese": "我的包裹在哪里？我已经等了两个星期。",
    "a record": '{"order_id": "A17", "state": "packed", "weight_g": 1250}',
    "blanks": " " * 40,
}
for name, text in TEXTS.items():
    counts = f"{estimate(text):>3} estimated, {exact(text) if exact else '?':>3} exact"
    print(f"{name:<9}{len(text):>3} characters, {counts}")

# %% [markdown]
"""
Near enough for English and German, a third of the truth for Chinese, ten times too much for blanks. A plan made with an estimate may
send a request that does not fit, or leave out items that would have fitted. `AgentHarness(tokenizer="o200k_base")` plans with the
vocabulary.

## 2 · Every call pays for all that came before

A model has no memory, so each call sends the whole conversation again. `talk` has one with a help desk: as many questions as you say,
each of the same length, and each answer too. `bill` lists the provider's count for each call. (Here provider and plan use the same
estimate.)
"""


# %%
async def talk(turns, memory=(), projection=None, model="simulated-gpt-5"):
    """Ask a new help desk so many questions, and return its run."""
    clock = FakeClock(step_ms=1)
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model=model, instructions="You are a help desk. " * 230),
        memory=memory,
        projection=projection or {},
    )
    answers = nn.ScriptedModel(lambda request: "It is on its way. " * 8)
    harness = nn.AgentHarness(
        config,
        model=SimulatedProvider(answers, clock=clock),
        clock=clock,
        ids=SeededIds(1),
    )
    run = nn.record(harness)
    for number in range(1, turns + 1):
        await harness.execute(f"{number}. " + "Where is my parcel? " * 8)
    return run


def bill(run):
    """Return, for each call, the input tokens and how many of them were cached."""
    calls = run.select(nn.events.ModelCalled)
    return [(call.input_tokens, call.cached_tokens) for call in calls]


# %% [markdown]
"""
**Predict.** The instructions take some 1,200 tokens, a question with its answer some 140. Eight questions: what is the
input of the eighth call, and of all eight together? And of sixteen questions: twice as much, three times, or four
times?
"""

# %%
for turns in (8, 16):
    inputs = [tokens for tokens, cached in bill(await talk(turns))]
    said = f"the last call sends {inputs[-1]:,} tokens, all together {sum(inputs):,}"
    print(f"{turns:>2} questions: {said}")

# %% [markdown]
"""
The last call grows with the conversation; the *sum* grows faster: each further question pays for all before it.
Instructions, which never change, are paid for at every call as well.

### Exercise 2.1 · The bill of a conversation

Write `billed(instructions, turns)`: all input tokens of a conversation together. `instructions` is their size in
tokens; `turns` is a list of pairs, the size of a question and of its answer, and each question is one call. An answer
is input from the next call on. Instructions of 100 tokens and `[(10, 20), (30, 40)]` give `110 + 160 = 270`.
"""


# %% tags=["exercise"]
def billed(instructions, turns):
    return 0


# %% tags=["solution"]
def billed(instructions, turns):
    total, before = 0, instructions
    for question, answer in turns:
        total += before + question
        before += question + answer
    return total


# %% tags=["check"]
check("2.1", billed)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* Answers that multiply the last call by half the number of calls are right for equal turns and fail
the check. Ask how long a conversation has to be until history costs more than instructions: with 1,200 and 140 tokens,
from about the 18th question on, in sum.
"""

# %% [markdown]
"""
## 3 · The beginning that stays the same

Providers need not process the same prefix twice. If a request *begins* like an earlier one, the part that both share is **cached** and
costs less. OpenAI's published rules for gpt-5, as data with their source:
"""

# %%
rules = cache_rules("gpt-5")
print(
    f"from {rules.minimum} tokens on, in steps of {rules.block}, "
    f"for {rules.lifetime_ms / 60_000:.0f} minutes, at {rules.read} of the price"
)
print(rules.source)

# %% [markdown]
"""
Steps: a shared beginning of 1,023 tokens is not cached at all; of 1,024 to 1,151 tokens 1,024 are cached, of 1,152 to
1,279 it is 1,152, and so on.

**Predict.** The first four calls: how many tokens of each are cached? The first request has some 1,280 tokens, each
further one 140 more.
"""

# %%
plain = await talk(8)
for tokens, cached in bill(plain)[:4]:
    print(f"{tokens:>5} tokens, {cached:>5} of them cached")

# %% [markdown]
"""
Nothing of the first call is cached: there was no earlier request. Of each later call, everything that the call before it had sent is cached, except
for the last incomplete step.

### Exercise 2.2 · How much is cached?

Write `from_cache(before, now, least, step)`. A request is a list of parts, each a pair of a text and its size in tokens. The shared
beginning has the parts that are the same in both, from the first on, up to the first that differs. Return the number of cached tokens:
nothing if it is shorter than `least`; otherwise `least`, and every whole `step` of the tokens above it.
"""


# %% tags=["exercise"]
def from_cache(before, now, least, step):
    return 0


# %% tags=["solution"]
def from_cache(before, now, least, step):
    shared = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        shared += other[1]
    if shared < least:
        return 0
    return shared - (shared - least) % step


# %% tags=["check"]
check("2.2", from_cache)

# %% [markdown]
"""
## 4 · What moves breaks it

Help desks like to know how long a conversation lasts. This layer tells the model, in one short sentence; layers stand
in front of the conversation.

**Predict.** With its framing the sentence takes some 40 tokens. How many fewer tokens are cached in the eighth call: none, 40, or
nearly the whole conversation?
"""

# %%
turn_count = nn.MemoryLayer(
    id="turn-count",
    slot=80,
    scope="thread",
    hooks=nn.MemoryHooks(recall=lambda p: f"This is question {p.ctx.turn}."),
)
counted_run = await talk(8, [turn_count])
for name, run in {"without": plain, "with": counted_run}.items():
    tokens, held = bill(run)[-1]
    print(f"{name:>7} the sentence: {tokens:,} tokens, {held:,} of them cached")

# %% [markdown]
"""
Some 40 tokens more are sent, and some 900 fewer are cached: everything *behind* the change counts as new. The **workbench** marks the part
that broke the beginning, in each call that you choose; `run.caching()` has the same as a table.
"""

# %%
Workbench(counted_run, panels=["allocation"], until=8)

# %% [markdown]
"""
The same sentence can stand *behind* the conversation, right before the latest question. That takes two settings: the layer
is marked as changing (`placed("suffix")`), and the policy puts such layers last (`order="cache"`).

**Predict.** How much of the eighth call is cached now: as much as without the sentence, or less?
"""

# %%
moved = await talk(8, [turn_count.placed("suffix")], {"order": "cache"})
tokens, held = bill(moved)[-1]
print(f"{tokens:,} tokens, {held:,} of them cached")

# %% [markdown]
"""
Nearly as much; the last question and its answer moved, because the sentence stands between.

### Exercise 2.3 · Arrange it

Write `arranged(steady, changing)`. Both are lists of layers: those that say the same at every call, and those that say something new.
Return the configuration of the agent, a dictionary with `memory` and `projection`, so that every layer is still sent and as much as
possible is cached. The check has layers and questions of its own.
"""


# %% tags=["exercise"]
def arranged(steady, changing):
    return {"memory": [*steady, *changing], "projection": {}}


# %% tags=["solution"]
def arranged(steady, changing):
    last = [layer.placed("suffix") for layer in changing]
    return {"memory": [*steady, *last], "projection": {"order": "cache"}}


# %% tags=["check"]
check("2.3", arranged)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* Putting *every* layer last is a natural answer, and it is worse: the constant text is then sent anew behind each
longer history. Leaving the changing layers out caches most and fails: somebody wanted them.
"""

# %% [markdown]
"""
## 5 · Sending less, paying more

A window that sends only the newest four items sends less. Its cost, in tokens at the full price: the uncached tokens, and a tenth of
the cached ones (gpt-5's price).

**Predict.** Eight questions: which is cheaper, the window or the whole conversation? And forty?
"""


# %%
def cost(run):
    """Return what the input of a run costs, in tokens at the full price."""
    return sum(
        tokens - cached + cache_rules("gpt-5").read * cached
        for tokens, cached in bill(run)
    )


# %%
for turns in (8, 40):
    for name, memory in {"whole": [], "window": [nn.history_window(4)]}.items():
        run = await talk(turns, memory)
        total = sum(tokens for tokens, cached in bill(run))
        print(
            f"{turns:>2} questions, {name:>6}: {total:>7,} sent, costs {cost(run):>6,.0f}"
        )

# %% [markdown]
"""
A window moves at every call, so nothing but the instructions stays where it was. For a short conversation it sends less
and costs more; for a long one sending less wins, and it forgets all the while, as lesson 01 shows. Count to
find out which case is yours.

## What this does not show

* The provider was simulated, by the rules that real ones publish. They promise no hit: a request may reach another machine, and an
  unused prefix expires after some minutes. For 1,096 real calls of gpt-4.1 the rules promise 3 to 5 % too much; behind the instructions
  a call found four fifths of the promised tokens.
* Here one conversation was alone. Where a desk has many, they all begin with the same tools and instructions: of 80
  real first calls 77 found these in the cache.
* Others cache otherwise. Anthropic caches up to marks in the request and charges a quarter more for writing; [the
  study](../docs/studies/prompt_caching.md) has six designs under four price lists.
* Only input was counted. Output tokens cost four to eight times as much and are never cached.
* The answers here do not depend on the order of the request. Those of a real model may: it notices the last text most.

**Next.** `lab.what_if_cached(run, last=[...])` computes the cost of another order for a recorded run. Go on with
[03 · Steering rules](03_steering.ipynb).
"""
