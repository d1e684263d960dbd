# %% [markdown]
"""
# 08 · Write a layer, a rule form, a view

**By the end you can** give an agent a memory of your own, write many rules in few words, and show your own view of a run, live and as a
page that needs nothing.

**45 minutes.** No key and no network: the model is a function of its request. Run the first code cell, then read. Before each cell,
predict its output; then run it. Some JavaScript helps in section 3, but is not needed.
"""

# %% tags=["setup"]
import re

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.lessons import check
from noetic_nb.markup import escape
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.widgets.base import Moment, Reading, RunView, script, style


def text_of(item) -> str:
    return "".join(part.get("text", "") for part in item.get("content", ()))


# %% [markdown]
"""
## 1 · A layer

A memory layer is a record of functions, its *hooks*, each called at one moment of a turn. Two are enough to remember something: `store` is called after an
answer and returns the layer's new **state**; `recall` is called before the model is and returns a text to offer. This layer remembers the numbers of orders:
"""


# %%
def keep(p):
    """After an answer: which orders were named so far?"""
    said = " ".join(text_of(item) for item in p.log)
    return {"state": list(dict.fromkeys(re.findall(r"\b[A-Z]\d+\b", said)))}


def offer(p):
    """Before a call: what should the model see?"""
    return f"<orders>{', '.join(p.state)}</orders>" if p.state else None


def orders(scope="thread"):
    return nn.MemoryLayer(
        id="orders",
        slot=120,
        scope=scope,
        budget={"min": 0, "max": 50},
        hooks=nn.MemoryHooks(store=keep, recall=offer),
    )


# %% [markdown]
"""
The model repeats the text beside the conversation, and only that: the offers of the layers arrive as a message of the *developer*. Each
call of `talk` starts a new agent.
"""


# %%
def mirror(request):
    seen = [text_of(item) for item in request.items if item["role"] == "developer"]
    return f"I see: {' '.join(seen)}" if seen else "I see nothing."


async def talk(layer, *said):
    """Say things to a new agent, each in a thread; return the recording."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="mirror"), memory=[layer])
    fixed = {"clock": FakeClock(step_ms=1), "ids": SeededIds(1)}
    desk = nn.AgentHarness(config, model=nn.ScriptedModel(mirror), **fixed)
    run = nn.record(desk)
    for thread, text in said:
        reply = await desk.execute(text, thread_id=thread, resource_id="Ann")
        print(f"{thread} · {text} → {reply.text[:60]}")
    return run


# %% [markdown]
"""**Predict.** What are the three answers? When is the first order offered: in the turn that names it, or in the next one?"""

# %%
SAID = [("Monday", "Where is A17?"), ("Monday", "And B7?"), ("Monday", "Well?")]
monday = await talk(orders(), *SAID)

# %% [markdown]
"""
In the next one: `recall` comes before `store`. The state belongs to a **scope**.

**Predict.** What does the agent see on Tuesday, in another thread of the same person: with `scope="thread"`, and with `scope="resource"`?
"""

# %%
TUESDAY = [*SAID[:1], ("Tuesday", "Any news?")]
for scope in ("thread", "resource"):
    await talk(orders(scope), *TUESDAY)

# %% [markdown]
"""
A layer is held to its **allocation**, regardless of its offer. `p.budget` is that allocation, so that a layer can choose the text to
leave out.

**Predict.** This one offers 500 tokens where it may use 50. How many does the model get?
"""

# %%
chatter = nn.MemoryLayer(
    id="chatter",
    slot=120,
    scope="thread",
    budget={"min": 0, "max": 50},
    hooks=nn.MemoryHooks(recall=lambda p: "word " * 400),
)
greedy = await talk(chatter, ("Monday", "Hello?"))
greedy.to_frame("allocations")[["layer_id", "allocated", "used"]]

# %% [markdown]
"""
Fifty: the rest is cut off wherever that happens to be, and a warning names the layer.

### Exercise 8.1 · What the agent has promised

