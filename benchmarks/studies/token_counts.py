"""How far counts of tokens are from what was billed: the default estimate, o200k_base, its stand-in, and counters that learn.

Run ``python benchmarks/studies/token_counts.py``; ``--write`` keeps the page in docs/studies. Needs
the extra ``tokens``.

The truth is the usage of gpt-4.1 in tau2's retail and telecom runs. Between two calls of one conversation it grows by what was
added, so that items are judged one by one; learned factors are reported on tasks that they were not learned from.
"""

from __future__ import annotations

import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from statistics import fmean
from typing import Any, Final, NamedTuple

from inputs import arguments, load, publish, task_of

import noetic_nb as nn
from noetic_nb.events import ModelCalled
from noetic_nb.items import Item, item_text, item_tokens
from noetic_nb.runs import Run
from noetic_nb.runs.token_calibration import counted_calls, token_calibration
from noetic_nb.tokenizers import FRAMINGS
from noetic_nb.tokenizers._framing import kind_of
from noetic_nb.tokens import estimate_tokens

MODEL: Final = "gpt-4.1"
KINDS: Final = ("user", "assistant", "call", "tool")
TRUE: Final = nn.tokenizers.get("o200k_base")
OFFLINE: Final = nn.tokenizers.get("calibrated-offline")
# What the answer to a call is billed at beyond its text: the mark of its end, and the head of a tool call.
ANSWER, ANSWER_CALL = 1, 7
LANGUAGES: Final = {
    "English": "Your order was sent this morning and will arrive on Thursday. If the jacket does not fit, you can return it "
    "within thirty days; the refund goes to the card you paid with.",
    "German": "Ihre Bestellung wurde heute Morgen verschickt und kommt am Donnerstag an. Wenn die Jacke nicht passt, können Sie "
    "sie innerhalb von dreißig Tagen zurückgeben; die Erstattung geht auf die Karte, mit der Sie bezahlt haben.",
    "Russian": "Ваш заказ отправлен сегодня утром и придёт в четверг. Если куртка не подойдёт, её можно вернуть в течение "
    "тридцати дней; деньги вернутся на карту, которой вы платили.",
    "Arabic": "تم إرسال طلبك هذا الصباح وسيصل يوم الخميس. إذا لم تناسبك السترة فيمكنك إعادتها خلال ثلاثين يومًا، ويعود المبلغ إلى "
    "البطاقة التي دفعت بها.",
    "Chinese": "您的订单今天早上已经寄出，星期四送到。如果夹克不合身，可以在三十天内退货，退款会回到您付款时用的卡上。",
    "Japanese": "ご注文の品は今朝発送され、木曜日に届きます。"
    "ジャケットが合わない場合は三十日以内に返品でき、返金はお支払いのカードに戻ります。",
}


class Seen(NamedTuple):
    """An item whose tokens are known from usage, framing left out."""

    kind: str
    item: Item
    billed: int


def seen_items(run: Run) -> list[Seen]:
    """Return the items of a run whose billed tokens follow from the usage of two calls."""
    framing = FRAMINGS["openai"]
    answers = [
        event.output_tokens for event in run.select(ModelCalled) if event.purpose == "agent" and event.input_tokens > 0
    ]
    found: list[Seen] = []
    for at, call in enumerate(counted_calls(run, nn.tokenizers.TokenCalibration(TRUE))):
        kinds = [kind_of(item) for item in call.new]
        if call.before is None or kinds not in (["assistant", "user"], ["call", "tool"]):
            continue
        grown = call.reported - call.before[1]
        answer = answers[at - 1] - (ANSWER if kinds[0] == "assistant" else ANSWER_CALL)
        rest = grown - answer - sum([framing.item(kind) for kind in kinds])
        if answer > 0 and rest > 0:
            found += [Seen(kinds[0], call.new[0], answer), Seen(kinds[1], call.new[1], rest)]
    return found


