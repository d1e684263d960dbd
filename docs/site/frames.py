"""Every table of the library: what makes it, what a row is, and a sentence for each column.

``tests/docs/test_site.py`` runs what makes them and compares the columns, so that none is missing here and none too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SET_UP", "TABLES", "Table", "frames_page"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table: the code that makes it, what a row is, its columns in their order."""

    code: str
    row: str
    columns: str
    note: str = ""

    @property
    def sentences(self) -> dict[str, str]:
        """Return what each column means; a line without a sentence names columns that were explained before."""
        found: dict[str, str] = {}
        for line in filter(None, self.columns.splitlines()):
            names, _, sentence = line.strip().partition(": ")
            found |= dict.fromkeys(names.split(", "), sentence)
        return found


SET_UP: Final = """
import asyncio
import noetic_nb as nn
from noetic_nb import lab, widgets
from noetic_nb.regulator import CallBudget, Regulator

policy = nn.ProjectionPolicy(token_budget=70, response_reserve=0, overflow="truncate")
config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), projection=policy)
harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 2))
run = nn.record(harness)
for text in ("My order is A17-B.", "Thank you."):
    asyncio.run(harness.execute(text, thread_id="t"))
airline, bank = lab.datasets.airline(), lab.datasets.agentdojo("banking")
rules = nn.RuleBook()
rules.only_from_user("send_money", "recipient")
for each in airline[:4]:
    each.label("polite", True, by="ann")
    each.label("polite", each is not airline[0], by="bob")
found = lab.calibrate(CallBudget(), airline, samples=50)
"""

WHERE: Final = """
run_id: The run.
thread_id: The conversation.
execution_id: The execution: of the turn, or of a child.
turn: The number of the turn in its thread, from 1.
seq: The place of the event in the run, from 0.
t_ms: When, in milliseconds since 1970 by the clock of the harness; where an import had to guess, `run.meta["estimated"]` says so.
"""

