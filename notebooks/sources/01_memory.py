# %% [markdown]
"""
# 01 · What an agent forgets, and why

**By the end you can** make an agent forget a fact for lack of room, read *why* it was not sent, say beforehand which items will be
sent, and let a memory layer keep the fact.

**30 minutes.** No key and no network: the model is a function of its request. Run the first code cell, then read. Before each cell,
predict its output; then run it.
"""

# %% tags=["setup"]
import noetic_nb as nn
from noetic_nb import plots
from noetic_nb.lessons import check
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.widgets import Workbench


def text_of(item) -> str:
    return "".join(part.get("text", "") for part in item.get("content", ()))


# %% [markdown]
"""
## 1 · A model that knows only its prompt

A language model has no memory of its own. It knows only the part of a conversation that stands in the request. Our model makes that
plain: it is a function that looks for the words "window seat" in the request. If they are missing, it says that it does not know.
"""


# %%
def clerk(request) -> str:
    *before, question = request.items
    if "Which seat" not in text_of(question):
        return "Noted."
    return (
        "A window seat."
        if any("window seat" in text_of(item) for item in before)
        else "I do not know."
    )


# %% [markdown]
"""
The agent around it may send 500 tokens in one request, and 100 of these are kept free for the answer. A *token* is the piece of text that
models count in, here about three or four letters. Each call of `talk` starts a new agent, so that cells may run in any order.
"""

# %%
SEAT = "I always want a window seat."
TRIPS = [
    f"My trip number {n} went to {city}."
    for n, city in enumerate(["Oslo", "Lima", "Rome", "Kyoto", "Cairo", "Quito"], 1)
]


async def talk(said, memory=(), room=500):
    """Say these things to a new agent, then ask for the seat."""
    policy = nn.ProjectionPolicy(
        token_budget=room, response_reserve=100, overflow="truncate"
    )
    config = nn.AgentConfig(
        name="clerk", step=nn.react(model="scripted"), memory=memory, projection=policy
    )
    harness = nn.AgentHarness(
        config,
        model=nn.ScriptedModel(clerk),
        clock=FakeClock(step_ms=1),
        ids=SeededIds(1),
    )
    run = nn.record(harness)
    for text in said:
        await harness.execute(text)
    reply = await harness.execute("Which seat do I like?")
    return reply.text, run, harness


# %% [markdown]
"""**Predict.** The passenger names the seat and asks at once. What is the answer?"""

# %%
(await talk([SEAT]))[0]

# %% [markdown]
"""**Predict.** Now six sentences about trips come in between. What is the answer, and whose fault is it?"""

# %%
forgetful_answer, forgetful_run, forgetful = await talk([SEAT, *TRIPS])
forgetful_answer

# %% [markdown]
"""
## 2 · Why was it forgotten?

Nothing was deleted: the log still has every item. But the request has room for 400 tokens, and under `overflow="truncate"` the oldest items
are left out until the rest fits. The plan of the next call names each item that is left out, and the reason. Position 0 is the oldest.
"""

# %%
plan = forgetful.preview()
for position, reason in plan.left_out().items():
    print(position, reason, "·", text_of(forgetful.log()[position]))

# %% [markdown]
"""
The same as a picture, for the call that answered the question. `sent` is the use of the tokens in the request; `planned` is the minimum
for the conversation, before the memory layers yield their unused part. There are no layers here, so that in the end nearly everything
is sent for the conversation.
"""

# %%
plots.allocation(forgetful_run, turn=8)

# %% [markdown]
"""
The **workbench** has the conversation and each request in one cell. Choose a turn: a × marks an item of the log that its request does not
have, with the least budget that would have kept it. You can talk to this clerk, an agent of its own: name the seat again, and ask.
"""

# %%
*_, another = await talk([SEAT, *TRIPS])
Workbench(another, panels=["transcript"])

# %% [markdown]
"""**Predict.** Twice the room: 1 000 tokens. Is the seat remembered? And after ten times as many trips?"""