Complete `promises()`: return a layer that remembers the answers **of the agent** that begin with "I will" and offers them, one a line, oldest first: each once, and of more than
three only the three newest. Threads are apart. `p.log` in `store` has the conversation so far; each item has a `role`.
The check talks to an agent that answers "Say: I will call Bob." with "I will call Bob."
"""


# %% tags=["exercise"]
def promises():
    return nn.MemoryLayer(id="promises", slot=120, scope="thread")


# %% tags=["solution"]
def promises():
    def keep(p):
        said = [
            "".join(part.get("text", "") for part in item.get("content", ()))
            for item in p.log
            if item.get("role") == "assistant"
        ]
        kept = [text for text in said if text.startswith("I will")]
        return {"state": list(dict.fromkeys(kept))[-3:]}

    def offer(p):
        return "\n".join(p.state) if p.state else None

    hooks = nn.MemoryHooks(store=keep, recall=offer)
    return nn.MemoryLayer(id="promises", slot=120, scope="thread", hooks=hooks)


# %% tags=["check"]
check("8.1", promises)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* The tempting answer keeps its list in a variable of the notebook. It works with one customer and tells the second one
the promises to the first; nor is it saved, shown by `MemoryView`, or restored when a turn is resumed. State belongs into the state.
"""

# %% [markdown]
"""
## 2 · A rule form

`rules.at_most(2, "refund")` replaces a function by one line. Such a *form* of your own is a function that puts a rule into a book:
"""


# %%
def one_of(rules, tool, argument, values):
    """Deny a call whose argument is none of these."""

    @rules.rule(on="before_tool_call", tools=[tool])
    def allowed(call):
        if call.tool_args[argument] not in values:
            return nn.deny(f"{argument} must be one of {', '.join(values)}.")


@nn.tool
def ship(country: str) -> str:
    """Send the parcel."""
    return f"On its way to {country}."


# %% [markdown]
"""**Predict.** Both lines use the form. How many rules are in the book?"""

# %%
twice = nn.RuleBook()
one_of(twice, "ship", "country", ["Norway", "Peru"])
try:
    one_of(twice, "pay", "currency", ["euro", "sol"])
except nn.NoeticConfigError as error:
    print(error)
shipping = nn.guard(ship, twice, on_deny="return")
print(shipping("Atlantis"))
[rule.id for rule in twice]

# %% [markdown]
"""
One! A rule is known by its id, which is the function's name where nothing else is said. A cell that is run again **replaces** its
rules, which makes that harmless; the second use of a form would replace the first, which is refused. So a form has to name its product:
`@rules.rule(f"{tool}-{argument}-one-of", on=...)`.

### Exercise 8.2 · Once for each

Write the form `once_for_each(rules, tool, argument)`: a call of `tool` is denied where an **earlier call of it that succeeded** had the same value of `argument`. Other
values, and other tools, are free. `call.history` has `name`, `args` and `status` of the calls so far.
"""


# %% tags=["exercise"]
def once_for_each(rules, tool, argument):
    rules.at_most(1, tool)


# %% tags=["solution"]
def once_for_each(rules, tool, argument):
    @rules.rule(f"{tool}-once-for-each-{argument}", on="before_tool_call", tools=[tool])
    def once(call):
        value = call.tool_args[argument]
        for past in call.history:
            same = past.name == tool and past.args[argument] == value
            if same and past.status == "ok":
                return nn.deny(f"{tool} was done for {value} already.")


# %% tags=["check"]
check("8.2", once_for_each)

# %% [markdown]
"""
## 3 · A view

A view is made of two parts. The **reading** takes the events of a run, one by one, and knows nothing of notebooks; `snapshot` is the
data for a page. This one counts calls of tools. `take` returns a message where something has changed, and None where nothing has.
"""


# %%
class ToolCounts(Reading):
    def __init__(self):
        self.snapshot = {"counts": {}}

    def take(self, event, place):
        if event.kind != "tool_called":
            return None
        counts = self.snapshot["counts"]
        counts[event.name] = counts.get(event.name, 0) + 1
        return {"type": "all", "snapshot": self.snapshot}

    def rows(self):
        return sorted(self.snapshot["counts"].items(), key=lambda row: -row[1])

    def to_html(self):
        rows = [f"<li>{escape(name)}: {count}</li>" for name, count in self.rows()]
        return f"<p>Calls of tools</p><ul>{''.join(rows)}</ul>"

    def to_text(self):
        return "\n".join(f"{count:>3} {name}" for name, count in self.rows())


