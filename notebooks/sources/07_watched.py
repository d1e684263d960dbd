# %% [markdown]
"""
# 07 · Your own agent, watched and guarded

**By the end you can** read the work of your own agent as a run, watch it while it works, put rules and a regulator in front of its
tools without changing it, and keep one customer's calls from counting for another.

**40 minutes.** No key and no network: the model is a function of its request. It needs `pip install 'noetic_nb[lab,rules,otel]'`, which
`make lab` does. Run the first code cell, then read. Before each cell, predict its output; then run it.
"""

# %% tags=["setup"]
import json
import re
from contextlib import contextmanager

from opentelemetry.sdk.trace import TracerProvider

import noetic_nb as nn
from noetic_nb.lessons import check
from noetic_nb.regulator import Regulator, ToolLoop
from noetic_nb.widgets import Transcript

# %% [markdown]
"""
## 1 · An agent that has never heard of us

Most agents are a loop: ask the model, run the tools that it calls, append the results, ask again. This one works at a shop. Its tools are two functions:
"""

# %%
ORDERS = {"A17": "paid 80 euros, delivered", "B7": "paid 900 euros, lost"}


def look_up(order: str) -> str:
    """Say what is known of an order."""
    return ORDERS.get(order, "No such order.")


def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"{amount:.0f} euros refunded for {order}."


TOOLS = [look_up, refund]

# %% [markdown]
"""
The model is a function of the messages. It is eager: every customer who asks for a refund gets one, unless the result of a tool tells
it to look first. A customer who asks for an order makes it look until the order is found.
"""


# %%
def call(number, name, **arguments):
    """Write the call of a tool as OpenAI's API does."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    made = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def model(messages):
    question, last = messages[0]["content"], messages[-1]["content"]
    called = ""
    if len(messages) > 1:
        called = messages[-2]["tool_calls"][0]["function"]["name"]
    order = re.search(r"\b[A-Z]\d+\b", question)[0]
    amount = re.search(r"(\d+) euros", question)
    if "Look the order up" in last:
        return call(len(messages), "look_up", order=order)
    if amount and called in ("", "look_up"):
        return call(len(messages), "refund", order=order, amount=float(amount[1]))
    if called == "" or last == "No such order.":  # perhaps it is there now?
        return call(len(messages), "look_up", order=order)
    return {"role": "assistant", "content": f"The shop says: {last}"}


# %%
def agent(question, tools, most=12):
    """Ask the model and run its tools until it answers; return all messages."""
    by_name = {tool.__name__: tool for tool in tools}
    messages = [{"role": "user", "content": question}]
    while "tool_calls" in (said := model(messages)) and len(messages) < 2 * most:
        (call,) = said["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        result = by_name[call["function"]["name"]](**arguments)
        answered = {"role": "tool", "tool_call_id": call["id"], "content": result}
        messages += [said, answered]
    return [*messages, said]


# %% [markdown]
"""**Predict.** Order A17 cost 80 euros. Somebody wants 500 back for it. What does the agent do?"""

# %%
claimed = agent("I want 500 euros back for A17.", TOOLS)
claimed[-1]["content"]

# %% [markdown]
"""
## 2 · Read it afterwards

A list of messages is a recording. `nn.import_run` makes a *run* of it, also of recordings by LangChain, pydantic-ai, OpenTelemetry and
others, and every table and every view takes a run.
"""

# %%
imported = nn.import_run(claimed)
Transcript(imported)

# %% [markdown]
"""
**Predict.** Messages carry no clock and no count of tokens. Which columns of the tables are therefore not measured: the time, the tokens, whether a
call of a tool succeeded, or all of these?
"""

# %%
imported.meta["estimated"]

# %% [markdown]
"""
All of them, and the run says so. To *measure*, somebody has to look on.

## 3 · Watch it while it works

