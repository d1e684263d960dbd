"""Every table of the library: the code that makes it, the meaning of a row, and a sentence for each column.

``tests/docs/test_frames.py`` runs this code and compares the columns, so that none is missing and none is left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SET_UP", "TABLES", "Table", "frames_page"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table: the code that makes it, the meaning of a row, and the columns in order."""

    code: str
    row: str
    columns: str
    note: str = ""

    @property
    def sentences(self) -> dict[str, str]:
        """Return the sentence of each column; columns named on one line share it."""
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
execution_id: The execution of the turn or of a child.
turn: The number of the turn in its thread, starting at 1.
seq: The position of the event in the run, starting at 0.
t_ms: Milliseconds since 1970 by the harness clock; if an import estimated them, `run.meta["estimated"]` says so.
"""

TABLES: Final = {
    "Turns": Table(
        'run.to_frame("turns")',
        "a turn",
        WHERE
        + """
turn_id: The id of the turn.
query: The user's message.
text: The answer.
outcome: success, failure or aborted; None while the turn is running.
stopped: The kind of the regulator decision that stopped the turn, or None.
quality: The latest grade, 0 to 1; missing if the turn was not graded.
input_tokens, output_tokens: Tokens as reported by the provider.
cost: US dollars; missing if the price is unknown.
duration_ms: Milliseconds.
model_calls, tool_calls: The number of calls.
resource_id: The owner of the conversation.
finish_reason: Why the last answer ended: stop, tool_calls, length or content_filter; None if unknown.
cached_tokens: Input tokens read from the provider's cache, over the calls that report them; missing if none does.
cache_write_tokens: Input tokens written to the cache, over the calls that report them; missing if none does.
reasoning_tokens: Output tokens used for reasoning, over the calls that report them; missing if none does.
cached_tokens_known, cache_write_tokens_known, reasoning_tokens_known: The number of model calls that report this count.
""",
    ),
    "Allocations": Table(
        'run.to_frame("allocations")',
        "a layer in a request that was sent",
        WHERE
        + """
layer_id: The layer.
allocated: Tokens the layer was allowed to use.
used: Tokens the layer used.
yielded: Tokens the layer left to the history.
items: The number of items the layer returned.
step: The number of the request within its execution.
system, tools, framing, history: Tokens of this part of the request.
history_budget: Tokens the history was allowed to use.
reserve: Tokens kept free for the response.
total: Tokens of the whole budget.
reported: Input tokens reported by the provider.
unexplained: Reported tokens not accounted for by any part of the plan.
counter: The token counter.
known_error: The measured relative error of the counter; missing if it was not measured.
""",
    ),
    "Items": Table(
        'run.to_frame("items")',
        "an item of the log",
        WHERE
        + """
position: The position in the log of the thread.
origin: The source: user, model, tool, guidance (from a rule), layer, seed (the initial conversation) or step.
item_id: The id of the item.
type, role: The type of the item, and the role of a message.
name, call_id: The tool and call id of a tool call or its output.
tokens: The length in tokens.
text: The text of the item.
counter: The token counter.
sent_from, sent_until: The positions of the first and the last model call that sent it; missing if none did.
fate: Why the last call with this item in its log left it out: budget, window, summary, compaction or cleared; else None.
""",
    ),
    "Spans": Table(
        'run.to_frame("spans")',
        "a call of a layer hook",
        WHERE
        + """
layer_id, hook: The layer and the hook.
duration_ms: Milliseconds.
status: ok, error, timeout or skipped.
allocated, used, yielded: Tokens of a recall, as in allocations.
item_count: The number of items the hook returned.
error: The error, or None.
depth: 0 for the turn itself, 1 for its children, and so on.
""",
    ),
    "Tools": Table(
        'run.to_frame("tools")',
        "a finished tool call",
        WHERE
        + """
tool_name, call_id: The tool and the id of the call.
args: The arguments passed to the tool.
output: The output sent to the model.
duration_ms: Milliseconds; missing if not measured.
status: ok, error, denied, guided, invalid_args, invalid_result or unknown (no such tool).
error: The error, or None.
depth: 0 for the turn itself, 1 for its children, and so on.
raw_args: The arguments as the model wrote them; None if they were not JSON or are unknown.
error_type: The class of the error, or the kind of a noetic_nb error.
""",
    ),
    "Runs": Table(
        "nn.open_runs([run]).to_frame()",
        "a run in a collection",
        """