# %% [markdown]
"""So a reading can be tried without a page. **Predict.** What did this recorded agent of an airline call most?"""

# %%
airline = lab.datasets.airline_run(80)
reading = ToolCounts()
for seq, event in enumerate(airline.events):
    reading.take(event, seq)
print(reading.to_text())

# %% [markdown]
"""
The **view** puts it on a page. `RunView` does the rest: it follows a run that grows, sends each message, and leaves the static form for pages without a kernel. The script
draws; `storeOf`, `make`, `patch` and `setText` come with the package (`widgets/base/common.js`); they set text, never HTML.
"""

# %%
DRAW = """
export default () => {
  const store = storeOf(() => true);
  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb" }));
    root.append(make("p", { class: "nn-title" }, "Calls of tools"));
    const list = root.appendChild(make("ul"));
    const draw = (data) => {
      const rows = Object.entries(data.counts).sort((a, b) => b[1] - a[1]);
      const write = (node, [name, count]) => setText(node, `${name}: ${count}`);
      patch(list, rows, () => make("li"), write);
    };
    return store.show({ model, el, root, draw });
  }
  return { initialize: store.initialize, render: store.guard(render) };
};
"""


class ToolCountsView(RunView):
    table = "tools"
    _esm = script() + DRAW
    _css = style("base/notice")

    def __init__(self, run, *, until=None):
        super().__init__(run, ToolCounts(), moment=Moment(until=until))


# %%
ToolCountsView(airline)

# %% [markdown]
"""
`RunView` knows moments, too. **Predict.** Which of the lines are left with the turns up to the third?
"""

# %%
ToolCountsView(airline, until=3)

# %% [markdown]
"""
Names of tools come from models and other people. A reading that writes them into HTML itself has to `escape` them.

**Predict.** What would a page do with the second line?
"""

# %%
HOSTILE = "<img src=x onerror=alert(1)>"
print(escape(HOSTILE))
print(HOSTILE)

# %% [markdown]
"""
The second is an image that cannot be loaded, and so a script that runs, with all that the reader of the page may do.

### Exercise 8.3 · Refusals

Complete the reading `Refusals`: `snapshot["refused"]` counts, for each tool, the calls that did not run because a rule refused them (`tool_called` events whose `status` is `"denied"` or
`"guided"`). `take` returns a mapping where a count has changed, and None otherwise; `to_html` has each name, safe, with its count. The snapshot is always the same object.
"""

# %% tags=["exercise"]
from noetic_nb.markup import escape
from noetic_nb.widgets.base import Reading


class Refusals(Reading):
    def __init__(self):
        self.snapshot = {"refused": {}}

    def take(self, event, place):
        return None

    def to_html(self):
        return ""

    def to_text(self):
        return str(self.snapshot["refused"])


# %% tags=["solution"]
from noetic_nb.markup import escape
from noetic_nb.widgets.base import Reading


class Refusals(Reading):
    def __init__(self):
        self.snapshot = {"refused": {}}

    def take(self, event, place):
        if event.kind != "tool_called" or event.status not in ("denied", "guided"):
            return None
        refused = self.snapshot["refused"]
        refused[event.name] = refused.get(event.name, 0) + 1
        return {"type": "all", "snapshot": self.snapshot}

    def to_html(self):
        refused = self.snapshot["refused"].items()
        rows = [f"<li>{escape(name)}: {count}</li>" for name, count in refused]
        return f"<ul>{''.join(rows)}</ul>"

    def to_text(self):
        return str(self.snapshot["refused"])


# %% tags=["check"]
check("8.3", Refusals)

# %% [markdown]
"""
## What this does not show

* Our layer looks for a pattern. Choosing the facts worth remembering in real talk is the hard part; lesson 01 has ways, and
  [Memory](../docs/experiments/memory.ipynb) measures them.
* The view sends its whole snapshot with every change. That is fine for ten lines; the views of the package send only changes.
* A form whose rules look at the calls so far sees as far as its book's scope reaches: one turn, unless you say more.
* None of this was tried under load, on a phone, or by an attacker. [Architecture](../docs/architecture.md) says which tests a layer,
  a form and a view of the package are held to.

**Next.** Take an agent of your own, or go on with [09 · How well does an agent remember?](09_measuring.ipynb).
"""