The common language for that is OpenTelemetry: each piece of work is a *span* with a beginning, an end and attributes. Frameworks write them by themselves; for our
own loop a few lines do it. `nn.watch()` is a span processor that turns the spans into a run, **as they end**.
"""


# %%
@contextmanager
def watched(tools, rules=None):
    """Yield the tools, each in a span, and the run that the spans make."""
    watching, provider = nn.watch(rules=rules), TracerProvider()
    provider.add_span_processor(watching)
    tracer = provider.get_tracer("shop")

    def in_a_span(tool):
        def traced(**arguments):
            with tracer.start_as_current_span(f"execute_tool {tool.__name__}") as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", tool.__name__)
                span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))
                result = tool(**arguments)
                span.set_attribute("gen_ai.tool.call.result", result)
                return result

        traced.__name__ = tool.__name__
        return traced

    about = {"gen_ai.operation.name": "invoke_agent"}
    with tracer.start_as_current_span("invoke_agent shop", attributes=about):
        yield [in_a_span(tool) for tool in tools], watching.run


# %% [markdown]
"""
Rules may look on as well. This one wants that nobody gets more than 100 euros.

**Predict.** The rule says no to 500 euros. Are they paid?
"""

# %%
small = nn.RuleBook()
small.when(
    "tool.args.amount > 100.0",
    id="small",
    tools=["refund"],
    guidance="At most 100 euros.",
)
with watched(TOOLS, small) as (tools, run):
    print(agent("I want 500 euros back for A17.", tools)[-1]["content"])
run.to_frame("ledger")[["tool_name", "action", "rule_ids", "enforced"]]

# %% [markdown]
"""
They are: a watcher learns of a call when it is over. The **ledger** has the rule's *deny*, and `enforced` False beside it. Watching
shows the decisions a rule *would have* made: try a rule this way on an agent in service before it may deny.

### Exercise 7.1 · What a rule would have been worth

Write `harm(run)`: the euros that calls of `refund` have paid **although** a rule denied them. A call that was prevented has paid nothing; other tools have
amounts, too. All is in `run.to_frame("ledger")`: `tool_name`, `args`, `action`, `enforced`. For the run above it is 500.
"""


# %% tags=["exercise"]
def harm(run):
    return 0.0


# %% tags=["solution"]
def harm(run):
    ledger = run.to_frame("ledger")
    paid = ledger[
        (ledger.tool_name == "refund")
        & (ledger.action == "deny")
        & ~ledger.enforced.astype(bool)
    ]
    return sum(args["amount"] for args in paid.args)


# %% tags=["check"]
check("7.1", harm)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* Answers that add up every amount above 100 know the rule of this page by heart; the check has another rule. Ask for
the limits of the figure: a refused customer does not go away, and a denied refund may have been owed.
"""

# %% [markdown]
"""
## 4 · Put the rules in front

`nn.guard(tools, rules)` gives the same functions back, and the rules decide **before** each of them runs. With `on_deny="return"` the model reads the refusal
as the result of its call; otherwise it is raised. The agent is not changed.

**Predict.** What does the agent answer now?
"""

# %%
safe = nn.guard(TOOLS, small, on_deny="return")
agent("I want 500 euros back for A17.", safe)[-1]["content"]

# %%
safe[0].run.to_frame("ledger")[["tool_name", "action", "rule_ids", "enforced"]]

# %% [markdown]
"""
A refusal may also teach. This rule is a function, and looks at the calls so far: a refund needs a look at an order first.

**Predict.** Which calls does the agent make?
"""

# %%
look_first = nn.RuleBook()


@look_first.rule(on="before_tool_call", tools=["refund"])
def looked(call):
    if not any(past.name == "look_up" for past in call.history):
        return nn.deny("Look the order up first.")


careful = nn.guard(TOOLS, look_first, on_deny="return")
agent("I want 50 euros back for A17.", careful)
careful[0].run.to_frame("tools")[["tool_name", "args", "status"]]