run_id, path, place, source: The name, the file (None if there is none), the position in the file starting at 0, and the format.
task, model: `meta["task_id"]`; the model of the last call, else `meta["model"]`.
query: The start of the user's first message.
turns, threads, model_calls, tool_calls: Counts.
failed_calls: The number of tool calls that failed.
tools: Sorted names of the tools that were called.
outcome: True for good, False for failed, None if unknown: the label on which raters agree, else `meta["outcome"]`.
cost: US dollars.
tokens, input_tokens, output_tokens: Totals over all model calls.
duration_ms: Milliseconds of all turns.
decisions: Sorted decisions of rules and regulators, without allow and continue.
denied: The number of calls and answers denied by rules.
labels: Labels of the whole run by name; None if raters differ.
meta: Numbers and short texts from `run.meta`.
""",
    ),
    "Ledger": Table(
        'run.to_frame("ledger")',
        "a steering decision",
        WHERE
        + """
hook: before a tool call or after a model response.
tool_name, args: The tool call that the rules checked.
action: allow, guide, ask or deny.
guidance: The text shown to the model or to the approver.
rule_ids: The ids of the rules that decided.
duration_ms: Milliseconds taken by all rules together.
outcome: None if the rules decided alone; approved, refused, nobody or error if approval was requested; late or late_fault for \
a judge that answered after the call; otherwise the reason a rule failed.
layer_id: The layer that decided.
depth: 0 for the turn itself, 1 for its children, and so on.
enforced: False if the decision was made after the fact.
faults: Rules that raised, hung or returned an invalid answer.
matched: The text that a rule matched, if it reports one.
""",
    ),
    "Decisions": Table(
        'run.to_frame("decisions")',
        "a decision of a regulator",
        WHERE
        + """
layer_id: The layer that contains the regulator.
at: The point in the turn at which the regulator was called.
decision: The kind of decision, such as circuit_break.
reason: The reason.
suggestion: The text shown to the user instead of the answer, or None.
confidence: 0 to 1; missing if the decision has none.
tokens_out: Output tokens of the task so far.
cost_cap: The exceeded cap, in output tokens.
stops: Whether the decision ends the turn.
detail: The decision as plain data.
enforced: False if the regulator was called after the fact.
""",
    ),
    "Regulator": Table(
        'run.to_frame("regulator")',
        "an event received by a regulator",
        WHERE
        + """
layer_id: The layer that contains the regulator.
event: The kind: turn_start, token, turn_complete, cost, quality_feedback, user_correction, tool_call or tool_result.
quality: A grade, 0 to 1.
tokens_in, tokens_out: Input and output tokens of a cost event.
tool_name, success: The tool of a call, and whether its result was a success.
detail: The event as plain data.
""",
    ),
    "Tokens": Table(
        'run.to_frame("tokens")',
        "a finished request of the agent; rows for the tools offered in it follow",
        WHERE
        + """
part: `request` or `tool:<name>`; a tool has only a token count.
tokens: Planned tokens of the request, or tokens of the tool definition.
model, step: The model, and the number of the request within its execution.
counter: The token counter.
known_error: The measured relative error of the counter; missing if it was not measured.
planned: Planned input tokens.
reported: Input tokens reported by the provider.
unexplained: Reported tokens not accounted for by any part of the plan.
error: The relative error of planned against reported tokens.
problem: missing, negative, backwards or disagrees if the reported numbers cannot be right; else None.
cached_tokens: Input tokens read from the provider's cache.
output_tokens: Output tokens.
cache_write_tokens: Input tokens written to the provider's cache; missing if not reported.
reasoning_tokens: Output tokens used for reasoning; missing if not reported.
""",
    ),
    "Compactions": Table(
        'run.to_frame("compactions")',
        "a part of the context that was replaced by a shorter one",
        WHERE
        + """
call: The number of model calls in the execution before the compaction.
by: summary (by a projection), the id of a layer, or the name of the program or provider.
items_removed: The number of replaced items; missing if unknown.
tokens_before, tokens_after: Tokens of the context, or of the replaced part, before and after; missing if unknown.
opaque: Whether only the provider can read the replacement items.
trigger: The cause, such as auto or manual; None if unknown.
summary: The replacement text.
depth: 0 for the turn itself, 1 for its children, and so on.
input_tokens, output_tokens: Tokens of the call that wrote the summary, if it was reported with it; otherwise missing.
cached_tokens, cache_write_tokens, reasoning_tokens: The parts of these tokens, as in turns.
""",
    ),
    "Warnings": Table(
        'run.to_frame("warnings")',
        "a problem in a turn that did not end it",
        WHERE
        + """
