// The parts of a workbench: the model that each view uses, the conversation, questions, and the cause of a decision.

/** The model that a view uses: its own state, and messages carried inside those of the workbench. */
function panelModel(host, name, data) {
  const listeners = new Map();
  const state = { fault: "", static_name: "", ...data.traits, snapshot: data.snapshot };
  let changed = {};
  let ahead = new Map(data.ahead.map(([request, answer]) => [JSON.stringify(request), answer]));
  const emit = (event, value) => [...(listeners.get(event) ?? [])].forEach((listener) => listener(value));
  return {
    get: (key) => state[key],
    set: (key, value) => {
      if (state[key] === value) return;
      state[key] = changed[key] = value;
      emit(`change:${key}`, value);
    },
    save_changes: () => {
      if (Object.keys(changed).length) host.send({ type: "panel", panel: name, set: changed });
      changed = {};
    },
    send: (message) => host.send({ type: "panel", panel: name, message }),
    /** The answer sent with the panel, if it is still current. */
    ahead: (request) => ahead.get(JSON.stringify(request))?.data,
    on: (event, listener) => (listeners.get(event) ?? listeners.set(event, new Set()).get(event)).add(listener),
    off: (event, listener) => listeners.get(event)?.delete(listener),
    /** Handle a message from the kernel. */
    receive: (content) => {
      ahead = new Map(); // the prepared answers may be outdated
      if (content.type !== "traits") return emit("msg:custom", content);
      for (const [each, given] of Object.entries(content.traits)) {
        state[each] = given;
        emit(`change:${each}`, given);
      }
    },
  };
}

/** A thumb, up or turned down. */
function thumb(down) {
  const icon = make("svg", { width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true", class: "nn-thumb" });
  const turn = down ? "rotate(180 8 8)" : null;
  icon.append(make("path", { d: "M1 7h3v8H1zM5 7l3-6c1.6 0 2.2 1.2 1.7 2.6L9 6h5c1 0 1.4.9 1.1 1.7l-2 6c-.2.8-.8 1.3-1.6 1.3H5z", transform: turn }));
  return icon;
}

/** The conversation: one row per turn, a click selects it; below it, if there is an agent, a field for messages. */
function talkPart(parent, { get, failed, redraw }) {
  const box = parent.appendChild(make("section", { class: "nn-talk", "aria-label": "Conversation" }));
  const earlier = button(box, "Earlier turns", () => askEarlier(), { class: "nn-earlier" });
  const list = box.appendChild(make("ol", { class: "nn-turns", tabindex: 0, "aria-label": "Turns" }));
  const empty = box.appendChild(make("p", { class: "nn-empty" }));
  const none = box.appendChild(make("p", { class: "nn-note" }));
  const chat = box.appendChild(make("form", { class: "nn-chat" }));
  const waiting = chat.appendChild(make("ul", { class: "nn-waiting", "aria-label": "Waiting for the next turn" }));
  const text = chat.appendChild(make("textarea", { rows: 2, "aria-label": "Message", "data-lm-suppress-shortcuts": "true" }));
  const row = chat.appendChild(make("div", { class: "nn-toolbar" }));
  const send = row.appendChild(make("button", { type: "submit" }, "Send"));
  const stop = button(row, "Stop", () => act({ do: "stop" }));
  const good = button(row, "", () => act({ do: "grade", quality: 1 }), { "aria-label": "Good reply", title: "Good reply" });
  const poor = button(row, "", () => act({ do: "grade", quality: 0 }), { "aria-label": "Poor reply", title: "Poor reply" });
  good.append(thumb(false));
  poor.append(thumb(true));
  const fix = button(row, "Correct …", () => openFix(fixBox.hidden), { "aria-expanded": "false" });
  const fixBox = chat.appendChild(make("div", { class: "nn-toolbar nn-fix" }));
  const fixText = fixBox.appendChild(make("input", { type: "text", "aria-label": "What was wrong with the last reply" }));
  const fixSend = button(fixBox, "Give correction", () => sendFix());
  const deaf = chat.appendChild(make("p", { class: "nn-note" }));
  const notice = chat.appendChild(make("p", { class: "nn-bench-notice", role: "status" }));
  fixBox.hidden = true;
  put(fixText, { placeholder: "What was wrong with the last reply?" });

  let before = []; // requested rows older than those of the snapshot
  let rows = [];
  let follows = true;
  let isLaidOut = false; // scrolling earlier would lay out the page twice
  const act = (request) => get(request).catch(failed);
  const openFix = (open) => {
    fixBox.hidden = !open;
    put(fix, { "aria-expanded": open });
    if (open) fixText.focus();
  };
  const sendFix = () => {
    if (!fixText.value.trim()) return fixText.focus();
    act({ do: "correct", text: fixText.value });
    fixText.value = "";
    openFix(false);
  };
  const say = () => {
    if (!text.value.trim()) return;
    act({ do: "say", text: text.value });
    text.value = "";
    follows = true;
  };
  chat.addEventListener("submit", (event) => {
    event.preventDefault();
    say();
  });
  text.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    say();
  });
  fixText.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter") sendFix();
    else openFix(false);
  });
  // When the page becomes narrow, the newest turn stays visible.
  new ResizeObserver(() => {
    isLaidOut = true;
    if (follows) list.scrollTop = list.scrollHeight;
  }).observe(list);
  list.addEventListener("scroll", () => (follows = list.scrollTop + list.clientHeight > list.scrollHeight - 24));
  const askEarlier = async () => {
    try {
      const of = shown;
      const older = await get({ what: "talk", before: rows[0].key });
      if (of !== shown) return;
      before = [...older, ...before];
      follows = false;
    } catch (error) {
      failed(error);
    }
    redraw();
  };
  list.addEventListener("click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed) act({ do: "choose", at: pressed.closest("li").row.key, why: pressed.matches(".nn-why-button") });
  });

  let shown = null;
  return function draw(parts) {
    if (shown !== parts.shown) [shown, before, follows] = [parts.shown, [], true]; // another thread
    rows = [...before.filter((row) => row.key < (parts.talk[0]?.key ?? Infinity)), ...parts.talk];
    list.classList.toggle("nn-several", parts.hasThreads);
    patchRows(list, rows, (item, row) => put(item.firstElementChild, { "aria-pressed": parts.chosen === row.key }));
    empty.hidden = rows.length > 0;
    setText(empty, parts.empty);
    list.hidden = rows.length === 0;
    earlier.hidden = !rows.length || rows[0].key === 0;
    if (follows && isLaidOut) list.scrollTop = list.scrollHeight;
    const about = parts.chat;
    setText(none, about === null ? parts.whyNoChat : "");
    chat.hidden = about === null;
    if (about === null) return;
    put(text, { placeholder: parts.busy ? "Say more: it waits for the next turn" : `Say something to ${about.agent}` });
    patch(waiting, about.waiting, () => make("li"), (item, words) => setText(item, `Waits: ${words}`));
    waiting.hidden = about.waiting.length === 0 || !parts.busy;
    stop.disabled = !parts.busy;
    good.disabled = poor.disabled = !parts.canGrade;
    fix.disabled = !parts.canGrade || about.deaf !== "";
    fixSend.disabled = fix.disabled;
    setText(deaf, about.deaf);
    const [mood, words] = about.notice;
    put(notice, { "data-mood": mood });
    setText(notice, words);
  };
}

