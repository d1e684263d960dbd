# %% [markdown]
"""
# 05 · Steps, children, resume, and `run_sync`

**By the end you can** put an agent together from steps, end a loop for sure, and let children work side by side without filling the
conversation. You can resume a turn after a power failure without paying twice, and wait for an agent where `await` cannot be written.

**45 minutes.** No key and no network: models are functions of their requests. Run the first code cell, then read. Before each cell,
predict its output; then run it.
"""

# %% tags=["setup"]
import asyncio
import sys

import noetic_nb as nn
from noetic_nb.lessons import check
from noetic_nb.testing import FakeClock, SeededIds


def text_of(item) -> str:
    return "".join(part.get("text", "") for part in item.get("content", ()))


async def converse(step, *said, model=None):
    """Say these things to a new agent; return the agent and its run."""
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step),
        model=nn.ScriptedModel(model or (lambda request: "It comes tomorrow.")),
        clock=FakeClock(step_ms=1),
        ids=SeededIds(1),
    )
    run = nn.record(harness)
    for text in said:
        await harness.execute(text)
    return harness, run


def steps(run):
    return [f"{end.step_id} {end.status}" for end in run.select(nn.events.StepEnded)]


# %% [markdown]
"""
## 1 · An agent is a step

A *step* describes work and does nothing itself. There are seven kinds; these are three of them: `run` calls a function, `llm` asks the
model, and `branch` chooses. A cell that ends with a step shows it.
"""

# %%
ask_model = nn.step.llm("ask-model", model="scripted")
thank = nn.step.run("thank", lambda text, ctx: "You are welcome.")
desk = nn.branch("desk", lambda text, ctx: ask_model if "?" in text else thank)
desk

# %% [markdown]
"""
`converse` of the first cell gives a step to a new agent, says something to it, and returns the agent and its *run*:
everything that happened, as data. `steps(run)` has the steps in the order in which they ended.

**Predict.** Two messages, a question and a thank-you. Which steps run, and how often is the model called?
"""

# %%
agent, run_of_desk = await converse(desk, "Where is my parcel?", "Thanks!")
print([turn.text for turn in run_of_desk.turns])
print(steps(run_of_desk))
print(len(run_of_desk.select(nn.events.ModelCalled)), "model call")

# %% [markdown]
"""
A model is asked only where one is needed. A decision by a function is free and the same each time.

## 2 · A loop needs an end

A `loop` runs its steps again until a *predicate* says stop. `until.verified(f)` stops when `f` accepts the last output. `prepare_next`
makes the input of the next round: here the feedback of `f`. This writer leaves out two sentences for every "Shorter" that it was told.
"""

# %%
LETTER = [
    "We are sorry.",
    "Your parcel was lost.",
    "That happens rarely.",
    "We send another.",
    "It leaves today.",
    "Yours, the desk.",
]


def writer(request):
    told = sum("Shorter" in text_of(item) for item in request.items)
    return " ".join(LETTER[: max(1, len(LETTER) - 2 * told)])


def at_most(length):
    return lambda letter: {
        "pass": len(letter) <= length,
        "feedback": "Shorter, please.",
    }


def letter_of(length, **more):
    return nn.loop(
        "letter",
        [nn.step.llm("write", model="scripted")],
        until=nn.until.verified(at_most(length)),
        prepare_next=lambda letter, verdict, ctx: verdict.feedback,
        **more,
    )


# %% [markdown]
"""**Predict.** The whole letter has 107 characters, each sentence some 18. How many letters are written until one has at most 60?"""

# %%
_, run_of_sixty = await converse(letter_of(60), "Write to Ann.", model=writer)
print(steps(run_of_sixty))
print(run_of_sixty.turns[0].text)

# %% [markdown]
"""
**Predict.** Now at most 10 characters. The shortest letter has 13. How will it end? (The loop here may run five times; by default it
may a thousand times.)
"""

# %%
try:
    await converse(letter_of(10, max_iterations=5), "Write to Ann.", model=writer)
except nn.NoeticError as error:
    print(error.kind, str(error).replace(". ", ".\n"), sep="\n")

# %% [markdown]
"""
Five letters were paid for, and nobody gets one. A loop wants two ends: one that you hope for, and one that comes for
sure. `until.max_steps(n)` stops after n rounds, `until.any` and `until.all` put predicates together, and `until.custom`
takes a function of a snapshot (with `last_output` and `step_count`).

### Exercise 5.1 · An end for sure

Write `until_accepted(work, accepts, most)`: return a step that runs the step `work` until `accepts(output)` is true, at
most `most` times. Its output is the last one, accepted or not.
"""


# %% tags=["exercise"]
def until_accepted(work, accepts, most):
    return nn.loop("try", [work], until=nn.until.max_steps(1))


# %% tags=["solution"]
def until_accepted(work, accepts, most):
    ends = nn.until.any(nn.until.verified(accepts), nn.until.max_steps(most))
    return nn.loop("try", [work], until=ends)


# %% tags=["check"]
check("5.1", until_accepted)

