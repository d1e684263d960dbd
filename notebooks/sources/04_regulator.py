# %% [markdown]
"""
# 04 · The regulator, calibrated

**By the end you can** say when a regulator stops a conversation and why, find a threshold on recorded runs, and judge whether to use it
at all: its savings, its losses, and the uncertainty of both.

**40 minutes.** No key and no network: the conversations were recorded by others. It needs `pip install 'noetic_nb[lab,rules,study]'`,
which `make lab` does. Run the first code cell, then read. Before each cell, predict its output; then run it.
"""

# %% tags=["setup"]
import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.events import ToolCalled
from noetic_nb.lessons import check
from noetic_nb.regulator import CallBudget, QualityDecline, Regulator
from noetic_nb.regulator.events import Cost, QualityFeedback, TurnComplete, TurnStart
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.widgets import Workbench

# %% [markdown]
"""
## 1 · Events in, decisions out

A *regulator* looks over an agent's shoulder. It receives events (a turn begins, an answer was given, it cost so many tokens, somebody
graded it from 0 to 1) and says *continue* or *circuit break*. It calls no model; the same events give the same decision.
"""


# %%
def decisions(grades):
    """Tell a new regulator about one answer a turn; return what it decides after each."""
    regulator = Regulator.for_user("learner").with_predicates(QualityDecline())
    decided = []
    for number, grade in enumerate(grades, 1):
        regulator.on_event(TurnStart(f"question {number}"))
        regulator.on_event(TurnComplete(f"answer {number}"))
        regulator.on_event(Cost(tokens_in=200, tokens_out=100, wallclock_ms=900))
        regulator.on_event(QualityFeedback(grade))
        decided.append(regulator.decide().kind)
    return decided


# %% [markdown]
"""
One rule is in force: stop where answers get *worse* and are *poor*. **Predict** at which of these grades, if any, each conversation is stopped.
"""

# %%
for grades in ([0.9, 0.6, 0.45, 0.2], [0.3, 0.3, 0.3, 0.3], [0.9, 0.8, 0.7, 0.6]):
    print(grades, "→", decisions(grades))

# %% [markdown]
"""
Poor all along is no decline, and a decline among good answers is not poor. The rule compares the oldest and the newest of the **last three** grades:
a drop of at least 0.15, with a mean below 0.5.

### Exercise 4.1 · Is it getting worse?

Write `worse(grades)`: True where the regulator stops after these grades, False where it does not. Your function is compared with the real one.
"""


# %% tags=["exercise"]
def worse(grades):
    return False


# %% tags=["solution"]
def worse(grades):
    if len(grades) < 3:
        return False
    oldest, middle, newest = grades[-3:]
    return oldest - newest >= 0.15 and (oldest + middle + newest) / 3 < 0.5


# %% tags=["check"]
check("4.1", worse)

# %% [markdown]
"""
## 2 · In front of an agent

The layer `nn.regulation` sends the events of an agent to a regulator. This model is a function of its prompt: the longer the
conversation, the more it apologises. The grader gives an answer 0.6 and takes away 0.15 for each "sorry".
"""


# %%
def tired(request) -> str:
    questions = sum(item.get("role") == "user" for item in request.items)
    return "Gate 12, terminal 2." + " Sorry!" * (questions - 1)


def grader(reply) -> float:
    return max(0.0, 0.6 - 0.15 * reply.text.count("Sorry"))


# %% [markdown]
"""**Predict.** The grades are 0.6, 0.45, 0.3, … In which turn is the conversation stopped?"""

# %%
config = nn.AgentConfig(
    name="desk",
    step=nn.react(model="scripted"),
    memory=[
        nn.regulation(
            Regulator.for_user("ann").with_predicates(QualityDecline()), grader=grader
        )
    ],
)
desk = nn.AgentHarness(
    config, model=nn.ScriptedModel(tired), clock=FakeClock(step_ms=3), ids=SeededIds(1)
)
nn.record(desk)
for number in range(1, 6):
    reply = await desk.execute(f"Question {number}?")
    print(number, "STOPPED:" if reply.stopped else "answered:", reply.text)

# %% [markdown]
"""
The third answer gets the third grade, and with it the break: the user reads a suggestion instead. Later turns are stopped before the model is even
asked, until somebody says that a new task begins. The **workbench** has the conversation beside the grades and the break. Drag the threshold, and it
says which turns would have been stopped; or ask the desk a sixth question.
"""

# %%
Workbench(desk, panels=["trends"])

# %% [markdown]
"""
## 3 · A threshold from recorded runs

Grades are rare in the wild; calls of tools are always there. Perhaps an agent that is lost makes many calls? Twenty conversations at an airline's
desk were recorded, ten of them failed.

**Predict.** Do failed runs make more calls than good ones?
"""

# %%
airline = lab.datasets.airline()
calls = {True: [], False: []}
for run in airline:
    calls[run.meta["outcome"]].append(len(run.select(ToolCalled)))
print("good:  ", sorted(calls[True]))
print("failed:", sorted(calls[False]))

# %% [markdown]
"""
Some failed runs make more; many do not. A threshold *t* stops every run that reaches *t* calls. How many failed runs it stops is one number, how many
good ones the other; no threshold is good at both ends.
"""