/** Questions of the agent, each with its answers. */
function questionsPart(parent, { get, failed }) {
  const box = parent.appendChild(make("div", { class: "nn-questions", role: "alert" }));
  return function draw(questions) {
    // Match by number: an answer must never go to another question.
    keyed(box, questions, (each) => questionForm(each, (answer, reason) => get({ do: "answer", id: each.key, answer, reason }).catch(failed)), () => {});
    box.hidden = questions.length === 0;
  };
}

/** The cause of the chosen decision or call, written by the kernel; its buttons open the request, an item, or rules. */
function causePart(parent, { get, select, failed, redraw, show }) {
  const box = parent.appendChild(make("section", { class: "nn-cause", "aria-label": "Why" }));
  const list = box.appendChild(make("div"));
  let [shown, cause, trial] = [null, null, null];
  const ask = newest((decision) => get({ what: "cause", decision }), (answer, decision) => {
    if (decision !== shown) return;
    cause = answer;
    redraw();
  });
  const request = (fields) => {
    select(fields);
    show("transcript");
  };
  const edit = (rule) => {
    get({ do: "edit", decision: shown, rule }).then(() => {
      show("rules");
      redraw();
    }, failed);
  };
  const acts = {
    request: () => request(cause.request),
    close: () => select({ ...(cause.request ?? {}), decision: null, item: null }),
    item: (at) => request(cause.arguments[at].go),
    place: (at) => select(trial.rows[at].place),
    draft: () => edit(null),
    edit,
    without: (rule) => get({ what: "without", decision: shown, rule }).then((answer) => {
      trial = answer;
      redraw();
    }, failed),
  };
  list.addEventListener("click", (event) => {
    const { do: act, at } = event.target.closest("button")?.dataset ?? {};
    acts[act]?.(Number(at));
  });

  return function draw(decision) {
    if (decision !== shown) {
      [shown, cause, trial] = [decision, null, null];
      if (decision !== null) ask(decision).catch(failed);
    }
    box.hidden = cause === null;
    patchRows(list, [...(cause?.parts ?? []), ...(trial?.parts ?? [])]);
  };
}