# %% [markdown]
"""
## 3 · Children

`spawn` runs a step in a *child*: an execution with a conversation of its own. With `context_in="fresh"` it begins with its input and
nothing else, with `"inherit"` it gets a copy of the conversation.

**Predict.** Ann says her name, and then asks for it. Which of the two children knows it?
"""


# %%
def who(request):
    names = [text_of(item)[5:-1] for item in request.items if "I am" in text_of(item)]
    return f"You are {names[0]}." if names else "I do not know."


for context in ("fresh", "inherit"):
    child = nn.spawn("child", ask_model, context_in=context)
    agent, _ = await converse(child, "I am Ann.", "Who am I?", model=who)
    print(f"{context:>8}:", text_of(agent.log()[-1]))

# %% [markdown]
"""
A fresh child costs less and cannot be misled by the earlier conversation; it also knows nothing of it. `fork` runs several children
**side by side** and merges their results: with `mode="all"` each must succeed, with `"race"` the first one wins, with `"settle"` every
outcome counts, failures too.

**Predict.** Three jurors look at a claim, and the second one fails. What does `merge` get? And how many items does the
conversation have afterwards?
"""


# %%
def yes(text, ctx):
    return "pay"


def broken(text, ctx):
    raise ValueError("no coffee")


outcomes = []
jury = nn.fork(
    "jury",
    mode="settle",
    paths=[nn.step.run("first", yes), nn.step.run("second", broken), ask_model],
    merge=lambda each, ctx: outcomes.extend(each) or "Settled.",
)
agent, _ = await converse(jury, "My parcel was wet.", model=lambda request: "refuse")
for outcome in outcomes:
    print(outcome["step_id"], outcome["status"], outcome.get("value"))
print([text_of(item) for item in agent.log()])

# %% [markdown]
"""
Each outcome has a `status`, `fulfilled` with a `value`, or `rejected` with an `error`, in the order of the paths, regardless of their
speed. The conversation has the question and the answer: the children's own messages stay with them.

### Exercise 5.2 · The jury

Write `majority(jurors)`: return a step that asks all jurors side by side, steps whose output is a word, and whose
output is the word that most of them said. Jurors that fail have no vote. Of words with equally many votes the one wins
that comes first in the order of the jurors.
"""


# %% tags=["exercise"]
def majority(jurors):
    return nn.fork("jury", mode="all", paths=jurors, merge="first")


# %% tags=["solution"]
def majority(jurors):
    def count(outcomes, ctx):
        votes = [each["value"] for each in outcomes if each["status"] == "fulfilled"]
        return max(votes, key=votes.count)  # the first of equals

    return nn.fork("jury", mode="settle", paths=jurors, merge=count)


# %% tags=["check"]
check("5.2", majority)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* `Counter(votes).most_common(1)` is right as well: it keeps the order of equals. `max(set(votes),
key=votes.count)` is right on most days, as the order of a set of words is drawn anew with each start of Python.
"""

# %% [markdown]
"""
## 4 · The power fails

With `checkpoints=True` the end of each step is in storage as soon as the step ends. `harness.unfinished()` finds turns
that were cut off, `harness.resume(...)` goes on with one.

We cannot pull the plug of your computer. Instead, `power_fails()` copies the storage in the middle of a turn: a new process would find
this copy. `cut_off(step_with)` runs a turn of the step `step_with(power_fails)`, and then goes on with the copy, in a new agent. You
need not read it line by line: only its output counts.
"""


# %%
async def copied(storage):
    """Return another storage with all that is in this one."""
    copy = nn.InMemoryStorage()
    for key in await storage.list(""):
        await copy.set(key, await storage.get(key))
    return copy


async def cut_off(step_with, model=None):
    """Run a turn whose power fails, and go on with it; return the run of the rest."""
    disk, copies = nn.InMemoryStorage(), []

    async def power_fails():
        copies.append(await copied(disk))

    def start(storage):
        config = nn.AgentConfig(name="cashier", step=step_with(power_fails))
        answers = nn.ScriptedModel(model or (lambda request: "It is paid."))
        return nn.AgentHarness(config, model=answers, storage=storage, checkpoints=True)

    await start(disk).execute("Pay my bill.")
    later = start(copies[0])
    rest = nn.record(later)
    for turn in await later.unfinished():
        await later.resume(turn)
    return rest


# %% [markdown]
"""
**Predict.** Three steps, one after the other: pay, send a letter, archive. The power fails within the second. Which of
the three are done again when the turn goes on?
"""


# %%
def three_steps(power_fails):
    async def send_letter(text, ctx):
        await power_fails()
        return "sent"

    pay = nn.step.run("pay", lambda text, ctx: "paid")
    letter = nn.step.run("letter", send_letter)
    archive = nn.step.run("archive", lambda text, ctx: "archived")
    return nn.loop("all", [pay, letter, archive], until=nn.until.max_steps(1))


steps(await cut_off(three_steps))

# %% [markdown]
"""
A step that had ended is *replayed*: its output is taken from storage. A step that was under way begins again, and nobody can know how
far it had come.