# %%
for threshold_tried in (5, 10, 15, 20):
    stopped = {
        good: sum(count >= threshold_tried for count in counts)
        for good, counts in calls.items()
    }
    effect = (
        f"stops {stopped[False]} of 10 failed runs and {stopped[True]} of 10 good ones"
    )
    print(f"{threshold_tried:>3} calls: {effect}")

# %% [markdown]
"""
### Exercise 4.2 · The best threshold

Write `threshold(good, failed, allowed)`. `good` and `failed` are lists of the numbers of calls; `allowed` is the share of good runs, 0 to 1, that
may be stopped. Among the numbers in `failed`, return the threshold that stops most failed runs without stopping more good ones than allowed, and
None where there is none.
"""


# %% tags=["exercise"]
def threshold(good, failed, allowed):
    return 10


# %% tags=["solution"]
def threshold(good, failed, allowed):
    best = None
    for candidate in sorted(set(failed)):
        good_stopped = sum(count >= candidate for count in good)
        if good_stopped > allowed * len(good):
            continue
        # Lower thresholds stop at least as many failed runs, so the first that is legal is the best one.
        best = candidate
        break
    return best


# %% tags=["check"]
check("4.2", threshold)

# %% [markdown] tags=["notes"]
"""
*For the teacher.* A candidate is itself a failed run, so a lower one stops more of them: the lowest that is legal is the best. Answers that count
everybody, or look for the best difference, are worth comparing in class: what would each of them be the right answer to?
"""

# %% [markdown]
"""
## 4 · Half of the tasks put aside

A threshold that was chosen on some runs looks good *on those runs*. `lab.calibrate` chooses it on half of the tasks and reports it on the other half.
`AUC` is the chance that a failed run makes more calls than a good one: 0.5 is a coin.

**Predict.** Is the AUC on the held-out half of the airline's runs above a half?
"""

# %%
COLUMNS = [
    "split",
    "runs",
    "threshold",
    "stopped_failed",
    "stopped_good",
    "auc",
    "auc_low",
    "auc_high",
]
found = lab.calibrate(CallBudget(), airline, max_stopped_good=0.1)
rows = found.table
rows[(rows.detector == "call_budget") & (rows.domain == "all")][COLUMNS].round(2)

# %% [markdown]
"""
0.92! But look at the two rows: on the half where the threshold was fitted, it is 0.55. Each half has about ten runs, and the interval of the
first goes from 0.19 to 0.86. With so few runs a figure says little, however good it looks.

**Predict.** A telephone company's desk, forty runs. Is the same detector as good there?
"""

# %%
telecom = lab.datasets.telecom()
elsewhere = lab.calibrate(CallBudget(), telecom, max_stopped_good=0.1)
rows = elsewhere.table
print(elsewhere.threshold, dict(elsewhere.reasons))
rows[(rows.detector == "call_budget") & (rows.domain == "all")][COLUMNS].round(2)

# %% [markdown]
"""
*Off*: no threshold (`None`, `NaN`). At this desk the good runs are those with more calls (an AUC *below* a half), and the calibration says so instead of giving a number. A threshold
belongs to the desk where it was found.

## 5 · What a stop is worth

Stopping a failed run saves its later costs. A good run that is stopped is lost. `lab.economics` lists both for every threshold.

**Predict.** Threshold 1 stops every run that calls a tool. Which threshold loses no good run, and what part of the tokens does it still save?
"""

# %%
table = lab.economics(CallBudget(), airline)
everywhere = table[(table.domain == "all") & (table.policy == "detector")]
everywhere[everywhere.threshold.isin([1, 5, 9, 13, 17])][
    [
        "threshold",
        "tokens_saved",
        "tokens_saved_low",
        "tokens_saved_high",
        "good_lost",
        "failed_stopped",
    ]
].round(2)

# %% [markdown]
"""
Threshold 1 saves 555 000 tokens and loses nine of ten good runs. Threshold 17 loses none and saves 77 000, a seventh of that; and its interval begins at
zero: on other conversations of this kind it might save nothing.

### Exercise 4.3 · Saved and lost

Write `saved_and_lost(runs, threshold)`. `runs` is a list of pairs: whether the run was good, and the tokens of each of its calls. A run is stopped
at the call that reaches the threshold; that call has been paid for. Return a pair: the tokens that failed runs would not have spent, and the
number of good runs that would have been lost.
"""


# %% tags=["exercise"]
def saved_and_lost(runs, threshold):
    return 0, 0


# %% tags=["solution"]
def saved_and_lost(runs, threshold):
    saved = lost = 0
    for good, tokens in runs:
        if good and len(tokens) >= threshold:
            lost += 1
        if not good:
            saved += sum(tokens[threshold:])
    return saved, lost


# %% tags=["check"]
check("4.3", saved_and_lost)

# %% [markdown]
"""
## What this does not show

* Twenty and forty runs are few. The intervals say how few; read them before the figures.
* Stopping is not helping: a run that is stopped has still failed, only sooner and cheaper. The later work of a person or another model
  is not here.
* The thresholds of section 5 were looked at on the runs that they are about. Their value on other tasks is
  [measured](../docs/studies/stopping_value.md).
* Grades came from a function. A real grader is wrong now and then, and the regulator believes it.

**Next.** [Where to stop a run](../docs/experiments/thresholds.ipynb) tries several detectors at once. Go on with
[05 · Steps](05_steps.ipynb).
"""
