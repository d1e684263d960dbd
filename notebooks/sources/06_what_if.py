# %% [markdown]
"""
# 06 · Asking what-if of real runs

**By the end you can** decide a recorded conversation again under another rule, tell the known part of the answer from the guess,
continue from any call with another text, and compare two lists of runs with an interval.

**40 minutes.** No key and no network: some conversations were recorded by others, and our own model is a function of its request. Run
the first code cell, then read. Before each cell, predict its output; then run it.
"""

# %% tags=["setup"]
import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.lessons import check
from noetic_nb.testing import FakeClock, SeededIds


def text_of(item) -> str:
    return str(
        item.get("output")
        or "".join(part.get("text", "") for part in item.get("content", ()))
    )


def names(run):
    """Return the tools that a run called, in order."""
    return [call.name for call in run.select(nn.events.ToolCalled)]


def denied(run):
    """Return the tools whose calls a rule denied, in order."""
    decisions = run.select(nn.events.SteeringDecided)
    return [each.tool_name for each in decisions if each.action == "deny"]


# %% [markdown]
"""
## 1 · Judged again

Twenty conversations at the help desk of an airline, recorded by others (tau-bench): the agent was gpt-4o, the users
were played by another model. This one went well. Its calls of tools:
"""

# %%
airline = lab.datasets.airline()
recorded = airline[5]
names(recorded)

# %% [markdown]
"""
A colleague suggests: "It looks up too much. Two reservations are enough." We do not have the agent, only the recording.
`lab.replay` asks a rule about every call that was recorded.

**Predict.** Which calls are denied?
"""

# %%
two_looks = nn.RuleBook()
two_looks.at_most(2, "get_reservation_details", id="two-looks")
judged = lab.replay(recorded, rules=two_looks)
denied(judged)

# %% [markdown]
"""
Three of the five looks. And the answer of the agent in the end, would it have been the same? **Predict**, then compare
the last texts of both.
"""

# %%
print(recorded.turns[-1].text == judged.turns[-1].text)

# %% [markdown]
"""
The same, to the letter, and that proves **nothing**. This is an *open* replay: the past stands as it was recorded. The agent reads
results of calls that were denied, and goes on as if nothing had happened. Only the calls before the first denial, and this denial, are
certain. Whether there would have been a fourth look is unknown: after the refusal the agent might have asked the user.

### Exercise 6.1 · What is certain

Write `certain(calls, denies)`. `calls` are the names of the recorded calls, in order; `denies(name, before)` says
whether a rule denies a call, where `before` is the list of all calls before it, as they were recorded. Return a pair:
how many calls happen for certain when the rule is in force, and how many the open replay denies. Three looks and a
payment, of which two looks are allowed, give `(2, 1)`.
"""


# %% tags=["exercise"]
def certain(calls, denies):
    return len(calls), 0


# %% tags=["solution"]
def certain(calls, denies):
    refused = [at for at, name in enumerate(calls) if denies(name, calls[:at])]
    return (refused[0] if refused else len(calls)), len(refused)


# %% tags=["check"]
check("6.1", certain)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* Taking denied calls out of `before` looks more honest and is neither: the open replay does not do it, and it pretends
to know the agent's next calls.
"""

# %% [markdown]
"""
## 2 · Many runs, in pairs

One run is an anecdote. Each of the twenty is now compared with itself under the rule. `outcome` says whether the user got the right
result.

**Predict.** In what share of the runs is something denied: a tenth, or nearly half? And does the rule rather meet runs
that failed, or runs that went well?
"""

# %%
ruled = [lab.replay(run, rules=two_looks) for run in airline]
found = nn.compare(
    airline,
    ruled,
    metrics={
        "denied": lambda run: bool(denied(run)),
        "denied, and good": lambda run: bool(denied(run)) and run.meta["outcome"],
        "denied, and failed": lambda run: bool(denied(run)) and not run.meta["outcome"],
    },
)
found

# %% [markdown]
"""
`a` is the mean as it was recorded, `b` under the rule. Four good runs and four failed ones: looking up much is no sign
of failing. `low` and `high` bound a 95 % interval over *tasks*, as runs of the same task resemble each other: from one
in forty to more than a third of all runs would be good ones that are disturbed. `p` is that of the sign test over tasks, to be trusted where
tasks are few. Twenty runs do not say more.

### Exercise 6.2 · A difference in pairs

Write `difference(before, after)`: two lists of numbers of the same runs, in the same order, where None is "not known".
Return the mean of after - before over the pairs of which both are known, and the number of these pairs. Without any,
return `(None, 0)`.
"""


# %% tags=["exercise"]
def difference(before, after):
    return 0, len(before)


# %% tags=["solution"]
def difference(before, after):
    changes = [
        new - old
        for old, new in zip(before, after, strict=True)
        if old is not None and new is not None
    ]
    return (sum(changes) / len(changes) if changes else None), len(changes)


# %% tags=["check"]
check("6.2", difference)

# %% [markdown]
"""
## 3 · What a recording does not have

**Predict.** Of this recording of others, which of the two can be asked, if any: what a smaller budget would have left
out, or what the agent would have said instead?
"""

# %%
questions = {
    "a smaller budget": {"projection": {"token_budget": 2_000}},
    "what it would have said": {"rules": two_looks, "mode": "closed"},
}
for question, change in questions.items():
    try:
        lab.replay(recorded, **change)
    except nn.NoeticConfigError as error:
        print(f"{question}: {error.code}")

# %% [markdown]
"""
Neither. The recording has the messages, but neither the model's *requests* nor the agent. An error that says so is better than a made-up number.
Runs of this library have both.

