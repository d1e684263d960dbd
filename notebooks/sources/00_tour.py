# %% [markdown]
"""
# A tour of noetic_nb

In about five minutes: an airline's agent talks to passengers. You **see** where every token of its context went, **edit** a rule and
watch the effect, and follow its answers as they get worse until a circuit break **stops** it. Then you measure on real recorded
conversations how much such a stop would have saved, and how much it would have cost.

Everything runs offline: no API key, and nothing is random. *Run → Run All Cells*, then read. After that you can run the cells again in any order,
and as often as you like: each conversation begins anew.
"""

# %% tags=["setup"]
import json
import re

import noetic_nb as nn
from noetic_nb import lab, plots
from noetic_nb.regulator import Regulator, ToolLoop
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.widgets import RegulatorTrends, TokenAllocation, Workbench


def text_of(item) -> str:
    return "".join(part.get("text", "") for part in item.get("content", ()))


# %% [markdown]
"""
## 1 · An agent is data

A tool is a function with typed arguments. The desk has two.
"""

# %%
BOOKINGS = {"EHGLP3": "JFK to SEA, May 20", "ZFA04Y": "SEA to SFO, June 2"}


@nn.tool
def search_flights(origin: str, destination: str) -> list[dict[str, str]]:
    """Find flights between two airports."""
    return [
        {"flight": "HAT136", "departs": "06:00", "price": "$152"},
        {"flight": "HAT039", "departs": "11:00", "price": "$148"},
    ]


@nn.tool
def cancel_reservation(reservation_id: str) -> dict[str, str]:
    """Cancel a reservation and refund it."""
    return {"cancelled": reservation_id, "refund": "$148"}


# %% [markdown]
"""
A **rule** looks at a tool call before it happens, or at an answer before it counts. It returns `nn.deny(...)`, `nn.guide(...)`, `nn.allow()`,
or None if it has no opinion. Here is one rule for calls and one for answers.
"""

# %%
rules = nn.RuleBook()


@rules.rule(on="before_tool_call", tools=["cancel_reservation"])
def known_reservation(call):
    if call.tool_args["reservation_id"] not in BOOKINGS:
        return nn.deny("This reservation is not the passenger's.")


@rules.rule(on="after_model_call")
def no_promises(answer):
    if re.search(r"guarantee|promise", answer.text, re.IGNORECASE):
        return nn.guide("Promise nothing. Say what the policy allows.")


rules

# %% [markdown]
"""
The **model** is a pure function of its prompt, like a language model. It looks for flights when asked for one, promises too much unless
the prompt tells it not to, and passes on the answers of tools and rules. It apologises more, the more apologies its prompt already
contains.
"""


# %%
def desk_model(request):
    prompt = "\n".join(map(text_of, request.items))
    asked = [text_of(each) for each in request.items if each.get("role") == "user"][-1]
    last = request.items[-1]
    if last["type"] == "function_call_output":
        answer = json.loads(last["output"]) or {}
        if "error" in answer:  # a rule refused the call: the model reads why
            return f"I did not do that. {answer['error']['guidance']}"
        if "cancelled" in answer:
            return (
                f"{answer['cancelled']} is cancelled. You get {answer['refund']} back."
            )
        if isinstance(answer, list):
            return " ".join(
                f"{each['flight']} leaves at {each['departs']} for {each['price']}."
                for each in answer
            )
    if code := re.search(r"ancel.*\b([A-Z0-9]{6})\b", asked):
        return nn.CallTool("cancel_reservation", reservation_id=code[1])
    if route := re.search(r"from ([A-Z]{3}) to ([A-Z]{3})", asked):
        return nn.CallTool("search_flights", origin=route[1], destination=route[2])
    if name := re.search(r"I am (\w+)", asked):
        if "Promise nothing" in prompt:
            return f"Noted, {name[1]}: mornings. HAT136 is planned for 06:00."
        if last.get("role") == "user":
            return nn.CallTool(
                "working-memory/update", passenger=name[1], prefers="mornings"
            )
        return f"I promise, {name[1]}, that HAT136 will be on time!"
    return "Sorry, I do not know. " + "Sorry! " * len(re.findall("Sorry", prompt))


# %% [markdown]
"""
Around it: two memory layers (a policy that is always sent, and notes that the model writes), the rules, and a **regulator** that may
spend 600 tokens and gets a grade for each answer. Tokens are counted by `calibrated-offline`, which is close to the
bills of real models and needs no download. `talk` opens the desk under some rules and sends a few messages.
"""


# %%
COUNTER = "calibrated-offline"


def grader(reply) -> float:
    return max(0.0, 0.8 - 0.2 * reply.text.count("Sorry"))


async def talk(*said, under=None):
    """Open the desk and say these things; return it, and everything that happened."""
    layers = [
        nn.static_content("Refunds take five days. Never guess a price.", tag="policy"),
        nn.working_memory(budget={"min": 50, "max": 300}),
        nn.steering(under or rules),
        nn.regulation(Regulator.recommended("desk").with_cost_cap(600), grader=grader),
    ]
    config = nn.AgentConfig(
        name="airline desk",
        step=nn.react(
            model="scripted",
            instructions="You help passengers with their flights. Be brief.",
            tools=[search_flights, cancel_reservation],
        ),
        memory=layers,
        projection=nn.ProjectionPolicy(token_budget=1_000, response_reserve=200),
        tokenizer=COUNTER,
    )
    fixed = {"clock": FakeClock(step_ms=3), "ids": SeededIds(1)}
    desk = nn.AgentHarness(
        config, model=nn.ScriptedModel(desk_model, usage=COUNTER), **fixed
    )
    run = nn.record(desk)
    for text in said:
        reply = await desk.execute(text)
        print("STOPPED:" if reply.stopped else "desk:", reply.text)
    return desk, run