code, text: The problem as a code and as a sentence.
layer_id: The layer, or None.
depth: 0 for the turn itself, 1 for its children, and so on.
""",
    ),
    "Labels": Table(
        "run.labels",
        "a label given by one rater to one part of the run",
        """
run_id: The run.
name: The name of the label.
value: A text, a number, True or False.
thread_id: The conversation; missing if the label is about the whole run.
turn: The turn; missing if the label is about a whole thread or run.
call: The position of the model call among the agent's calls in the run; missing if the label is not about a call.
item: The position of the item in the log of the thread; missing if the label is not about an item.
by: The rater.
t_ms: The time of the label, in milliseconds since 1970.
""",
    ),
    "Agreement": Table(
        'lab.agreement(airline, "polite")',
        "a pair of raters, or all raters together if there are more than two",
        """
raters: The names of the raters.
units: Targets labelled by at least two of them.
missing: Targets labelled by only one of them; these are left out.
agreed: The share of units on which all labels agree.
kappa: Cohen's kappa; missing for all raters together, and if disagreement was impossible.
kappa_low, kappa_high: The 95 % interval of kappa, resampled by task.
alpha: Krippendorff's alpha.
alpha_low, alpha_high: The 95 % interval of alpha, resampled by task.
clusters: The number of tasks used for the intervals; the number of runs if these name no task.
""",
    ),
    "Disagreements": Table(
        'lab.disagreements(airline, "polite")',
        "a target on which raters disagree",
        """
run_id: The run.
thread_id, turn, call, item: The target, as in labels.
ann, bob: The value given by this rater: one column for each rater.
""",
    ),
    "Cause": Table(
        "airline[0].cause(0)",
        "a value in the arguments of a tool call",
        """
argument: The path of the value, such as items[0].id.
value: The value, with secrets redacted.
kind, name: The origin: user, system, layer, tool or model; and the name of the layer or tool.
item: The position in the thread log of the item where the value first appears; missing if it first appears outside the log.
turn: The turn of that item.
via: The layers that passed the value on, in order.
""",
    ),
    "Caching": Table(
        "run.caching()",
        "a part of an agent's request",
        WHERE
        + """
call: The position of the call in the run; missing until the call has ended.
model, provider: The model of the call, and the provider whose caching rules apply; None if unknown.
part: tools, system, layer:<id>, history or appended.
tokens: Tokens of the part.
shared: Tokens in the prefix shared with the previous call.
broke: Whether the shared prefix ends in this part.
cached: Tokens predicted to be read from the cache.
written: Tokens billed as cache writes.
paid: Tokens charged at the ordinary input price.
cost_fresh, cost_cached: US dollars without and with a cache; missing if the price is unknown.
input_tokens, reported: Input tokens and cached input tokens of the whole call, as reported by the provider.
""",
        "`lab.what_if_cached` returns the same table for a run whose requests are assembled differently.",
    ),
    "Time": Table(
        "lab.profile(run)",
        "a part of a turn",
        """