# %%
for times in (1, 10):
    print(
        times * len(TRIPS),
        "trips:",
        (await talk([SEAT, *TRIPS * times], room=1_000))[0],
    )

# %% [markdown]
"""
More room moves the moment of forgetting; it does not remove it. And room is paid for with every call.

### Exercise 1.1 · Which items are sent?

Write `sent(sizes, room)`: given the sizes of the items in tokens, oldest first, and the room for all of them, return the positions that are
sent, in order. Sizes `[40, 10, 30, 20]` and room for 60 give `[1, 2, 3]`.
"""


# %% tags=["exercise"]
def sent(sizes, room):
    return []


# %% tags=["solution"]
def sent(sizes, room):
    positions = []
    for position in reversed(range(len(sizes))):
        room -= sizes[position]
        if room < 0:
            break  # everything older is left out too
        positions.insert(0, position)
    return positions


# %% tags=["check"]
check("1.1", sent)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* Many first answers skip the item that does not fit and go on to older, smaller ones. It looks thrifty; but a conversation
with a hole in it misleads a model more than one that begins late. Let the class argue.
"""

# %% [markdown]
"""
## 3 · Let a layer keep it

A *memory layer* offers text for the request beside the conversation. `semantic_recall` stores messages and brings back those near the
question, here with a comparison of words that needs no network.

**Predict.** The room is 500 tokens again, with all six trips. What is the answer now?
"""

# %%
recall = nn.semantic_recall(min_score=0.05, budget={"min": 0, "max": 150})
mindful_answer, mindful_run, mindful = await talk([SEAT, *TRIPS], [recall])
mindful_answer

# %% [markdown]
"""
The layer gets an *allocation* of the same 500 tokens, **uses** a part, and **yields** the rest to the conversation.

**Predict.** How many of the 150 tokens does it use for one short sentence: about 20, 75, or all of them?
"""

# %%
frame = mindful_run.to_frame("allocations")
frame[frame.turn == 8][
    [
        "layer_id",
        "allocated",
        "used",
        "yielded",
        "history",
        "tools",
        "framing",
        "reserve",
        "total",
    ]
]

# %% [markdown]
"""
Remembering is a trade. The layer brings a tool of its own, whose description costs tokens too (`tools`), and a sentence that explains
the block to the model (`framing`). Compare the conversation (`history`) with and without the layer:
"""

# %%
without = forgetful.preview()
print(
    "without the layer:",
    without.history,
    "tokens of conversation,",
    len(without.left_out()),
    "items left out",
)
with_layer = mindful.preview()
print(
    "with the layer:   ",
    with_layer.history,
    "tokens of conversation,",
    len(with_layer.left_out()),
    "items left out",
)

# %% [markdown]
"""
### Exercise 1.2 · Remember in little room

Write `layers()`: return a list of memory layers with which the agent remembers *any* seat that somebody named, and which are never allocated
more than 60 tokens together. The check tries passengers and trips that you have not seen.
"""


# %% tags=["exercise"]
def layers():
    return []


# %% tags=["solution"]
def layers():
    return [nn.semantic_recall(min_score=0.05, budget={"min": 0, "max": 40})]


# %% tags=["check"]
check("1.2", layers)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* `nn.static_content("The passenger likes a window seat.")` answers the cell above and fails the check, which asks for
an aisle, too. It is a good moment to ask how much a test on a single known case proves.
"""

# %% [markdown]
"""
## What this does not show

* A real model may miss a fact that *is* in its prompt, or guess one that is not. Ours does neither.
* Words were compared, not meanings: ask "Where do I sit?" and this layer brings nothing back. An embedder of yours (`embed=`) may.
* One fact and one question. To learn whether a memory helps real users, use recorded conversations, as lesson 04 does for stopping.

**Next.** The workbench has more panels: *Context*, where you drag budgets, and *Memory*, which shows and edits the state of each layer. Go on
with [02 · What a token costs](02_tokens.ipynb).
"""