# %% [markdown]
"""
The agent was refused, read why, looked, and tried again. But the rule wants *a* look, not one at the right order, and a look that finds nothing will do.

### Exercise 7.2 · Protect these tools

Complete `protect(tools)`. `tools` are a `look_up` and a `refund` like ours. Return them guarded, so that a refund runs only if
`look_up` was called with **the same order** before and has not answered `"No such order."`, and if the amount is at most 100 euros. A
refusal is returned, not raised, and looking up stays free. `call.history` has the calls so far: `name`, `args`, `status` and `output`.
"""


# %% tags=["exercise"]
def protect(tools):
    rules = nn.RuleBook()
    return nn.guard(tools, rules)


# %% tags=["solution"]
def protect(tools):
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call", tools=["refund"])
    def known_and_small(call):
        found = any(
            past.name == "look_up"
            and past.args["order"] == call.tool_args["order"]
            and past.status == "ok"
            and past.output != "No such order."
            for past in call.history
        )
        if not found:
            return nn.deny("Look the order up first.")
        if call.tool_args["amount"] > 100:
            return nn.deny("At most 100 euros.")

    return nn.guard(tools, rules, on_deny="return")


# %% tags=["check"]
check("7.2", protect)

# %% [markdown]
"""
## 5 · Whose calls count together?

A shop has many customers, and one process serves them all. This rule allows two refunds.

**Predict.** Ann asks for two refunds, then Bob asks for his first. Does he get it?
"""

# %%
two = nn.RuleBook()
two.at_most(2, "refund", guidance="Two refunds are enough.")
counted = nn.guard(refund, two, on_deny="return")
for who, order in [("Ann", "A1"), ("Ann", "A2"), ("Bob", "B7")]:
    print(who, "·", counted(order, 10.0))

# %% [markdown]
"""
He does not: nothing says where Ann's conversation ends, so all calls are one. `with nn.guard_session(name):` says whose calls these are. A session
is an **object**: entered again, it goes on; another one, even of the same name, begins anew.

### Exercise 7.3 · One limit for each customer

Complete `serve(refund, requests)`. `requests` are triples of a customer, an order and an amount, in the order in which they come in, customers mixed; `refund` is guarded. Return
the answers in the same order. A rule that counts must count for each customer alone.
"""


# %% tags=["exercise"]
def serve(refund, requests):
    return [refund(order, amount) for customer, order, amount in requests]


# %% tags=["solution"]
def serve(refund, requests):
    sessions, answers = {}, []
    for customer, order, amount in requests:
        if customer not in sessions:
            sessions[customer] = nn.guard_session(customer)
        with sessions[customer]:
            answers.append(refund(order, amount))
    return answers


# %% tags=["check"]
check("7.3", serve)

# %% [markdown]
"""
## 6 · A regulator in front

Our model looks for an order until it is found.

**Predict.** How often does it look for Z9, which does not exist?
"""

# %%
sum(each["role"] == "tool" for each in agent("Where is Z9?", TOOLS))

# %% [markdown]
"""
Until the loop gives up. A regulator that counts calls of one tool in a row ends it sooner: from the fifth call on, each one is refused, and the model reads the
suggestion.
"""

# %%
looping = Regulator.for_user("shop").with_predicates(ToolLoop())
patient = nn.guard(TOOLS, None, regulator=looping, on_deny="return")
print(agent("Where is Z9?", patient)[-1]["content"])
patient[0].run.to_frame("tools").status.value_counts()

# %% [markdown]
"""
## What this does not show

* A guard sees the calls of the tools that it stands in front of. It does not see other actions of an agent (a shell, a browser, its own
  HTTP).
* The guard of another agent does not know the user's messages, so `only_from_user` of lesson 03 denies everything there.
* We wrote the spans ourselves, with the attributes that we read. Frameworks differ in their spans: [Watching](../docs/frameworks.md)
  has four of them.
* Our model believes every text it reads. A real one may argue with a refusal, or look for another tool.

**Next.** `nn.watch(regulator=...)` lets a regulator look on as well, and `noetic_nb.widgets.Ledger(run)` follows a guarded agent while it works. Go on with
[08 · Write a layer, a rule form, a view](08_extending.ipynb).
"""
