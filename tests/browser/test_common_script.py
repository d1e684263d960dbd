"""The script shared by all views, in a bare page without a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from playwright.sync_api import expect

from noetic_nb.runs import Run
from noetic_nb.widgets import Ledger, RegulatorTrends, RuleEditor, RunTimeline, Workbench
from noetic_nb.widgets.base._assets import _text, once_a_page, script
from noetic_nb.widgets.base._feed import changes
from tests.widgets.scenes import demo_run
from tests.widgets.timeline_scenes import ten_thousand_spans

# A model like anywidget's that records sent messages.
MODEL = """
const model = {
  sent: [], handlers: {}, traits: { snapshot: { rows: [] }, fault: "", static_name: "a1" },
  get(name) { return this.traits[name]; },
  send(message) { this.sent.push(message); },
  on(name, callback) { (this.handlers[name] ??= []).push(callback); },
  off(name, callback) { this.handlers[name] = (this.handlers[name] ?? []).filter((each) => each !== callback); },
  receive(message) { for (const each of this.handlers["msg:custom"] ?? []) each(message); },
};
const root = document.querySelector("#root");
"""


SHARED = _text("base/common.js") + _text("base/rows.js")


def opener(opened: Any) -> Iterator[Callable[[str], Any]]:
    """Yield a function that runs the shared script and more in an empty document."""
    problems: list[str] = []

    def complain(error: Any) -> None:
        problems.append(str(error))

    def run(script: str) -> Any:
        opened.goto("about:blank")  # removes names and listeners of the previous document
        opened.set_content("<div id='root'></div>")
        opened.add_script_tag(content=SHARED + MODEL + script)
        return opened

    opened.on("pageerror", complain)
    yield run
    opened.evaluate("() => new Promise((done) => setTimeout(done))")  # let late errors occur
    opened.remove_listener("pageerror", complain)
    assert problems == []


@pytest.fixture(scope="module")
def shared_page(browser: Any) -> Iterator[Any]:
    """One shared page, because a new page takes longer than most tests."""
    opened = browser.new_page()
    yield opened
    opened.close()


@pytest.fixture
def page(shared_page: Any) -> Iterator[Callable[[str], Any]]:
    """Open an empty document in a reused page."""
    yield from opener(shared_page)


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[[str], Any]]:
    """Open an empty document in a page with pointer and focus in their initial state."""
    opened = browser.new_page()
    yield from opener(opened)
    opened.close()


MARKS = """
root.append(readout(root, "nothing yet"));
const marks = root.appendChild(make("div"));
for (const name of ["one", "two", "three"]) {
  marks.append(make("button", { class: "mark", "data-readout": `value ${name}` }, name));
}
arrowKeys(marks, ".mark");
"""


def test_the_value_of_a_mark_is_shown_for_the_pointer_and_for_the_focus(new_page: Any) -> None:
    opened = new_page(MARKS)
    line = opened.locator(".nn-readout")
    expect(line).to_have_text("nothing yet")

    opened.get_by_text("two", exact=True).hover()
    expect(line).to_have_text("value two")

    opened.get_by_text("three", exact=True).focus()
    expect(line).to_have_text("value three")
    opened.get_by_text("two", exact=True).hover()
    opened.mouse.move(700, 500)
    expect(line).to_have_text("value three")

    opened.evaluate("document.activeElement.blur()")
    expect(line).to_have_text("nothing yet")


ROWS = """
const list = root.appendChild(make("ol"));
const row = (key, text, more = "") => {
  const details = `<details><summary>More</summary><p>${text}</p></details>`;
  return { key, html: `<li${more}><button>${text}</button>${details}</li>` };
};
window.show = (...rows) => patchRows(list, rows, (node, { key }) => put(node, { "aria-label": key }));
show(row("a", "first"), row("b", "second", ' data-tone="bad"'));
window.nodes = [...list.children];
"""


def test_a_row_that_is_written_anew_keeps_its_focus_and_what_is_open_in_it(page: Any) -> None:
    opened = page(ROWS)
    opened.evaluate("nodes[1].querySelector('details').open = true; nodes[1].querySelector('button').focus()")

    opened.evaluate("show(row('c', 'third'), row('a', 'first'), row('b', 'changed'))")

    second = opened.locator("li").nth(2)
    expect(second.locator("button")).to_be_focused()
    expect(second.locator("p")).to_be_visible()
    expect(second.locator("p")).to_have_text("changed")
    expect(second).not_to_have_attribute("data-tone", "bad")
    expect(second).to_have_attribute("aria-label", "b")
    assert opened.evaluate("[...list.children].map((node) => nodes.indexOf(node))") == [-1, 0, 1]


def test_another_page_of_rows_keeps_the_keyboard_at_its_place(page: Any) -> None:
    opened = page(ROWS)
    opened.evaluate("nodes[1].tabIndex = 0; nodes[1].focus()")

    opened.evaluate("show(row('c', 'third'), row('d', 'fourth'), row('e', 'fifth'))")
    expect(opened.locator("li").nth(1)).to_be_focused()

    opened.evaluate("show(row('f', 'last'))")
    expect(opened.locator("li")).to_be_focused()


def test_a_row_that_is_written_as_before_is_left_alone(page: Any) -> None:
    opened = page(ROWS)
    opened.evaluate(
        """() => {
          window.changes = [];
          const all = { subtree: true, childList: true, characterData: true, attributes: true };
          new MutationObserver((seen) => changes.push(...seen)).observe(list, all);
          getSelection().selectAllChildren(nodes[0]);
          show(row("a", "first"), row("b", "changed", ' data-tone="bad"'));
        }"""
    )

    assert opened.evaluate("changes.length > 0 && changes.every(({ target }) => nodes[1].contains(target))")
    assert opened.evaluate("String(getSelection())").startswith("first")
    opened.evaluate("window.one = row('b', 'changed'); show(one)")
    expect(opened.locator("li")).to_have_count(1)
    opened.evaluate("one.html = row('b', 'in place').html; show(one)")
    expect(opened.locator("li button")).to_have_text("in place")


def test_a_pointer_that_rests_takes_nothing_from_the_focus(page: Any) -> None:
    opened = page(
        MARKS
        + """window.over = (name, x) => [...marks.children].find((mark) => mark.textContent === name)
            .dispatchEvent(new PointerEvent("pointerover", { bubbles: true, screenX: x, screenY: 7 }));"""
    )
    line = opened.locator(".nn-readout")
    opened.evaluate("over('two', 7)")
    opened.get_by_text("three", exact=True).focus()
    expect(line).to_have_text("value three")

    opened.evaluate("over('two', 7)")  # as a browser reports it when the page has moved below the pointer
    expect(line).to_have_text("value three")
    opened.evaluate("over('two', 8)")
    expect(line).to_have_text("value two")
    opened.evaluate("document.activeElement.blur()")
    opened.evaluate("over('one', 8)")
    expect(line).to_have_text("value one")


def test_many_marks_are_one_stop_of_the_tab_key_and_arrows_move_within(new_page: Any) -> None:
    opened = new_page(MARKS)

    seen = []
    for key in ("Tab", "ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft"):
        opened.keyboard.press(key)
        seen.append(opened.evaluate("document.activeElement.textContent"))

    assert seen == ["one", "two", "three", "three", "two", "one", "one"]
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement === document.body")


def test_of_the_questions_of_a_slider_one_is_under_way_and_the_newest_follows(page: Any) -> None:
    opened = page("""
        window.asked = []; window.used = []; const answers = [];
        const ask = (number) => new Promise((resolve) => { asked.push(number); answers.push(() => resolve(number * 10)); });
        window.answer = () => { answers.shift()(); return new Promise((done) => setTimeout(done)); };
        window.seen = [];
        const slide = newest(ask, (data, number) => used.push([number, data]), (data) => seen.push(data));
        for (const number of [1, 2, 3, 4]) slide(number);
    """)
    assert opened.evaluate("asked") == [1]
    opened.evaluate("answer()")
    assert opened.evaluate("[asked, used, seen]") == [[1, 4], [], [10]]
    opened.evaluate("answer()")
    assert opened.evaluate("[asked, used, seen]") == [[1, 4], [[4, 40]], [10, 40]]


def test_a_page_makes_of_what_changed_what_the_kernel_has(page: Any) -> None:
    drawn = Random(7)

    def data(depth: int) -> Any:
        kind = drawn.choice(("number", "text", "none", "list", "dict")) if depth else "number"
        if kind in ("list", "dict"):
            made = [data(depth - 1) for _ in range(drawn.randrange(5))]
            return made if kind == "list" else {drawn.choice("abcde"): each for each in made}
        return {"number": drawn.randrange(3), "text": "two", "none": None}[kind]

    pairs = [(data(4), data(4)) for _ in range(300)]
    pairs += [({"marks": {"a": [1, 2, 3]}}, {"marks": {"a": [*[1, 2, 3][:keep], 9]}}) for keep in range(4)]
    opened = page("window.all = (pairs) => pairs.map(([before, change]) => grown(before, change));")

    assert opened.evaluate("all", [[one, changes(one, other)] for one, other in pairs]) == [other for _, other in pairs]


def test_a_slider_goes_on_after_a_question_that_failed(page: Any) -> None:
    opened = page("""
        window.used = [];
        window.failed = 0;
        const ask = (number) => (number % 2 ? Promise.reject(new Error("no")) : Promise.resolve(number));
        const slide = newest(ask, (data) => used.push(data));
        const move = (number) => slide(number).catch(() => { window.failed += 1; });
        window.done = Promise.all([move(1), move(2)]).then(() => move(3)).then(() => move(4));
    """)
    opened.evaluate("done")
    assert opened.evaluate("[used, failed]") == [[2, 4], 1]


def test_sliders_are_set_up_once_and_stay_where_they_were_moved(page: Any) -> None:
    opened = page(
        _text("allocation/what_if.js")
        + """
        window.asked = []; const answers = [];
        const tell = ({ what }) => new Promise((resolve) => { asked.push(what); answers.push(resolve); });
        const sliders = whatIfIn(root, { tell, shown: () => 3, drawPicture() {}, choose() {} });
        window.look = () => { sliders.look(); };
        window.answer = (data) => {
          for (const each of answers.splice(0)) each(data);
          return new Promise((done) => setTimeout(done));
        };
        sliders.fold.addEventListener("toggle", () => { window.isOpen = true; });
        sliders.fold.open = true;
        """
    )
    opened.wait_for_function("window.isOpen")
    opened.evaluate("look()")
    assert opened.evaluate("asked") == ["settings"]
    opened.evaluate("answer({ most: 2000, total: 1500, reserve: 100, layers: [] })")

    opened.get_by_label("Total").fill("1300")
    opened.evaluate("look()")

    assert opened.evaluate("asked") == ["settings", "what_if"]
    expect(opened.get_by_label("Total")).to_have_value("1300")
    expect(opened.locator(".nn-knob").first).to_contain_text("1,500 → 1,300")


def test_older_choices_that_come_back_do_not_undo_the_newest(page: Any) -> None:
    opened = page("""
        const store = storeOf(() => true);
        store.initialize({ model });
        for (const turn of [1, 2]) store.select(model, { turn });
        const [first, second] = model.sent.filter((message) => message.type === "select").map((message) => message.id);
        window.seen = [];
        const come = (id, turn) => {
          model.receive({ type: "selected", id, fields: { turn } });
          seen.push(store.selection.turn);
        };
        come(first, 1); come(null, 9); come(second, 2); come(null, 7);
    """)
    assert opened.evaluate("seen") == [2, 2, 2, 7]


def test_a_choice_that_comes_back_as_it_was_made_is_no_other_choice(page: Any) -> None:
    opened = page("""
        const store = storeOf(() => true);
        store.initialize({ model });
        window.same = [];
        const comes = (fields) => {
          const before = store.selection;
          model.receive({ type: "selected", id: model.sent.at(-1).id, fields: { thread_id: null, item: null, ...fields } });
          window.same.push(store.selection === before);
        };
        store.select(model, { turn: 5 });
        comes({ turn: 5 });
        store.select(model, { turn: 5 });
        comes({ turn: 6 });
        comes({ turn: 6 });
    """)

    assert opened.evaluate("window.same") == [True, False, False], "what others choose again is a choice"


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "<b>x</b>"])
def test_names_of_data_are_no_names_of_the_language(page: Any, name: str) -> None:
    opened = page(
        f"const name = {name!r};"
        """
        const store = storeOf(() => true);
        const make2 = () => root.appendChild(store.fold(name, make("details")));
        window.first = make2().open; root.lastChild.append(make("summary", {}, name));
        """
    )
    assert opened.evaluate("first") is False
    opened.get_by_text(name, exact=True).click()
    opened.wait_for_function("document.querySelector('details').open")
    assert opened.locator("b").count() == 0


@pytest.mark.parametrize("part", ["draw", "take", "render"])
def test_a_fault_is_an_alert_and_one_message_to_the_kernel(page: Any, part: str) -> None:
    opened = page(
        f"const part = {part!r};"
        """
        const fail = (now) => { if (now === part) throw new Error("broken <b>here</b>"); return true; };
        const store = storeOf(() => fail("take"));
        const render = store.guard(({ model, el }) => {
          fail("render");
          return store.show({ model, el, root: el.appendChild(make("div")), draw: () => fail("draw") });
        });
        store.initialize({ model });
        render({ model, el: root });
        for (let n = 0; n < 3; n += 1) model.receive({ type: "news" });
        """
    )
    expect(opened.get_by_role("alert")).to_have_text("This view failed in the page: Error: broken <b>here</b>")
    faults = [message for message in opened.evaluate("model.sent") if message["type"] == "fault"]
    assert len(faults) == 1


@pytest.mark.parametrize("has_static_form", [True, False], ids=["beside", "alone"])
def test_a_view_is_marked_as_live_until_its_kernel_is_gone(page: Any, has_static_form: bool) -> None:
    opened = page(
        f"if ({str(has_static_form).lower()}) root.append(make('div', {{ id: 'nn-a1' }}));"
        """
        const store = storeOf(() => true);
        store.initialize({ model });
        const view = root.appendChild(make("div"));
        window.leave = store.show({ model, el: root, root: view, draw: () => setText(view, "drawn") });
        window.live = (comm_live) => model.handlers.comm_live_update[0].call({ model: { comm_live } });
    """
    )
    view = opened.locator(".mathjax_ignore")
    expect(view).to_have_class("tex2jax_ignore mathjax_ignore nn-live-a1")
    opened.evaluate("live(false)")
    expect(view).to_have_class("tex2jax_ignore mathjax_ignore")
    # A page of saved widgets has nothing else to show.
    expect(view).to_be_visible(visible=not has_static_form)
    opened.evaluate("live(true)")
    expect(view).to_have_class("tex2jax_ignore mathjax_ignore nn-live-a1")
    opened.evaluate("leave()")
    assert opened.evaluate("Object.values(model.handlers).flat().length") == 1


def test_views_side_by_side_take_nothing_of_the_look_of_each_other(page: Any) -> None:
    opened = page("")
    for offered in (Ledger, RuleEditor, Workbench):
        opened.add_style_tag(content=offered._css)
    opened.evaluate(
        """() => {
            for (const name of ["ledger", "rule_editor"])
                document.body.insertAdjacentHTML("beforeend",
                    `<div data-view="${name}"><div class="noetic-nb"><p class="nn-outcome">${name}</p></div></div>`);
        }"""
    )

    expect(opened.get_by_text("ledger", exact=True)).to_have_css("display", "block")
    expect(opened.get_by_text("rule_editor", exact=True)).to_have_css("display", "grid")


def test_a_page_evaluates_a_script_once_and_dresses_each_document_and_shadow_once(page: Any) -> None:
    opened = page("")
    module = once_a_page(
        "globalThis.evaluated = (globalThis.evaluated ?? 0) + 1;\n"
        "export default () => ({ initialize() {}, render({ el }) { el.append(make()); } });\n"
        "function make() { const p = document.createElement('p'); p.textContent = 'a view'; return p; }",
        "[data-view='notes'] p { color: rgb(1, 2, 3); }",
        "notes/notes",
    )
    opened.evaluate(
        """async (module) => {
            const shadow = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
            for (const place of [document.body, document.body, shadow, null]) {
                const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
                const view = (await import(url)).default();
                const el = document.createElement("div");
                place?.append(el);
                view.initialize({});
                view.render({ el });
                if (!place) document.body.append(el); // as some hosts do
            }
        }""",
        module,
    )

    views = opened.get_by_text("a view", exact=True)
    expect(views).to_have_count(4)
    for at in range(4):
        expect(views.nth(at)).to_have_css("color", "rgb(1, 2, 3)")
    assert opened.evaluate("evaluated") == 1
    assert opened.evaluate("document.adoptedStyleSheets.length") == 1


def test_a_choice_is_brought_into_the_part_that_was_asked_for_last(page: Any) -> None:
    # The page does not have the picture of the part, and does not get it before the selection.
    with RunTimeline(ten_thousand_spans()) as view:
        opened = page("")
        opened.evaluate(
            """async ([source, snapshot]) => {
                const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
                const view = (await import(url)).default();
                Object.assign(model.traits, { snapshot, scale: "time" });
                model.save_changes = () => null;
                view.initialize({ model });
                view.render({ model, el: root });
            }""",
            [view._esm, view.snapshot],
        )

        def asked(what: str) -> list[Any]:
            found = opened.wait_for_function(
                "what => { const is = model.sent.filter(({ type, request }) => type === 'get' && request.what === what);"
                " return is.length > 0 && is; }",
                arg=what,
            )
            return list(found.json_value())

        first = asked("window")[0]
        opened.locator(".nn-box[data-tone~=many]").nth(3).click()
        at = len(view._timeline.timeline.spans) // 2
        opened.evaluate("at => model.receive({ type: 'chosen', at })", at)
        choice = asked("span")[0]
        for each in (choice, first):
            answer = {"type": "got", "id": each["id"], **view._answer(each["request"])}
            opened.evaluate(
                "answer => { model.receive(answer); return new Promise(done => setTimeout(done)); }", answer
            )
        last = asked("window")[-1]["request"]

        span = view._timeline.answer(choice["request"])
    assert last["from"] < span["from"] < span["to"] < last["to"]


@pytest.mark.parametrize("missed", [0, 1, 4])
def test_trends_that_missed_the_first_messages_ask_for_everything(page: Any, missed: int) -> None:
    run = Run()
    with RegulatorTrends(run) as view:
        before = json.loads(json.dumps(view.snapshot))
        sent: list[dict[str, Any]] = []
        view.send = lambda content, buffers=None: sent.append(content)
        for event in demo_run().events:
            run.append(event)
            view.catch_up()  # events that are read at a time are one message
        now = view.snapshot
    opened = page(
        script("base/scene", "trends/trends").replace(script(), "").replace("export default", "const trends =")
        + f"\nconst before = {json.dumps(before)}, now = {json.dumps(now)}, messages = {json.dumps(sent[missed:])};"
        + """
        model.traits = { ...model.traits, snapshot: before, thread_at: -1 };
        const view = trends();
        view.initialize({ model });
        view.render({ model, el: root });
        const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        window.play = async () => {
          for (const message of messages) { model.receive(message); await drawn(); }
          const asked = model.sent.some(({ type }) => type === "again");
          if (asked) model.receive({ type: "all", snapshot: now });
          await drawn();
        };
        """
    )
    opened.evaluate("play()")
    expect(opened.locator(".nn-sub")).to_contain_text("2,220 of 2,000 output tokens")
    expect(opened.locator(".nn-fault")).to_have_text("")
