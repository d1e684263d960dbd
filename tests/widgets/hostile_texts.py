"""Texts that imitate markup, code, style, a formula or an object property, or are endless or invisible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.events import (
    ErrorRaised,
    ItemFate,
    ItemsAppended,
    LayerStateChanged,
    LayerTokens,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RuleChanged,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    WarningRaised,
    Where,
)
from noetic_nb.items import assistant_message, input_message, parse_item
from noetic_nb.runs import Run

LONG: Final = "<b>" + "x" * 100_000

HOSTILE_TEXTS: Final[Mapping[str, str]] = {
    "script": "<script>alert(1)</script>",
    "script in capitals": "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "script that closes a string": "'-alert(1)-'</script><script>alert(2)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "image without a space": "<img/src=x/onerror=alert(1)>",
    "remote image": '<img src="https://evil.example/pixel.gif">',
    "vector": "<svg onload=alert(1)><rect/></svg>",
    "vector link": '<svg><a xlink:href="javascript:alert(1)"><text>x</text></a></svg>',
    "formula": '<math><mtext><img src=x onerror="alert(1)"></mtext></math>',
    "frame": '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    "object": '<object data="https://evil.example/"></object>',
    "form": '<form action="https://evil.example/"><button>Allow</button></form>',
    "details": "<details open ontoggle=alert(1)>",
    "body": "<body onload=alert(1)>",
    "base": '<base href="https://evil.example/">',
    "refresh": '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    "sheet": '<link rel="stylesheet" href="https://evil.example/x.css">',
    "comment": "<!-- hidden",
    "end of a comment": "--><b>seen</b>",
    "character data": "<![CDATA[<b>x</b>]]>",
    "end of a style": "</style><script>alert(1)</script>",
    "end of a title": "</title><b>x</b>",
    "end of a cell": "</td></tr></table><h1>Approved</h1>",
    "end of a text area": "</textarea><script>alert(1)</script>",
    "end of a template": "</template><img src=x onerror=alert(1)>",
    "double quotes": '" onmouseover="alert(1)" x="',
    "single quotes": "' onfocus='alert(1)' autofocus='",
    "backticks": "`onclick=alert(1)`",
    "equals": "x=1 style=display:none",
    "unclosed": '<a href="',
    "lone brackets": "< > << >>",
    "javascript address": "javascript:alert(1)",
    "address with a tab": "java\tscript:alert(1)",
    "data address": "data:text/html,<script>alert(1)</script>",
    "entities": "&lt;script&gt;alert(1)&lt;/script&gt;",
    "numeric entities": "&#60;img src=x onerror=alert(1)&#62;",
    "unclosed entities": "&lt &#x3c &amp",
    "style": "</style><style>*{display:none}</style>",
    "import": "@import url(https://evil.example/x.css);",
    "style value": "red;background:url(https://evil.example/x)",
    "style expression": "expression(alert(1))",
    "style breaker": "}*{visibility:hidden}",
    "selector": "#a, .b > [data-x='1']::before",
    "constructor": "constructor",
    "prototype": "__proto__",
    "text method": "toString",
    "owner method": "hasOwnProperty",
    "value method": "valueOf",
    "getter": "__defineGetter__",
    "length": "length",
    "promise": "then",
    "python name": "__class__",
    "template": "{{7*7}}${alert(1)}<%= 7*7 %>#{7*7}",
    "format": "{0.__class__} %s %(x)s %n",
    "formula in dollars": "$$\\frac{a}{b}$$ costs $5 and $6",
    "formula in brackets": "\\(x^2\\) \\[y\\]",
    "matplotlib formula": "$\\frac$ _a^b",
    "markdown": "[x](javascript:alert(1)) ![x](https://evil.example/x.png) **b** `c`",
    "right to left": "\u202egnp.exe\u202c",
    "isolates": "\u2066\u2067hidden\u2069\u2069",
    "zero width": "pay\u200b\u200c\u200d\u2060\ufeff",
    "soft hyphen": "de\u00adny",
    "tags": "ok\U000e0041\U000e0042\U000e007f",
    "line separators": "one\u2028two\u2029three\x85four",
    "nul": "a\x00b",
    "terminal": "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "control": "\x01\x02\x08\x0c\x7f\x9b31m",
    "carriage return": "allow\rdeny ",
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "\udfff",
    "pair the wrong way": "\udc00\ud800",
    "private use": "\ue000\uf8ff\U0010ffff",
    "no character": "\ufffe\uffff",
    "marks on marks": "Z" + "\u0335\u0321\u0489" * 60,
    "family": "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇪🇺",
    "wide": "ｄｅｎｙ ﷽ 𒐫",
    "other letters": "раy",
    "other script": "ปฏิเสธ रोकें رفض",
    "blank": "",
    "spaces": "   \t\n ",
    "number": "-1e309",
    "not a number": "NaN",
    "nothing": "null",
    "json": '{"__proto__": {"polluted": true}, "a": "</script>"}',
    "separator": "a/b:c,d|e;f\\g",
    "path": "../../../etc/passwd",
    "sql": "'; DROP TABLE runs; --",
    "long": LONG,
    "long without a break": "A" * 100_000,
    "many lines": "<i>\n" * 25_000,
    "deep": "<div>" * 20_000,
    "many braces": "{" * 50_000 + "[" * 50_000,
}


def hostile_run(text: str) -> Run:
    """Return a run that uses one text for every name, id, key, kind and word."""
    thread = text or "t"
    events: list[RunEvent] = []
    for number in (1, 2):
        events += _turn(text, Where(thread, text or "e", number))
    events.append(RuleChanged(Where("", "", 0), 9.0, text, "replace", 2, text, text))
    return Run(
        text or "run", meta={"source": text, "rules_skipped": [text], "models": [text], text: text}, events=events
    )


def _turn(text: str, where: Where) -> list[RunEvent]:
    kind: Any = text
    call = parse_item({"type": "function_call", "name": text, "callId": text or "c", "arguments": text})
    args = {text: text, "a": [text, {text: [text]}]}
    answer = assistant_message(f"Before {text} after")
    layer = LayerTokens(text, 300.0, 100, 200.0, 2)
    fates = (
        ItemFate(f"layer:{text}", 1, 50, kind),
        ItemFate("history", 0, 20, "over_budget"),
        ItemFate(text, 0, 20, "over_allocation"),
    )
    seen: dict[str, Any] = {
        "kind": text,
        "quality": 0.3,
        "tokens_in": 10,
        "tokens_out": 5,
        "tool_name": text,
        text: text,
    }
    break_ = {"kind": "circuit_break", "reason": {"kind": text, text: text}, "suggestion": text}
    drift = {"kind": "scope_drift_warn", "drift_tokens": [text], "drift_score": 0.9, "task_tokens": [text]}
    warned = {"kind": "procedural_warning", "patterns": [{"pattern_name": text, "learned_from_turns": 3}]}
    events: list[RunEvent] = [
        TurnStarted(where, 0.0, text, 0, 1, text, text),
        ItemsAppended(where, 0.0, 0, (input_message(text or "?"),), "user"),
        ViewAssembled(
            where=where,
            t_ms=0.0,
            step=0,
            window=(1, 2),
            fates=fates,
            layers=(layer,),
            layer_items=((text, input_message(text or "?")),),
            total=8_000.0,
            reserve=1_000,
            system=400,
            tools=300,
            framing=60,
            history=900,
            history_budget=4_000.0,
            history_items=1,
        ),
        ModelCalled(
            where, 1.0, 0, text, "agent", 12.0, "ok", (answer, call), 2_000, 180, finish_reason=kind, error=text
        ),
        ItemsAppended(where, 1.0, 1, (answer, call), kind),
        QualityGiven(where, 2.0, 0.3, kind),
        RegulatorSaw(where, 2.0, text, seen),
        RegulatorSaw(where, 2.0, text, {"kind": "quality_feedback", "quality": 0.3}),
        LayerStateChanged(where, 2.0, text, text, {text: text}),
        WarningRaised(where, 2.0, text, text, text),
        ErrorRaised(where, 2.0, "rule_failed", text, text),
        ErrorRaised(where, 2.0, text, text, text),
    ]
    for action in ("deny", "guide", "ask", "allow", text):
        faults, matched = ((text, text),), (text,)
        decided: Any = action
        events += [
            SteeringDecided(
                where, 3.0, text, "before_tool_call", text, args, decided, text, (text, text), 0.1, text, faults=faults
            ),
            SteeringDecided(
                where, 3.0, text, "after_model_call", None, None, decided, text, (text,), 0.1, None, matched=matched
            ),
            SteeringDecided(where, 3.0, text, text, text, args, decided, None, (), 0.1, enforced=False),
        ]
    for decision in ({"kind": text, "reason": {"kind": text}, text: text}, drift, warned, break_):
        thresholds = {text: {text: 0.5}, "quality_decline": {"window": 3, "min_delta": 0.15, text: 1.0}}
        events.append(
            RegulatorDecided(where, 4.0, text, text, decision, text, 0.5, 10, 5_000, False, thresholds=thresholds)
        )
    events += [
        ToolCalled(where, 5.0, text, text or "c", args, text, 0.1, kind, text, text, error_type=text),
        TurnCompleted(where, 6.0, text, kind, 20.0, text, 2_000, 180, 0.01, 1, 1),
    ]
    return events