def halves(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of every other task, and the rest."""
    tasks = sorted({*map(task_of, runs)}, key=str)
    first = {*tasks[::2]}
    return [run for run in runs if task_of(run) in first], [run for run in runs if task_of(run) not in first]


class Error(NamedTuple):
    """Counted tokens beside billed ones, over some items or requests."""

    number: int
    billed: int
    ratio: float
    mean: float

    @property
    def text(self) -> str:
        """Ratio of the sums, and the mean absolute error of one."""
        return f"{self.ratio:.3f}, ±{100 * self.mean:.1f} %"


def error_of(pairs: Iterable[tuple[float, int]]) -> Error:
    """Return the error of counts beside what was billed."""
    known = list(pairs)
    billed = sum(true for _, true in known)
    return Error(
        len(known), billed, sum(count for count, _ in known) / billed, fmean([abs(n / true - 1) for n, true in known])
    )


def by_kind(groups: Sequence[tuple[Sequence[Run], Any, Any]]) -> dict[str, tuple[Error, ...]]:
    """Return the errors of the counters by kind; a group has its runs and the counters that were learned elsewhere."""
    pairs: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for runs, learned, learned_true in groups:
        counters: tuple[Callable[[Item], int], ...] = (
            lambda item: estimate_tokens(item_text(item)),
            lambda item: TRUE(item_text(item)),
            lambda item: OFFLINE(item_text(item)),
            learned.count_content,
            learned_true.count_content,
        )
        for run in runs:
            for one in seen_items(run):
                for place, counter in enumerate(counters):
                    pairs[one.kind, place].append((counter(one.item), one.billed))
    return {kind: tuple([error_of(pairs[kind, place]) for place in range(5)]) for kind in KINDS}


def conversations(groups: Sequence[tuple[Sequence[Run], Any, Any]]) -> tuple[Error, ...]:
    """Return the errors of whole conversations as they stood at each call, without what stood before them."""
    pairs: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for runs, learned, learned_true in groups:
        before_learning = nn.tokenizers.get("calibrated")
        counters: tuple[Callable[[Item], int], ...] = (
            item_tokens,
            lambda item: item_tokens(item, TRUE),
            lambda item: item_tokens(item, OFFLINE),
            before_learning.count_item,  # type: ignore[attr-defined]
            learned.count_item,
            learned_true.count_item,
        )
        for run in runs:
            base, sums = 0, [0.0] * len(counters)
            for call in counted_calls(run, nn.tokenizers.TokenCalibration(TRUE)):
                if call.before is None:
                    base, sums = call.reported, [0.0] * len(counters)
                    continue
                for place, counter in enumerate(counters):
                    sums[place] += sum([counter(item) for item in call.new])
                    pairs[place].append((sums[place], call.reported - base))
    return tuple([error_of(pairs[place]) for place in range(6)])


def left_out(domains: Mapping[str, Sequence[Run]]) -> str:
    """Return the part of the bill that stands before conversations, and the error of the parts that calls add, one by one."""
    cells = []
    before = nn.tokenizers.get("calibrated")
    for name, runs in domains.items():
        head, billed = 0, 0
        added: list[tuple[float, int]] = []
        counted: list[tuple[float, int]] = []
        for run in runs:
            base = 0
            for call in counted_calls(run, nn.tokenizers.TokenCalibration(TRUE)):
                base = call.reported if call.before is None else base
                head, billed = head + base, billed + call.reported
                if call.before is not None and (grown := call.reported - call.before[1]) > 0:
                    added.append((sum([before.count_item(item) for item in call.new]), grown))  # type: ignore[attr-defined]
                    counted.append((sum([item_tokens(item, TRUE) for item in call.new]), grown))
        errors = error_of(added), error_of(counted)
        cells.append(
            f"{name} {100 * head / billed:.0f} % (calibrated, before: {errors[0].text}; o200k_base: {errors[1].text})"
        )
    return (
        "The first request of each conversation (instructions, tools, the first message) is subtracted from every call. It is "
        f"this share of the billed input: {', '.join(cells)}. In brackets: the error of the tokens that a single call adds."
    )


def main(given: Sequence[str]) -> int:
    """Measure and print."""
    chosen = arguments(given, __doc__ or "")
    runs = [run for run in load(chosen.data) if run.meta["model"] == MODEL]
    domains = {name: [run for run in runs if run.meta["domain"] == name] for name in ("retail", "telecom")}
    groups: dict[str, list[tuple[Sequence[Run], Any, Any]]] = {}
    for name, here in domains.items():
        one, other = halves(here)
        groups[name] = [
            (test, token_calibration(fit).tokenizer(MODEL), token_calibration(fit, "o200k_base").tokenizer(MODEL))
            for fit, test in ((one, other), (other, one))
        ]
    carried = {
        name: [
            (
                domains[name],
                token_calibration(domains[other]).tokenizer(MODEL),
                token_calibration(domains[other], "o200k_base").tokenizer(MODEL),
            )
        ]
        for name, other in (("retail", "telecom"), ("telecom", "retail"))
    }
    lines = [
        "# Error of token counts against the bill",
        "",
        "How far are planned token counts from the provider's bill, by counter?",
        "",
        "Written by `python benchmarks/studies/token_counts.py --write`; every figure on this page is computed by it.",
        "",
        f"* **Runs**: {'; '.join(f'{name} {len(here)}' for name, here in domains.items())}, gpt-4.1, with recorded "
        "usage. The unit is an item or a call. There is no interval, and other desks may differ by more than these "
        "two.",
        "* **True tokens of an item**: the growth of the usage between two calls, less the framing (4 tokens for a "
        "message, 10 for a call, 6 for an output). The share of the answer is known from its own usage. Parallel "
        "calls are left out.",
        "* **Learned** counters are fitted on one half of the tasks and reported on the other, in both directions. "
        "A half is every other one of the sorted tasks.",
        "* **Each cell** has counted / billed tokens over all items together, and the mean absolute error of one item.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, tiktoken {version('tiktoken')}, Python {platform.python_version()}.",
        "",
        "## By kind of item, texts alone",
        "",
        "| domain | kind | items | tokens | default estimate | o200k_base | calibrated-offline | calibrated estimate | "
        "calibrated o200k_base |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in groups.items():
        for kind, errors in by_kind(found).items():
            cells = " | ".join(error.text for error in errors)
            lines.append(f"| {name} | {kind} | {errors[0].number} | {errors[0].billed:,} | {cells} |")
    lines += [
        "",
        "## Conversations as they are planned",
        "",
        "All items of a conversation at each call after the first, counted as a plan counts them. The default "
        "counts the JSON of an item with its id; the others count its text and the framing. Instructions and tools "
        "are left out because the files do not contain the tools. *Before* is `calibrated` before it has learned "
        "anything.",
        "",
        left_out(domains),
        "",
        "| domain | learned on | calls | default estimate | o200k_base | calibrated-offline | calibrated, before | "
        "calibrated, after | calibrated o200k_base, after |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for title, table in (("other tasks", groups), ("the other domain", carried)):
        for name, found in table.items():
            errors = conversations(found)
            lines.append(f"| {name} | {title} | {errors[0].number} | {' | '.join(error.text for error in errors)} |")
    both = conversations([*groups["retail"], *groups["telecom"]])
    lines += [
        "",
        f"Mean absolute errors over both domains, which the views show: default estimate "
        f"{100 * both[0].mean:.1f} %, o200k_base {100 * both[1].mean:.1f} %, calibrated-offline {100 * both[2].mean:.1f} %, "
        f"calibrated before it has learned {100 * both[3].mean:.1f} %.",
        "",
        "## By language, against the vocabulary",
        "",
        "There is no public run with usage in a language other than English. The reference here is o200k_base "
        "itself, on one text of a service desk and its translations.",
        "",
        "| language | o200k_base | default estimate / o200k_base | calibrated-offline / o200k_base |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {TRUE(text)} | {estimate_tokens(text) / TRUE(text):.2f} | {OFFLINE(text) / TRUE(text):.2f} |"
        for name, text in LANGUAGES.items()
    ]
    airline = [run for run in load(chosen.data) if run.meta["domain"] == "airline"]
    lines += [
        "",
        "## Runs without usage, against the vocabulary",
        "",
        "Airline runs of gpt-4o report no usage, so the reference is again o200k_base.",
        "",
        "| kind | items | default estimate / o200k_base | calibrated-offline / o200k_base |",
        "|---|---|---|---|",
    ]
    texts: dict[str, list[str]] = defaultdict(list)
    for run in airline:
        for thread in run.threads:
            for item in run.log(thread):
                if item_text(item):
                    texts[kind_of(item)].append(item_text(item))
    for kind in KINDS:
        true = sum(map(TRUE, texts[kind]))
        ratios = [sum(map(counter, texts[kind])) / true for counter in (estimate_tokens, OFFLINE)]
        lines.append(f"| {kind} | {len(texts[kind])} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    lines.append("")
    publish("\n".join(lines), "token_counts.md", write=chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