**Predict.** Now the step under way is a payment: a model calls the tool `pay`, the bank has the money, and *then* the
power fails. What does the bank know in the end?
"""


# %%
def cashier(request):
    paid = any(item.get("type") == "function_call_output" for item in request.items)
    return "It is paid." if paid else nn.CallTool("pay", amount=80)


def payment(bank, charge):
    def step_with(power_fails):
        @nn.tool
        async def pay(amount: float, ctx) -> str:
            """Pay an amount."""
            charge(bank, amount, ctx)
            await power_fails()
            return "paid"

        return nn.react(model="scripted", tools=[pay])

    return step_with


def careless(bank, amount, ctx):
    bank.append(("?", amount))


twice = []
await cut_off(payment(twice, careless), cashier)
twice

# %% [markdown]
"""
Paid twice. No storage on our side can prevent that: between the bank and our disk there is always a moment when one
knows and the other does not. But the same call can carry the same name. `ctx.idempotency_key` is the same when the call
is made again after a failure, and another for every other call.

### Exercise 5.3 · Pay once

Write `charge(bank, amount, ctx)`. `bank` is a list of pairs, a key and an amount, that outlives any failure. Append the
payment, unless this very call has made it already. Two calls that pay the same amount are two payments.
"""


# %% tags=["exercise"]
def charge(bank, amount, ctx):
    bank.append(("?", amount))


# %% tags=["solution"]
def charge(bank, amount, ctx):
    known = [key for key, _ in bank]
    if ctx.idempotency_key not in known:
        bank.append((ctx.idempotency_key, amount))


# %% tags=["check"]
check("5.3", charge)

# %% [markdown]
"""
## 5 · Where `await` cannot be written

In a notebook, `await` works in a cell. It does not work within a plain function, and libraries call plain functions:
`sorted(key=...)`, a table's `apply`, a callback. Scripts use `asyncio.run` there, which a notebook refuses: its own
*loop* runs already. `nn.run_sync` lets the work be done by a loop in another thread, and waits for it.

**Predict.** Which of these questions comes first, the longest or the shortest?
"""

# %%
chatty = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))


def answer_to(question):
    model = nn.ScriptedModel(lambda request: "You ask: " + text_of(request.items[-1]))
    return nn.run_sync(nn.AgentHarness(chatty, model=model).execute(question)).text


questions = ["Is it late?", "Why?", "Where is my parcel?", "When?"]
sorted(questions, key=lambda each: len(answer_to(each)))

# %% [markdown]
"""
Another thread has one limit: it cannot wait for objects of the notebook's own loop (a connection that a cell has opened, a task that it
has begun). `nested="patch"` has the notebook's loop do the work instead, entered a second time. It changes asyncio for good, until the
kernel ends, so it is not the default.

**Predict.** A *future* (a result that is not there yet) of the notebook's loop is done a moment later. Which of the two
ways gets its result?
"""

# %%
IN_A_BROWSER = sys.platform == "emscripten"  # JupyterLite has one loop and no threads
loop, written = asyncio.get_running_loop(), []


async def result_of(future):
    return await future


if IN_A_BROWSER:
    print("Here there is nothing to choose: in a browser Python has no threads.")
for way in () if IN_A_BROWSER else ("thread", "patch"):
    future = loop.create_future()
    loop.call_soon(future.set_result, "a letter")
    try:
        print(f"{way:>6}: {nn.run_sync(result_of(future), nested=way)}")
    except RuntimeError as error:
        print(f"{way:>6}: the future is {str(error)[-28:]}")

# %% [markdown]
"""
And cells that are **queued**? Run the next three cells quickly, without waiting for one to end. The first two wait a
moment each, with the loop entered twice.

**Predict.** In which order do they write into the list?
"""

# %%
written.append("first begins")
if not IN_A_BROWSER:
    nn.run_sync(asyncio.sleep(0.3), nested="patch")
written.append("first ends")

# %%
written.append("second begins")
if not IN_A_BROWSER:
    nn.run_sync(asyncio.sleep(0.3), nested="patch")
written.append("second ends")

# %%
written

# %% [markdown]
"""
Each cell ends before the next one begins. This needs the maintained package `nest-asyncio2`, which current kernels
bring. Its archived predecessor loses queued cells; if only that one is installed, `run_sync` uses it and warns.

## What this does not show

* Storage was in memory. `nn.SQLiteStorage("desk.db")` is a file and survives a killed process; the tests of the library
  kill processes to check that.
* A bank that does not know your key cannot help you. Real ones take an idempotency key with each payment; ask before
  you build on it.
* Jurors that are the same model make the same mistakes. A majority of them is no proof.
* Children cost tokens: three jurors pay for the claim three times.

**Next.** In a live notebook, `noetic_nb.widgets.RunTimeline(run)` shows the spans of a run, their nesting and their overlap. Go on with
[06 · What if?](06_what_if.ipynb).
"""