## 4 · Lived again

A shop's desk that pays money back. The model is a function of its request: it looks at the latest question and at the answers of tools
to it.
"""


# %%
@nn.tool
def find_order(number: str) -> str:
    """Look up an order."""
    return f"Order {number}: 2 lamps, 180 euros."


@nn.tool
def refund(number: str, euros: float) -> str:
    """Pay money back."""
    return f"{euros:g} euros paid."


def clerk(request):
    users = [at for at, item in enumerate(request.items) if item.get("role") == "user"]
    question = text_of(request.items[users[-1]])
    answers = [
        text_of(item) for item in request.items[users[-1] + 1 :] if "output" in item
    ]
    if "Where" in question:
        return answers[-1] if answers else nn.CallTool("find_order", number="A17")
    if "money" in question:
        if not answers:
            return nn.CallTool("refund", number="A17", euros=180)
        return "It is paid." if "paid" in answers[-1] else "A colleague will call you."
    return "We send another lamp." if "another" in question else "You are welcome."


# %%
shop = nn.AgentHarness(
    nn.AgentConfig(
        name="shop", step=nn.react(model="scripted"), tools=[find_order, refund]
    ),
    model=nn.ScriptedModel(clerk),
    clock=FakeClock(step_ms=1),
    ids=SeededIds(1),
)
shop_run = nn.record(shop, run=nn.Run("shop"))
for message in ("Where is A17?", "A lamp broke. My money back!", "Thank you."):
    await shop.execute(message)
shop_run.stop_recording()
for turn in shop_run.turns:
    print(turn.query, "→", turn.text)

# %% [markdown]
"""
`mode="closed"` runs the agent again: as long as a request is the recorded one it gets the recorded answer; with the
first other request the model has to answer itself. No tool runs: a call that was recorded has its recorded result.

**Predict.** Refunds above 100 euros are denied. What does the user read in the second turn, in an open replay and in a
closed one?
"""

# %%
large = nn.RuleBook()


@large.rule(on="before_tool_call", tools=["refund"])
def at_most_100(call):
    if call.tool_args["euros"] > 100:
        return nn.deny("Ask a colleague.")


for mode in ("open", "closed"):
    model = nn.ScriptedModel(clerk) if mode == "closed" else None
    again = lab.replay(shop_run, rules=large, mode=mode, model=model)
    print(f"{mode:>6}: denied {denied(again)}, {again.turns[1].text}")

# %% [markdown]
"""
The open replay denies the refund and has the user read "It is paid". The closed one *lived* it: another request,
another answer. With a real model, that answer would be one of many it might have given, and asking for it costs money;
our model is a function, so it is *the* answer.

**Predict.** Where does the closed replay stop if it has no model?
"""

# %%
lab.replay(shop_run, rules=large, mode="closed").meta["replay"]["stopped"]

# %% [markdown]
"""
## 5 · A fork

`lab.fork` continues from one call with another text; the part before it is taken from the recording. Calls of the model are counted
from 0: calls 0 and 1 answered the first question, call 2 asked for the refund.

**Predict.** From call 2 on the user wants another lamp in place of the money. What is answered, and does the fork still
pay a refund?
"""

# %%
forked = lab.fork(
    shop_run,
    at=2,
    edit="A lamp broke. Please send another.",
    model=nn.ScriptedModel(clerk),
)
for turn in forked.turns:
    print(turn.query, "→", turn.text)
names(forked)

# %% [markdown]
"""
The fork ends with its turn: "Thank you." was written to another answer.

### Exercise 6.3 · Where to fork

Write `call_of(run, tool)`: the number of the model call that first asked for this tool, and None where none did.
`run.select(nn.events.ModelCalled)` has the calls of the model in order. The answer of a call is in its `items`; items that ask for a
tool have the type `"function_call"` and a `name`. One answer may ask for several tools.
"""


# %% tags=["exercise"]
def call_of(run, tool):
    return 2


# %% tags=["solution"]
def call_of(run, tool):
    for number, call in enumerate(run.select(nn.events.ModelCalled)):
        for item in call.items:
            if item.get("type") == "function_call" and item.get("name") == tool:
                return number
    return None


# %% tags=["check"]
check("6.3", call_of)

# %% [markdown]
"""
## What this does not show

* Users were recorded, too. Their reaction to another answer is not known; `lab.fork(turns="all")` repeats their recorded messages,
  fitting or not.
* Our model is a function. A real one may answer the same request in many ways: one closed replay is a sample of one. `lab.sweep` asks
  often, and counts its costs.
* The rule was made up by us after looking at a run. Rules that are chosen on some runs are to be judged on others:
  [suggestions](../docs/experiments/suggestions.ipynb) does that.
* "Good" is the label of the people who recorded the runs. It is about the outcome, not about how pleasant the way was.

**Next.** In a live notebook, `noetic_nb.widgets.Compare(run, forked)` shows where two runs part, turn by turn. [A
recorded run, asked again](../docs/experiments/replays.ipynb) has budgets and layers as well. Go on with [07 · Watched
and guarded](07_watched.ipynb).
"""