run_id, thread_id, turn: The run, the conversation and the turn.
part: model, tool, person, hook, rule, planning, storage, own (the library's overhead) or unsplit (cause unknown).
name: The model, tool, layer or rule; otherwise empty.
ms: Milliseconds; the parts of a turn add up to its duration. Missing if the run does not record it.
share: The share of the turn, 0 to 1.
count: The number of occurrences.
""",
    ),
    "Backtests": Table(
        "lab.backtest(rules, bank[:3])",
        "a tool call or response for which rules are evaluated",
        WHERE
        + """
hook: before a tool call or after a model response.
tool_name, args: The tool and its arguments.
text: The response.
before, after: The action of the baseline rules, and of the candidate rules.
change: unchanged, newly_denied, newly_allowed, guided, asked or errored.
guidance: The guidance of the candidate rules.
rules_before, rules_after: The ids of the rules that decided.
error: The failure of a rule, or None.
skipped: Rules not evaluated because their judge was not available.
""",
    ),
    "Evaluations": Table(
        "lab.evaluate(rules, bank).to_frame()",
        "a rule, or all rules together, on a suite of one model",
        """
rule: The rule.
suite, model: The suite and the model of the runs; empty if not recorded.
runs: The number of runs.
caught, caught_of, caught_rate, caught_low, caught_high, caught_clusters: \
Runs that the rules stop, among those in which an attack succeeded (if none was \
attacked, among failed runs): count, total, share, its 95 % interval, and the number of tasks behind it.
failed, failed_of, failed_rate, failed_low, failed_high, failed_clusters: The same for failed runs without an attack.
blocked, blocked_of, blocked_rate, blocked_low, blocked_high, blocked_clusters: \
The same for solved runs without an attack.
false_rejections, false_rejections_of, false_rejections_rate, false_rejections_low, false_rejections_high, \
false_rejections_clusters: \
Denied tool calls \
among those that succeeded in these runs.
attacked_solved, attacked_solved_of, attacked_solved_rate, attacked_solved_low, attacked_solved_high, \
attacked_solved_clusters: \
Stopped runs among those \
with a failed attack that were solved.
attacker_tasks, attacker_tasks_of, attacker_tasks_rate, attacker_tasks_low, attacker_tasks_high, attacker_tasks_clusters: \
The same for runs in which the \
user asked for the attacker's task, and it was solved.
unlabelled, unlabelled_of, unlabelled_rate, unlabelled_low, unlabelled_high, unlabelled_clusters: \
The same for runs without a label.
caught_known, failed_known, blocked_known, false_rejections_known, attacked_solved_known, attacker_tasks_known, \
unlabelled_known: \
The same count up to the point where a replayed run leaves the recording.
""",
    ),
    "Suggestions": Table(
        "lab.suggest(bank).to_frame()",
        "a scored rule, including rejected ones",
        """
rule: Its id.
found: Whether the rule held on the half of the runs not used to choose it; False: refuted.
p: The probability of an equally good rule if the labels were random.
caught, caught_of, caught_rate, caught_low, caught_high, caught_clusters: As in evaluations, on runs not used to find the rule.
blocked, blocked_of, blocked_rate, blocked_low, blocked_high, blocked_clusters: \
The same for solved runs without an attack.
false_rejections, false_rejections_of, false_rejections_rate, false_rejections_low, false_rejections_high, \
false_rejections_clusters: \
Denied tool \
calls among those that succeeded in these runs.
attacker_tasks, attacker_tasks_of, attacker_tasks_rate, attacker_tasks_low, attacker_tasks_high, attacker_tasks_clusters: \
Stopped runs among those in which the user asked for the attacker's task.
ban, ban_of, ban_rate, ban_low, ban_high, ban_clusters: Runs that banning the tool would stop, among those counted in `caught`.
own_calls: Successful calls of the rule's own tool in solved runs.
own_upper: The upper end of the interval for the share of these calls that the rule denies.
like_ban: Whether these runs cannot distinguish the rule from a ban of the tool.
text: The rule as a condition.
""",
    ),
    "Comparisons": Table(
        "nn.compare(airline[0], airline[1]).to_frame()",
        "a difference between two runs in one turn",
        """
turn: The number of the turn.
what: prompt, request, decision, tool call, tool result, regulator, tokens, sent tokens, drops, cost, model calls, \
reply or outcome.
a, b: The value in the first and in the second run; None if absent.
""",
    ),
    "Paired differences": Table(
        "nn.compare(airline[:3], airline[:3]).to_frame()",
        "a metric of two paired lists of runs",
        """
metric: The metric.
a, b: The mean over the pairs, for the first and the second list.
difference: The mean of b minus a.
low, high: The 95 % interval of the difference, over tasks.
n: The number of pairs with the metric on both sides.
p: The p-value of the sign test over tasks; over injections if that is larger.
""",
    ),
    "Plans": Table(
        "lab.power(0.1, share=0.5, tasks=[50, 100], trials=4)",
        "a planned number of tasks and trials",
        """
tasks, trials: The planned number of tasks, and of trials of each.
runs: The number of runs of each of the two systems compared.
power: The probability that the 95 % interval of the difference excludes 0.
detectable: The smallest difference found with a power of 80 %.
""",
    ),
    "Losses": Table(
        "lab.lost(run, -1).to_frame()",
        "a fact left out of a call",
        """
fact: The fact: a number, a name, an id.
kind: name, number, date, time, id, path, command, quote, decision or preference.
position: The position of the item in the log.
asked_later: The later turn that asks for the fact; missing if none does.
reason: Why the item was left out.
item: The id of the item.
sentence: The sentence that contains the fact.
needed_by: The first call that needed the fact; missing if none did.
""",
    ),
    "Survival": Table(
        "lab.survival([run])",
        "a kind of fact",
        """
kind: As in losses.
n: Facts that were still in the context after every compaction.
of: Facts from items that a compaction removed.
rate: n divided by of.
low, high: The 95 % interval of the rate, over runs; missing for a single run.
""",
    ),
    "Near misses": Table(
        "lab.near_misses(run, -1)",
        "an item or a memory that was not sent",
        """
origin: history, or layer:<id>.
what: item, or memory (kept by a layer and not recalled).
position: The position in the log, or among the memories that the layer offered.
reason: Why it was left out.
rank: The order of admission; 1 is the next to be admitted.
score: The relevance score for the query.
tokens: The length in tokens.
total, window, layer_tokens, top_k, min_score: The smallest total budget, window, layer allocation and top_k, and the highest \
min_score, that together admit it; missing if this setting can stay.
text: The beginning of the text.
""",
    ),
    "Sweeps": Table(
        'lab.sweep({"call_budget.total": [5, 10]}, airline[:4], metrics={"turns": lambda r: len(r.turns)},'
        ' regulator=Regulator.recommended("ann"), progress=lambda done, of: None)',
        "a configuration",
        """
call_budget.total: The value of this setting: one column for each setting.
turns: The mean of this metric over runs; with several metrics, each has its own low, high and n.
turns_known: The same for the known part of each run, if the runs are replays.
low, high: The 95 % interval of the mean.
n: The number of runs for which the metric is a number.
failed: The number of runs that failed.
nan: The number of runs for which the metric is not a number.
seed: The random seed of the resampling.
digest: The digest of the configuration.
low_corrected, high_corrected: The interval corrected for choosing the best row.
""",
        "`lab.pareto` returns the rows that no other row beats.",
    ),
    "Calibrations": Table(
        "found.table",
        "a detector or baseline on a domain and a split",
        """
detector: The name of the detector or baseline.
baseline: Whether it is a baseline.
domain: all, or one domain.
split: in sample, held out, or domain left out (fitted on the other domains).
runs, failed, not_scored: The number of runs, of failed runs, and of runs without a score.
threshold: The score from which a run is stopped; missing if the detector is off.
stopped_failed, stopped_failed_low, stopped_failed_high: The share of failed runs that are stopped, with its 95 % interval.
stopped_good, stopped_good_low, stopped_good_high: The same for good runs.
precision, precision_low, precision_high: The share of failed runs among stopped runs.
base_rate, base_rate_low, base_rate_high: The share of failed runs.
recall, recall_low, recall_high: The share of failed runs that are stopped.
auc, auc_low, auc_high: The area under the ROC curve.
auc_within, auc_within_low, auc_within_high: The same over pairs of runs of the same domain only.
best_baseline: The best baseline on these runs; empty for baselines.
gain, gain_low, gain_high: The area minus that of the best baseline.
auc_within_corrected: The lower end corrected for the number of detectors tried, on the row that decides.
""",
    ),
    "Curves": Table(
        "found.curve()",
        "a threshold, on held-out tasks",
        """
threshold: The score from which a run is stopped, descending.
stopped_failed: The share of failed runs that are stopped (the recall).
stopped_good: The share of good runs that are stopped.
precision: The share of failed runs among stopped runs.
""",
    ),
    "Economics": Table(
        "lab.economics(CallBudget(), airline, samples=50)",
        "a policy on a domain at a threshold",
        """
policy: detector, or cap on steps.
domain: all, or one domain.
threshold: The score from which a run is stopped, or the most model calls it may make.
good, failed: The number of good and of failed runs.
tokens_saved, tokens_saved_low, tokens_saved_high: Tokens that failed runs would not have spent, with the 95 % interval.
cost_saved, cost_saved_low, cost_saved_high: The same in US dollars.
time_saved_s, time_saved_s_low, time_saved_s_high: The same in seconds.
good_lost, good_lost_low, good_lost_high: The share of good runs that would have been stopped.
failed_stopped, failed_stopped_low, failed_stopped_high: The share of failed runs that would have been stopped.
""",
    ),
    "Memory bench": Table(
        'lab.memory_bench({"plain": []}, budgets=[300])',
        "a rung of evidence for a set of layers under a budget",
        """
layers: The name of the set.
budget: Tokens of the whole request.
rung: verbatim (the message), value, owned (the value with its owner) or answerable (all parts, none outdated).
recall: The mean share of a question's evidence that was sent with the question.
low, high: The 95 % interval of the recall, over dialogues.
questions: The number of questions marked for this rung; recall is missing if there are none.
tokens: The mean length of the requests that contain a question.
cost_fresh, cost_cached: Input cost of a dialogue in US dollars, without and with a prefix cache.
ms: Milliseconds to recall and plan a request; missing without a clock.
own_calls, own_tokens, own_cost: Model calls made by external memories in a dialogue, their tokens and US dollars.
own_ms: Milliseconds spent in external memories in a dialogue; missing without a clock.
""",
    ),
    "Recall curve": Table(
        'lab.recall_curve(lab.memory_bench({"plain": []}, budgets=[300]), bins=2)',
        "a group of questions for a set of layers under a budget",
        """
layers: The name of the set.
budget: Tokens of the whole request.
age: The group's mean on the chosen axis: age (turns since the evidence), age_tokens, position or length.
recall: The mean share of the evidence that was sent.
low, high: The 95 % interval of the recall, over dialogues.
questions: The number of questions.
""",
    ),
    "Layer shares": Table(
        'lab.layer_shares({"window": nn.history_window(4)}, lab.made_dialogues(2), budget=300)',
        "a layer",
        """
layer: The name of the layer.
alone: The recall that the layer adds to that of the history alone.
left_out: The recall lost if only this layer is left out.
shapley: The mean of the added recall over all orders of the layers.
""",
    ),
    "Write fidelity": Table(
        'lab.write_fidelity({"recall": lambda: nn.semantic_recall()}, lab.made_dialogues(2))',
        "a set of layers",
        """
layers: The name of the set.
said: Facts in all messages, each counted once per dialogue.
kept: Facts in everything that the layers could recall at the end.
recall: The share of the said facts that were kept.
recall_low, recall_high: The 95 % interval of the recall, over dialogues.
precision: The share of the kept facts that were said.
precision_low, precision_high: The 95 % interval of the precision, over dialogues.
""",
    ),
    "Data sets": Table(
        "lab.datasets.describe()",
        "a set of recorded runs",
        """
name: The name to load it with.
runs, calls: The number of runs, and of tool calls.
good, failed: The number of runs labelled good, and failed.
licence: The licence of the data.
packaged: Whether it is shipped with the library.
""",
    ),
    "Closed environments": Table(
        "lab.dojo(suites=lab.environments.ServiceDesk()).to_frame()",
        "a suite",
        """
suite: The name of the environment.
utility, utility_low, utility_high: The share of user tasks done without an attack, with its 95 % interval.
utility_n: The number of user tasks.
utility_under_attack, utility_under_attack_low, utility_under_attack_high: The share of user tasks done under attack.
utility_under_attack_n: The number of pairs of a user task and an attacker task.
attack_success, attack_success_low, attack_success_high: The share of pairs in which the attacker task was done.
attack_success_n: The number of pairs of a user task and an attacker task.
static_success, static_success_low, static_success_high: The same for the attack that does not adapt.
static_success_n: The number of pairs of a user task and an attacker task.
asks, asks_under_attack: Approvals requested per task, without and with attacks.
""",
    ),
    "Parts of calls": Table(
        "widgets.TokenAllocation(run).to_frame()",
        "a part of a model call",
        """
call: The position of the call, as in `what_if`.
part: The part of the request: system, tools, a layer, user, assistant, tool results and others.
tokens: Its tokens, as planned or estimated.
estimated: Whether they are estimated from texts and scaled to the bill, as in imported runs.
""",
        "With layers, `TokenAllocation` returns allocations.",
    ),
    "Transcripts": Table(
        "widgets.Transcript(run).to_frame()",
        "an item, sent to a call or left out",
        """
place: The position in the request.
origin, role, tool: The source of the item, its role and its tool.
tokens: The length in tokens.
sent: Whether the item was sent.
reason: Why the item was not sent.
smallest_budget: The smallest budget that would have kept the item, in tokens.
budget_of: The owner of this budget: the whole request, or a layer.
text: The text of the item.
""",
    ),
    "Trends": Table(
        "widgets.RegulatorTrends(run).to_frame()",
        "a turn",
        """
thread_id, turn: The conversation and the turn.
quality: The grade, 0 to 1.
mean: The mean of the latest grades.
tokens: Output tokens of the turn.
spent: Output tokens of the task so far.
cap: The cap on the output tokens of the task.
tokens_in: Input tokens of the turn.
usd: US dollars of the turn.
wallclock_ms: Milliseconds of the turn.
drift: The score of scope drift, 0 to 1.
confidence: The model's confidence in its tokens, if known.
calls_in_a_row: The longest sequence of calls of one tool, or of one identical call, depending on the regulator.
poor: Quality below this grade is poor.
window: The number of grades in the mean.
decisions: The decisions of the regulator.
stops: Whether the regulator stopped the turn.
broken: Whether a circuit break of this or an earlier turn is in force.
thresholds: The thresholds in force.
""",
    ),
    "Timelines": Table(
        "widgets.RunTimeline(run).to_frame()",
        "a span: a turn, step, hook, call or child",
        """
run_id, thread_id, execution_id, turn, seq: The place in the run, as in turns.
kind, name: The kind and the name of the span.
start_ms: The start, in milliseconds since the beginning of the run.
duration_ms: Milliseconds; missing while the span is running or if not measured.
status: The outcome of the span.
depth: The nesting depth.
parent: The row that encloses it.
call, item, decision: The related model call, item of the log and decision.
error: The error, or None.
""",
    ),
    "Rules": Table(
        "widgets.RuleEditor(rules).to_frame()",
        "a rule, in the order of evaluation",
        """
id: The id of the rule.
form: The kind of rule: python, cel (a condition), sequence (a sentence), judge or none.
hooks: The points at which the rule is evaluated.
enabled: Whether the rule is enabled.
hits: The number of decisions it made in the watched run.
version: The version of the rule book that last changed the rule.
text: The source text, as shown in the editor.
""",
    ),
    "Memory": Table(
        "widgets.MemoryView(run).to_frame()",
        "one write of a layer's state",
        """
thread_id, execution_id, turn, depth: The place in the run; depth is 0 for the turn itself.
layer_id, hook: The layer, and the hook after which its state was written.
t_ms: The time, in milliseconds since 1970.
changed: Whether the state differs from the previous one.
state: The state as compact JSON with secrets redacted; None if it was cleared.
""",
    ),
}


def frames_page() -> str:
    """Return the page of all tables in Markdown."""
    parts = [
        "# Tables",
        "",
        "Every table of the library is a new pandas frame. It has all of its columns even without rows. Unknown values are",
        "missing (None, NaN), never 0. Secrets are redacted. `run` is a recorded, loaded or",
        "imported `Run`; the other names are those of the examples on this site.",
        "",
        "Every view has `to_frame()`. `Workbench` returns turns, `Ledger` the ledger, `Compare` comparisons, and `Runs` the",
        "facts of its runs.",
        "The tables of the other views are below. `lab.pareto` returns the rows of a table that no other row",
        "beats, with its columns.",
        "",
    ]
    for name, table in TABLES.items():
        parts += [f"## {name}", "", f"`{table.code}`: a row is {table.row}. {table.note}".rstrip(), ""]
        parts += ["| column | meaning |", "|---|---|"]
        parts += [f"| `{column}` | {sentence} |" for column, sentence in _merged(table).items()]
        parts += [""]
    return "\n".join(parts)


def _merged(table: Table) -> dict[str, str]:
    common = Table("", "", WHERE).sentences
    columns = table.sentences
    if set(common) <= set(columns) and table is not TABLES["Turns"]:
        columns = {name: sentence for name, sentence in columns.items() if name not in common}
        return {"run_id`, `…`, `t_ms": "Place and time, as in turns.", **_grouped(columns)}
    return _grouped(columns)


def _grouped(columns: dict[str, str]) -> dict[str, str]:
    # Columns that share a sentence share a line.
    by_sentence: dict[str, list[str]] = {}
    for name, sentence in columns.items():
        by_sentence.setdefault(sentence, []).append(name)
    return {"`, `".join(names): sentence for sentence, names in by_sentence.items()}