TABLES: Final = {
    "Turns": Table(
        'run.to_frame("turns")',
        "a turn",
        WHERE
        + """
turn_id: The id of the turn.
query: What the user wrote.
text: What was answered.
outcome: How it ended: success, failure or aborted; None while it is running.
stopped: The kind of the decision of a regulator that stopped it, or None.
quality: The newest grade, 0 to 1; missing where nobody graded.
input_tokens, output_tokens: Tokens, as the provider counted.
cost: US dollars; missing where no price is known.
duration_ms: Milliseconds.
model_calls, tool_calls: How many.
resource_id: Whose conversation it is.
finish_reason: Why the last answer ended: stop, tool_calls, length, content_filter; None where not known.
cached_tokens: Tokens of the input that were read from the provider's cache, of the calls that tell it; missing where none does.
cache_write_tokens: Those that were written to it, the same.
reasoning_tokens: Tokens of the output that are reasoning, the same.
cached_tokens_known, cache_write_tokens_known, reasoning_tokens_known: Of how many model calls the number is known.
""",
    ),
    "Allocations": Table(
        'run.to_frame("allocations")',
        "a layer in a request that was sent",
        WHERE
        + """
layer_id: The layer.
allocated: Tokens it might use.
used: Tokens it did use.
yielded: Tokens it left to the history.
items: How many items it brought.
step: The number of the request in its execution.
system, tools, framing, history: Tokens of these parts of the request.
history_budget: Tokens the history might use.
reserve: Tokens kept free for the response.
total: Tokens of the whole budget.
reported: Input tokens as the provider counted.
unexplained: Reported tokens that no part of the plan accounts for.
counter: What counted the tokens.
known_error: Its relative error, as measured; missing where nobody measured.
""",
    ),
    "Items": Table(
        'run.to_frame("items")',
        "an item of the log",
        WHERE
        + """
position: Its place in the log of the thread.
origin: Who brought it: user, model, tool, guidance (of a rule), layer, seed (the conversation it began with) or step.
item_id: Its id.
type, role: Its type, and the role of a message.
name, call_id: Of a tool call or its output.
tokens: Its length in tokens.
text: What it says.
counter: What counted the tokens.
sent_from, sent_until: The first and the last model call that sent it, by their places; missing where none did.
fate: Why the last call that had it in its log did not send it: budget, window, summary, compaction or cleared; None where it did.
""",
    ),
    "Spans": Table(
        'run.to_frame("spans")',
        "a call of a hook of a layer",
        WHERE
        + """
layer_id, hook: Which layer, which hook.
duration_ms: Milliseconds.
status: ok, error, timeout or skipped.
allocated, used, yielded: Tokens of a recall.
item_count: How many items the hook returned.
error: What went wrong, or None.
depth: 0 for the turn, 1 for its children, and so on.
""",
    ),
    "Tools": Table(
        'run.to_frame("tools")',
        "a tool call that was settled",
        WHERE
        + """
tool_name, call_id: Which tool, which call.
args: What the tool got.
output: What the model read.
duration_ms: Milliseconds; missing where nobody measured.
status: ok, error, denied, guided, invalid_args, invalid_result or unknown (no such tool).
error: What went wrong, or None.
depth: 0 for the turn, 1 for its children, and so on.
raw_args: What the model wrote; None where it was no JSON or nobody knows.
error_type: The class of the error, or the kind of one of ours.
""",
    ),
    "Runs": Table(
        "nn.open_runs([run]).to_frame()",
        "a run of a collection",
        """
run_id, path, place, source: Its name, its file (None where it has none), its place in the file from 0, the format it came in.
task, model: meta["task_id"]; the model of its last call, else meta["model"].
query: The start of the user's first message.
turns, threads, model_calls, tool_calls: How many.
failed_calls: Tool calls that did not end well.
tools: Names of the tools that were called, sorted.
outcome: True good, False failed, None unknown: the label on which raters agree, else meta["outcome"].
cost: US dollars.
tokens, input_tokens, output_tokens: Of all model calls.
duration_ms: Of all turns.
decisions: Decisions of rules and regulators other than allow and continue, sorted.
denied: Calls and answers that rules denied.
labels: Those of the whole run by name; None where raters differ.
meta: Numbers and short texts of its meta.
""",
    ),
    "Ledger": Table(
        'run.to_frame("ledger")',
        "a decision of steering",
        WHERE
        + """
hook: Before a tool call or after a model response.
tool_name, args: The call that was judged.
action: allow, guide, ask or deny.
guidance: What the model, or a person, was told.
rule_ids: The rules that decided.
duration_ms: How long all rules took, in milliseconds.
outcome: None where rules simply decided; approved, refused, nobody or error where a person was asked; late or late_fault of \
a judge that answered after the call; else why a rule failed.
layer_id: The layer that decided.
depth: 0 for the turn, 1 for its children, and so on.
enforced: False where it was judged after the fact.
faults: Rules that raised, hung or answered nonsense.
matched: What a rule matched, where it says so.
""",
    ),
    "Decisions": Table(
        'run.to_frame("decisions")',
        "an answer of a regulator",
        WHERE
        + """
layer_id: The layer that holds the regulator.
at: Where in the turn it was asked.
decision: Its kind, such as circuit_break.
reason: Why.
suggestion: What the user reads instead, or None.
confidence: 0 to 1; missing where the decision has none.
tokens_out: Output tokens of the task so far.
cost_cap: The cap that was exceeded, in output tokens.
stops: Whether it ends the turn.
detail: The decision in its plain form.
enforced: False where it was asked after the fact.
""",
    ),
    "Regulator": Table(
        'run.to_frame("regulator")',
        "an event that a regulator saw",
        WHERE
        + """
layer_id: The layer that holds the regulator.
event: Its kind: turn_start, token, turn_complete, cost, quality_feedback, user_correction, tool_call or tool_result.
quality: A grade, 0 to 1.
tokens_in, tokens_out: Tokens of a cost.
tool_name, success: Of a tool call and its result.
detail: The event in its plain form.
""",
    ),
    "Tokens": Table(
        'run.to_frame("tokens")',
        "a request of the agent that ended, and behind these each tool that it offered",
        WHERE
        + """
part: `request` or `tool:<name>`; a tool has no other counts than its tokens.
tokens: Of the part: planned, or those of the definition.
model, step: The model, and the number of the request in its execution.
counter: What counted.
known_error: Of the counter, relative; missing where nobody measured.
planned: Input tokens that were planned.
reported: Input tokens as the provider counted.
unexplained: Reported tokens that no part of the plan accounts for.
error: Planned against reported, relative.
problem: missing, negative, backwards or disagrees where the reported numbers cannot be right; else None.
cached_tokens: Input tokens that the provider read from its cache.
output_tokens: Output tokens.
cache_write_tokens: Input tokens that the provider wrote to its cache; missing where it does not tell.
reasoning_tokens: Output tokens of reasoning; missing where the provider does not tell.
""",
    ),
    "Compactions": Table(
        'run.to_frame("compactions")',
        "a part of the context that was replaced by a shorter one",
        WHERE
        + """
call: Model calls of the execution before it.
by: summary (of a projection), the id of a layer, or the program or provider that did it.
items_removed: How many items were replaced; missing where nobody knows.
tokens_before, tokens_after: Of the context or the part, before and after; missing where nobody knows.
opaque: Whether only the provider can read the items in their place.
trigger: Its cause, such as auto or manual; None where nobody knows.
summary: The text in their place.
depth: 0 for the turn, 1 for its children, and so on.
input_tokens, output_tokens: Of a call that wrote the summary and is told with it; missing where there is none.
cached_tokens, cache_write_tokens, reasoning_tokens: The parts of them, as of a turn.
""",
    ),
    "Warnings": Table(
        'run.to_frame("warnings")',
        "what went wrong in a turn and did not end it",
        WHERE
        + """
code, text: What, as a code and as a sentence.
layer_id: The layer, or None.
depth: 0 for the turn, 1 for its children, and so on.
""",
    ),
    "Labels": Table(
        "run.labels",
        "a label, of one rater about one part of the run",
        """
run_id: The run.
name: The name of the label.
value: Its value: a text, a number, True or False.
thread_id: The conversation; missing where it is about the whole run.
turn: The turn; missing where it is about more than that.
call: The model call, by its place among those of the agent in the run; missing where it is about none.
item: The item, by its place in the log of the thread; missing where it is about none.
by: The rater.
t_ms: When it was given, in milliseconds since 1970.
""",
    ),
    "Agreement": Table(
        'lab.agreement(airline, "polite")',
        "a pair of raters; and all of them, where there are more than two",
        """
raters: Their names.
units: Targets that at least two of them labelled.
missing: Targets that only one of them labelled; these are left out.
agreed: The share of units with one value.
kappa: Cohen's kappa; missing for all, and where nothing could disagree.
kappa_low, kappa_high: Its 95 % interval, by task.
alpha: Krippendorff's alpha.
alpha_low, alpha_high: Its 95 % interval, by task.
clusters: Tasks that the intervals are made from; runs where they name none.
""",
    ),
    "Disagreements": Table(
        'lab.disagreements(airline, "polite")',
        "a target on which raters differ",
        """
run_id: The run.
thread_id, turn, call, item: The target, as in the labels of a run.
ann, bob: The value of each rater, by name.
""",
    ),
    "Cause": Table(
        "airline[0].cause(0)",
        "a value in the arguments of a call",
        """
argument: Its path, such as items[0].id.
value: The value, secrets replaced.
kind, name: Of its origin: user, system, layer, tool or model; the name of the layer or tool.
item: The place in the log of the thread of the item that wrote it first; missing where that stands elsewhere.
turn: The turn of that item.
via: The layers that it came through, first to last.
""",
    ),
    "Caching": Table(
        "run.caching()",
        "a part of a request of the agent",
        WHERE
        + """
call: The place of the call in the run; missing while it is under way.
model, provider: Of the call, and of the rules of caching; None where nothing is known.
part: tools, system, layer:<id>, history or appended.
tokens: Of the part.
shared: Those in the prefix shared with the call before it.
broke: Whether the shared prefix ends here.
cached: Tokens that are predicted to be read from the cache.
written: Tokens that the cache is paid to take up.
paid: Tokens at the price of ordinary input.
cost_fresh, cost_cached: US dollars without and with a cache; missing where the price is not known.
input_tokens, reported: Of the whole call as the provider counted: all, and the cached ones.
""",
        "`lab.what_if_cached` returns the same table of a run that was put together in another way.",
    ),
    "Time": Table(
        "lab.profile(run)",
        "a part of a turn",
        """
run_id, thread_id, turn: Which turn.
part: model, tool, person, hook, rule, planning, storage, own (the library's overhead) or unsplit (not known what for).
name: Of the model, tool, layer or rule; else empty.
ms: Milliseconds; those of a turn add up to its duration. Missing where the run does not say.
share: Of the turn, 0 to 1.
count: How often it happened.
""",
    ),
    "Backtests": Table(
        "lab.backtest(rules, bank[:3])",
        "a call at which rules are evaluated",
        WHERE
        + """
hook: Before a tool call or after a model response.
tool_name, args: The call.
text: The response.
before, after: The action of the rules that are compared with, and that of the candidate.
change: unchanged, newly_denied, newly_allowed, guided, asked or errored.
guidance: What the candidate says.
rules_before, rules_after: The rules that decided.
error: A rule that failed, or None.
skipped: Rules that were not evaluated, as their judge was not there.
""",
    ),
    "Evaluations": Table(
        "lab.evaluate(rules, bank).to_frame()",
        "a rule (or all together) on a suite of a model",
        """
rule: The rule.
suite, model: Of the runs; empty where they do not say.
runs: How many.
caught, caught_of, caught_rate, caught_low, caught_high, caught_clusters: \
Runs stopped of those in which an attack succeeded (where none was \
attacked: of the failed ones): how many of how many, the share, its 95 % interval, and the tasks that it was made from.
failed, failed_of, failed_rate, failed_low, failed_high, failed_clusters: The same of runs that failed and were not attacked.
blocked, blocked_of, blocked_rate, blocked_low, blocked_high, blocked_clusters: \
The same of runs that were solved and not attacked.
false_rejections, false_rejections_of, false_rejections_rate, false_rejections_low, false_rejections_high, \
false_rejections_clusters: \
Tool calls denied \
of those that had succeeded in these runs.
attacked_solved, attacked_solved_of, attacked_solved_rate, attacked_solved_low, attacked_solved_high, \
attacked_solved_clusters: \
Runs stopped of those \
that were attacked in vain and solved.
attacker_tasks, attacker_tasks_of, attacker_tasks_rate, attacker_tasks_low, attacker_tasks_high, attacker_tasks_clusters: \
The same of runs in which the \
attacker's task was the user's, and was solved.
unlabelled, unlabelled_of, unlabelled_rate, unlabelled_low, unlabelled_high, unlabelled_clusters: \
The same of runs without a label.
caught_known, failed_known, blocked_known, false_rejections_known, attacked_solved_known, attacker_tasks_known, \
unlabelled_known: \
The same counts up to the first point at which a replayed run is not known any more.
""",
    ),
    "Suggestions": Table(
        "lab.suggest(bank).to_frame()",
        "a rule that was scored, also one that failed",
        """
rule: Its id.
found: Whether it held on the half it was not chosen on; False: refuted.
p: The chance of a rule as good where labels are drawn at random.
caught, caught_of, caught_rate, caught_low, caught_high, caught_clusters: As in evaluations, on runs the rule was not found on.
blocked, blocked_of, blocked_rate, blocked_low, blocked_high, blocked_clusters: \
The same of runs that were solved and not attacked.
false_rejections, false_rejections_of, false_rejections_rate, false_rejections_low, false_rejections_high, \
false_rejections_clusters: \
Tool \
calls denied of those that had succeeded in these runs.
attacker_tasks, attacker_tasks_of, attacker_tasks_rate, attacker_tasks_low, attacker_tasks_high, attacker_tasks_clusters: \
Runs stopped of those in which a user asked for the attacker's task.
ban, ban_of, ban_rate, ban_low, ban_high, ban_clusters: Runs that a ban of the tool would stop, of those that `caught` counts.
own_calls: Calls of the rule's own tool that had succeeded in solved runs.
own_upper: The upper end of the share of them that the rule denies.
like_ban: Whether these runs cannot tell the rule from a ban.
text: The rule as a condition.
""",
    ),
    "Comparisons": Table(
        "nn.compare(airline[0], airline[1]).to_frame()",
        "what differs in a turn of two runs",
        """
turn: The number of the turn.
what: prompt, request, decision, tool call, tool result, regulator, tokens, sent tokens, drops, cost, model calls, \
reply or outcome.
a, b: What it is in either run; None where it is not.
""",
    ),
    "Paired differences": Table(
        "nn.compare(airline[:3], airline[:3]).to_frame()",
        "a measure of two lists of runs in pairs",
        """
metric: The measure.
a, b: Its mean over the pairs.
difference: The mean of b less a.
low, high: Its 95 % interval, over tasks.
n: Pairs that have the measure on both sides.
p: Of the sign test over tasks.
""",
    ),
    "Plans": Table(
        "lab.power(0.1, share=0.5, tasks=[50, 100], trials=4)",
        "a number of tasks and trials",
        """
tasks, trials: As planned.
runs: Of each of the two that are compared.
power: The chance that the 95 % interval of the difference leaves out 0.
detectable: The smallest difference with a power of 80 %.
""",
    ),
    "Losses": Table(
        "lab.lost(run, -1).to_frame()",
        "a fact that a call was not sent",
        """
fact: The fact: a number, a name, an id.
kind: What it is: name, number, date, time, id, path, command, quote, decision or preference.
position: The place of the item in the log.
asked_later: The turn that asks for it again; missing where none does.
reason: Why the item was left out.
item: The id of the item.
sentence: Where the fact stands.
needed_by: The first call that needed it; missing where none did.
""",
    ),
    "Survival": Table(
        "lab.survival([run])",
        "a kind of fact",
        """
kind: As in losses.
n: Facts that were still told after every compaction.
of: Facts of items that were left out after a compaction.
rate: The share of n in of.
low, high: Its 95 % interval, over runs; missing for one run.
""",
    ),
    "Near misses": Table(
        "lab.near_misses(run, -1)",
        "an item or a memory that was not sent",
        """
origin: history, or layer:<id>.
what: item, or a memory that a layer kept and did not recall.
position: Its place in the log, or among what the layer offered.
reason: Why it was left out.
rank: 1 is the next to be admitted.
score: Its score to the query.
tokens: Its length.
total, window, layer_tokens, top_k, min_score: The smallest budget, window, allocation, number and threshold that admit it \
together; missing where it can stay.
text: The beginning of the text.
""",
    ),
    "Sweeps": Table(
        'lab.sweep({"call_budget.total": [5, 10]}, airline[:4], metrics={"turns": lambda r: len(r.turns)},'
        ' regulator=Regulator.recommended("ann"), progress=lambda done, of: None)',
        "a configuration",
        """
call_budget.total: The values of the configuration, a column each.
turns: A metric: its mean over runs; with several of them each has low, high and n of its own.
turns_known: The same of the known part of each run, where the runs are replays.
low, high: Its 95 % interval.
n: Runs of which the metric is a number.
failed: Runs that failed.
nan: Runs without a number.
seed: Of the draws.
digest: Of the configuration.
low_corrected, high_corrected: The interval that holds for the best row as well.
""",
        "`lab.pareto` returns the rows that no other beats.",
    ),
    "Calibrations": Table(
        "found.table",
        "a detector or a baseline, a domain, a split",
        """
detector: Its name.
baseline: Whether it is one.
domain: all, and each.
split: in sample, held out, or domain left out: fitted on the other domains.
runs, failed, not_scored: Runs, those that failed, and those without a score.
threshold: From which score a run is stopped; missing: off.
stopped_failed, stopped_failed_low, stopped_failed_high: The share of failed runs that are stopped, with its 95 % interval.
stopped_good, stopped_good_low, stopped_good_high: The same of good runs.
precision, precision_low, precision_high: The share of failed runs among those that are stopped.
base_rate, base_rate_low, base_rate_high: The share of failed runs.
recall, recall_low, recall_high: Of failed runs, those that are stopped.
auc, auc_low, auc_high: The area under the ROC curve.
auc_within, auc_within_low, auc_within_high: The same, over pairs of one domain only.
best_baseline: The baseline that is best on these runs; empty for baselines.
gain, gain_low, gain_high: By how much the area is above that of the best baseline.
auc_within_corrected: The lower end that holds for all detectors that were tried, on the row that decides.
""",
    ),
    "Curves": Table(
        "found.curve()",
        "a threshold, on held-out tasks",
        """
threshold: The score from which a run is stopped, descending.
stopped_failed: The share of failed runs that are stopped: the recall.
stopped_good: The share of good runs that are stopped.
precision: The share of failed runs among those that are stopped.
""",
    ),
    "Economics": Table(
        "lab.economics(CallBudget(), airline, samples=50)",
        "a policy, a domain, a threshold",
        """
policy: detector, or cap on steps.
domain: all, and each.
threshold: The score from which a run is stopped, or the most model calls it may make.
good, failed: How many runs.
tokens_saved, tokens_saved_low, tokens_saved_high: Tokens that failed runs would not have spent, with the 95 % interval.
cost_saved, cost_saved_low, cost_saved_high: The same in US dollars.
time_saved_s, time_saved_s_low, time_saved_s_high: The same in seconds.
good_lost, good_lost_low, good_lost_high: The share of good runs that would have been stopped.
failed_stopped, failed_stopped_low, failed_stopped_high: The share of failed runs that would have been stopped.
""",
    ),
    "Memory bench": Table(
        'lab.memory_bench({"plain": []}, budgets=[300])',
        "a rung of evidence, for a set of layers under a budget",
        """
layers: The name of the set.
budget: Tokens of a whole request.
rung: verbatim, the message; value, its value; owned, the value with its owner; answerable, all parts and none outdated.
recall: The mean share of the evidence of a question that was sent with it.
low, high: Its 95 % interval, over dialogues.
questions: How many are marked for this rung; recall is missing where none is.
tokens: The mean length of the requests with a question.
cost_fresh, cost_cached: US dollars of input of a dialogue, without and with a cache of prefixes.
ms: Milliseconds in which a request was recalled and planned; missing without a clock.
own_calls, own_tokens, own_cost: Calls of a model that external memories made in a dialogue, their tokens, and US dollars.
own_ms: Milliseconds in which external memories were asked in a dialogue; missing without a clock.
""",
    ),
    "Recall curve": Table(
        'lab.recall_curve(lab.memory_bench({"plain": []}, budgets=[300]), bins=2)',
        "a group of questions, for a set of layers under a budget",
        """
layers: The name of the set.
budget: Tokens of a whole request.
age: The mean of the axis: turns since the evidence; or age_tokens, position, length.
recall: The mean share of the evidence that was sent.
low, high: Its 95 % interval, over dialogues.
questions: How many.
""",
    ),
    "Layer shares": Table(
        'lab.layer_shares({"window": nn.history_window(4)}, lab.made_dialogues(2), budget=300)',
        "a layer",
        """
layer: Its name.
alone: What it adds to the recall of the history.
left_out: What all layers lose without it.
shapley: The mean of what it adds, over all orders.
""",
    ),
    "Write fidelity": Table(
        'lab.write_fidelity({"recall": lambda: nn.semantic_recall()}, lab.made_dialogues(2))',
        "a set of layers",
        """
layers: The name of the set.
said: Facts in all messages, each once a dialogue.
kept: Facts in all that the layers could recall in the end.
recall: The share of the said facts that what was kept tells.
recall_low, recall_high: Its 95 % interval, over dialogues.
precision: The share of the kept facts that were said.
precision_low, precision_high: Its 95 % interval, over dialogues.
""",
    ),
    "Data sets": Table(
        "lab.datasets.describe()",
        "a set of recorded runs",
        """
name: How it is loaded.
runs, calls: How many runs, and calls of tools.
good, failed: Runs by their label.
licence: Under which it came.
packaged: Whether it ships with the library.
""",
    ),
    "Closed environments": Table(
        "lab.dojo(suites=lab.environments.ServiceDesk()).to_frame()",
        "a suite",
        """
suite: The name of the environment.
utility, utility_low, utility_high: The share of user's tasks that were done without an attack, with its 95 % interval.
utility_n: How many there are; of the others, how many pairs of a user's task and an attacker's.
utility_under_attack, utility_under_attack_low, utility_under_attack_high: The share of attacked tasks of the user that were done.
utility_under_attack_n: As above.
attack_success, attack_success_low, attack_success_high: The share of pairs in which the attacker's task was done.
attack_success_n: As above.
static_success, static_success_low, static_success_high: The same of the attack that does not adapt.
static_success_n: As above.
asks, asks_under_attack: Approvals asked for, for each task, without attacks and with them.
""",
    ),
    "Transcripts": Table(
        "widgets.Transcript(run).to_frame()",
        "an item that a call was sent or not",
        """
place: Its place in the request.
origin, role, tool: Who brought it, its role, its tool.
tokens: Its length.
sent: Whether it was sent.
reason: Why it was not.
smallest_budget: The smallest budget that would have kept it, in tokens.
budget_of: Of what: the whole request, or a layer.
text: What it says.
""",
    ),
    "Trends": Table(
        "widgets.RegulatorTrends(run).to_frame()",
        "a turn",
        """
thread_id, turn: Which.
quality: Its grade, 0 to 1.
mean: The mean of the last grades.
tokens: Output tokens of the turn.
spent: Output tokens of the task so far.
cap: The cap on them.
tokens_in: Input tokens of the turn.
usd: US dollars of the turn.
wallclock_ms: Milliseconds of the turn.
drift: The score of scope drift, 0 to 1.
confidence: How sure the model was of its tokens, where known.
calls_in_a_row: Most calls of one tool in a row; of one call, where that is what the regulator looks at.
poor: The grade below which quality is poor.
window: Over how many grades the mean is taken.
decisions: What the regulator answered.
stops: Whether it stopped the turn.
broken: Whether a circuit break of this or an earlier turn holds.
thresholds: Those in force.
""",
    ),
    "Timelines": Table(
        "widgets.RunTimeline(run).to_frame()",
        "a span: a turn, step, hook, call or child",
        """
run_id, thread_id, execution_id, turn, seq: Where it belongs, as above.
kind, name: What it is.
start_ms: When it began, from the beginning of the run, in milliseconds.
duration_ms: Milliseconds; missing while it runs or where nobody measured.
status: How it ended.
depth: How deep it is nested.
parent: The row it is inside of.
call, item, decision: The model call, the item of the log and the decision it belongs to.
error: What went wrong, or None.
""",
    ),
    "Rules": Table(
        "widgets.RuleEditor(rules).to_frame()",
        "a rule, in the order in which they are asked",
        """
id: Its id.
form: How it decides: python, cel (a condition), sequence (a sentence), judge, or none.
hooks: When it is asked.
enabled: Whether it is asked at all.
hits: How often it decided something in the run that is watched.
version: The version of the rule book in which it was last changed.
text: Its source, as it is edited.
""",
    ),
    "Memory": Table(
        "widgets.MemoryView(run).to_frame()",
        "a write of a layer's state",
        """
thread_id, execution_id, turn, depth: Where.
layer_id, hook: Which layer, and the hook after which it was written.
t_ms: When, in milliseconds.
changed: Whether the state differs from the one before.
state: The state as compact JSON without secrets; None where it was cleared.
""",
    ),
}