# %% [markdown]
"""
## 2 · Where did the tokens go?

Two questions. Expect five model calls: one for each of two tools, one for each of two answers, and one more because the rule
`no_promises` sent an answer back. The passenger reads the answer after that.
"""

# %%
_, trip = await talk(
    "Find me a flight from JFK to SEA on May 20.",
    "I am Mia and I like mornings. Will it be on time?",
)

# %% [markdown]
"""
The last of the five calls, token by token. The layers get their **allocation** first, use a part of it and **yield** the rest to the
conversation. In a live notebook the slider goes through the calls; each item that was left out would be listed with its reason.
"""

# %%
TokenAllocation(trip, until=2)

# %%
plots.allocation(trip, turn=2)

# %% [markdown]
"""
## 3 · Edit a rule

A passenger cancels, and the rules have no objection:
"""

# %%
CANCEL = "Please cancel EHGLP3."
_ = await talk(CANCEL)

# %% [markdown]
"""
But a desk should ask before it cancels something. We copy the rules and rewrite one of them: the new rule requires a "yes" written by the
passenger (`call.is_vouched`).
"""

# %%
careful = nn.RuleBook(rules)
careful.replace_source(
    "known_reservation",
    """
def known_reservation(call):
    if call.tool_args["reservation_id"] not in BOOKINGS:
        return deny("This reservation is not the passenger's.")
    if not call.is_vouched("yes"):
        return deny("Please confirm with a yes.")
""",
)
careful

# %% [markdown]
"""
Then we say **exactly the same** again. Nothing else has changed: the model finds the refusal in its prompt, and does something else.
"""

# %%
careful_desk, _ = await talk(CANCEL, "Yes, cancel EHGLP3.", under=careful)

# %% [markdown]
"""
The **workbench** has all of this desk in one cell. In the conversation, *1 denied: why?* shows which rule refused the call and where each of its
arguments came from. The **ledger** has a line for every call and answer that the rules judged. Change the rule in the editor and *Apply*, then talk to
the desk in the box below the conversation: the next call meets the new rule. A rule that does not compile never replaces the last good one.
"""

# %%
Workbench(careful_desk, panels=["ledger", "rules"])

# %% [markdown]
"""
## 4 · Quality, cost, and a circuit break

Three questions that the desk cannot answer. Each apology in the prompt breeds more of them, and the grades fall: 0.8, 0.6, 0.4, 0. The
regulator compares the last three grades: it stops when they fall by at least 0.15 and their mean is below 0.5. Expect the fourth turn to be stopped: the
passenger reads a suggestion in place of the answer.
"""

# %%
_, worse = await talk(
    "Find me a flight from JFK to SEA.",
    "Which terminal is it?",
    "What does a second bag cost?",
    "Is there a meal?",
)

# %%
RegulatorTrends(worse, until=4)

# %%
plots.trends(worse)

# %% [markdown]
"""
## 5 · A real conversation

This one comes from a public data set, with a real model and a simulated passenger, and it failed. We replay it through a regulator with one rule, *the same
tool five times in a row*; no model is called.

**Predict.** Would a stop have been right here? Read the conversation first: the passenger's words stand beside the signals of the regulator.
"""

# %%
recorded = lab.datasets.airline_run(80)
loops = Regulator.for_user("passenger").with_predicates(ToolLoop())
replayed = lab.replay_regulator(recorded, loops, stop=True)
Workbench(replayed, panels=["trends"], until=4)

# %%
calls = recorded.to_frame("tools").query("turn == 4")
[f"{call.tool_name}({', '.join(call.args.values())})" for call in calls.itertuples()]

# %% [markdown]
"""
No two calls are the same: that is a search, not a loop, and the suggestion is unfair. But stopping a failed run saves its later costs.
So what is the rule worth over all twenty recorded conversations, of which ten failed?
"""

# %%
worth = lab.economics(ToolLoop(), lab.datasets.airline())
at_five = worth.query("policy == 'detector' and domain == 'all' and threshold == 5")
five = at_five.iloc[0]
print(f"saved: {five.tokens_saved:,.0f} tokens of failed runs")
print(
    f"       (95 % interval {five.tokens_saved_low:,.0f} to {five.tokens_saved_high:,.0f})"
)
print(f"cost:  {five.good_lost * five.good:.0f} of {five.good} good runs stopped")
print(f"       (95 % interval {five.good_lost_low:.0%} to {five.good_lost_high:.0%})")

# %%
plots.economics(worth)

# %% [markdown]
"""
So the rule would have saved about 250 000 of the 680 000 tokens that the failed runs spent (estimated from the texts), **and** would
have broken off four of the ten conversations that went well. That is a bad bargain: `Regulator.recommended` counts only identical calls, arguments included. Twenty runs are few, the intervals are wide, and a plain cap on steps (dashed) does about as well;
`noetic_nb.regulator.presets.describe()` shows figures from larger data sets.

**Your turn.** In section 1, let the model be more polite, or let the grader forgive one apology, and run section 4 again: where does the break go?

**Next.** There are ten lessons beside this page. Begin with [01 · What an agent forgets](01_memory.ipynb), or, with an agent of your
own, with [07 · Watched and guarded](07_watched.ipynb). `nn.OpenAIModel("...")` in place of the scripted model talks to any
OpenAI-compatible endpoint; `nn.import_run(path)` reads conversations of other systems.
"""