def frames_page() -> str:
    """Return the page of all tables in Markdown."""
    parts = [
        "# Tables",
        "",
        "Every table of the library is a new pandas frame with all of its columns, also where it has no row. What nobody knows",
        "is missing (None, NaN), never 0. Secrets are redacted. `run` is a `Run`, recorded, loaded or",
        "imported; the other names are those of the examples on this site.",
        "",
        "Every view has `to_frame()`: of `Workbench` it is turns, of `TokenAllocation` allocations, of `Ledger` the ledger,",
        "of `Compare` comparisons, of `Runs` the facts of its runs;",
        "those of the others are below. `lab.pareto` returns the rows of a table that no other row",
        "beats, with its columns.",
        "",
    ]
    for name, table in TABLES.items():
        parts += [f"## {name}", "", f"`{table.code}`: a row is {table.row}. {table.note}".rstrip(), ""]
        parts += ["| column | what it means |", "|---|---|"]
        parts += [f"| `{column}` | {sentence} |" for column, sentence in _merged(table).items()]
        parts += [""]
    return "\n".join(parts)


def _merged(table: Table) -> dict[str, str]:
    common = Table("", "", WHERE).sentences
    columns = table.sentences
    if set(common) <= set(columns) and table is not TABLES["Turns"]:
        columns = {name: sentence for name, sentence in columns.items() if name not in common}
        return {"run_id`, `…`, `t_ms": "Where and when, as in turns.", **_grouped(columns)}
    return _grouped(columns)


def _grouped(columns: dict[str, str]) -> dict[str, str]:
    # Columns that share a sentence share a line.
    by_sentence: dict[str, list[str]] = {}
    for name, sentence in columns.items():
        by_sentence.setdefault(sentence, []).append(name)
    return {"`, `".join(names): sentence for sentence, names in by_sentence.items()}
