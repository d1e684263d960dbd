// A rule book: the table, the fields of the chosen rule, what a draft would have changed, versions, and saving.
export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "put") {
      if (message.part === "draft") typing.take(message.value);
      data[message.part] = message.value;
      if (message.part === "trial") typing.waits = false;
      return true;
    }
    if (message.type !== "hits") return false;
    for (const [at, row] of message.rows) if (data.rows[at]?.id === row.id) data.rows[at] = row;
    return true;
  });

  // The contents of the fields on this page. Apply sends them, so that the visible text is applied even if the kernel
  // is busy, and an older answer does not overwrite newer typing.
  const typing = {
    values: null, base: null, sent: null, rule: null, generation: -1, chosen: null, waits: false,
    take(draft) {
      const same = draft !== null && this.rule === draft.rule_id && !draft.forced;
      const keeps = same && !alike(this.values, this.base) && !alike(this.values, this.sent);
      if (!keeps) this.values = draft && { ...draft.values };
      this.base = draft && { ...draft.values };
      this.rule = draft?.rule_id ?? null;
      this.generation = draft?.generation ?? -1;
      this.chosen = null;
    },
  };
  const alike = (a, b) => a !== null && b !== null && Object.keys(a).every((name) => a[name] === b[name]);
  const view = { diff: null, diffOf: "", exists: false, path: null, ask: "" };

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb nn-editor", role: "group", "aria-label": "Rule editor" }));
    /** Send a request to the kernel, and show a refusal. */
    const ask = async (request) => {
      try {
        view.ask = "";
        return await store.get(model, request);
      } catch (error) {
        view.ask = error.message;
        store.changed();
        return null;
      }
    };
    const chosen = () => store.data.draft?.rule_id;
    const apply = () => {
      if (typing.values === null || typing.chosen) return;
      typing.sent = { ...typing.values };
      ask({ do: "apply", rule_id: typing.rule, form: store.data.draft.form, values: typing.sent });
    };
    const typed = (name, value) => {
      if (typing.values === null || typing.values[name] === value) return;
      typing.values = { ...typing.values, [name]: value };
      typing.waits = store.data.trial !== null;
      store.changed();
      ask({ do: "typed", rule_id: typing.rule, generation: typing.generation, at: performance.timeOrigin + performance.now(), values: typing.values });
    };
    const choose = (id) => {
      if (id === chosen() && !typing.chosen) return;
      typing.chosen = id;
      store.changed();
      ask({ do: "choose", rule_id: id }).then(() => {
        typing.chosen = null;
        store.changed();
      });
    };

    const head = root.appendChild(make("div", { class: "nn-toolbar" }));
    const title = head.appendChild(make("p", HEADING));
    const undoLast = button(head, "Undo last change", () => ask({ do: "undo" }));
    const fresh = head.appendChild(make("span", { class: "nn-new" }));
    const name = fresh.appendChild(make("input", { type: "text", placeholder: "name of a new rule", "aria-label": "Name of the new rule", "data-lm-suppress-shortcuts": "true" }));
    const form = fresh.appendChild(make("select", { "aria-label": "Form of the new rule" }));
    button(fresh, "Add rule", () => {
      ask({ do: "add", rule_id: name.value, form: form.value });
      name.value = "";
    });
    const table = ruleTable(root, { choose, ask });
    const empty = root.appendChild(make("p", { class: "nn-empty" }));
    const columns = root.appendChild(make("div", { class: "nn-columns" }));
    const main = columns.appendChild(make("div", { class: "nn-main" }));
    const heading = main.appendChild(make("p", { ...HEADING, class: "nn-title nn-rule", "aria-level": 4 }));
    const fields = ruleFields(main, { typed, apply });
    const buttons = main.appendChild(make("div", { class: "nn-toolbar" }));
    const applyButton = button(buttons, "Apply", apply, { class: "nn-apply", title: "Control and Enter in the text" });
    const tryButton = button(buttons, "Try", () => ask({ do: "try" }));
    button(buttons, "Up", () => ask({ do: "move", rule_id: chosen(), by: -1 }));
    button(buttons, "Down", () => ask({ do: "move", rule_id: chosen(), by: 1 }));
    button(buttons, "Remove", () => ask({ do: "remove", rule_id: chosen() }));
    const notice = main.appendChild(make("div", { class: "nn-notice", role: "status", "aria-live": "polite" }));
    const words = notice.appendChild(make("span"));
    const undo = button(notice, "Undo", () => ask({ do: "undo" }));
    const trial = trialPart(columns, (place) => store.select(model, place));
    const versions = versionsPart(root, ask);
    const keeping = keepingPart(root, { ask, chosen });

    function draw(data) {
      const draft = data.draft;
      // A page that opens late, or that missed a message, gets the whole state without a message about it.
      if (typing.rule !== (draft?.rule_id ?? null) || typing.generation !== (draft?.generation ?? -1)) typing.take(draft);
      setText(title, `Rules, version ${data.version}`);
      undoLast.disabled = !data.can_undo;
      // These rules have not been tried yet: the first trial starts when the part is visible.
      if (data.trial?.of === "nothing" && view.looked !== data.trial) {
        view.looked = data.trial;
        ask({ do: "try_in_force" });
      }
      offer(form, data.forms);
      empty.hidden = data.rows.length > 0;
      setText(empty, data.empty);
      table(data, typing.chosen ?? draft?.rule_id);
      main.hidden = draft === null;
      columns.hidden = draft === null && !data.trial;
      setText(heading, draft === null ? "" : `${draft.label} · ${draft.words}`);
      fields(draft, data.offered, data.notice);
      const edited = draft !== null && !alike(typing.values, typing.base);
      put(applyButton, { "data-edited": edited ? "yes" : null });
      applyButton.disabled = draft === null || Boolean(typing.chosen);
      tryButton.hidden = data.trial === null;
      const shown = view.ask ? { mood: "bad", text: view.ask } : data.notice;
      notice.hidden = !shown.text;
      put(notice, { "data-mood": shown.mood });
      setText(words, shown.text);
      undo.hidden = !shown.undo;
      trial(data.trial, typing.waits);
      versions(data.versions, draft);
      keeping(data);
    }

    return store.show({ model, el, root, draw });
  }

  /** The rules as a table; arrow keys move, Enter and a click choose. */
  function ruleTable(root, { choose, ask }) {
    const names = ["On", "Rule", "Form", "Where", "Hits", "Version"];
    const body = tableIn(root, "Rules, in the order in which they are asked", names, { kind: "nn-table nn-rules", wordy: () => true });
    const region = body.closest(".nn-scroll");
    const line = root.appendChild(readout(region));
    body.addEventListener("click", ({ target }) => {
      const row = target.closest("tr")?.row;
      if (target.type === "checkbox") ask({ do: "switch", rule_id: row.id, on: target.checked });
      else if (row) choose(row.id);
    });
    return (data, current) => {
      region.hidden = line.hidden = data.rows.length === 0;
      patchRows(body, data.rows, (node, { id, enabled }) => {
        node.querySelector("input").checked = enabled;
        put(node, { "data-chosen": id === current ? "yes" : null });
        put(node.querySelector(".nn-pick"), { "aria-pressed": id === current });
      });
      arrowKeys(body, ".nn-pick");
    };
  }

  /** What a draft would have changed; clicking a decision that differs selects it in other views. */
  function trialPart(parent, select) {
    const root = parent.appendChild(make("div", { class: "nn-trial", role: "group", "aria-label": "Changes by the draft" }));
    let rows = [];
    root.addEventListener("click", ({ target }) => {
      const place = rows[target.closest("[data-at]")?.dataset.at]?.place;
      if (place) select(place);
    });
    return (data, waits) => {
      root.hidden = data === null;
      if (data === null) return;
      rows = data.rows;
      put(root, { "data-of": data.of, "data-waits": waits ? "yes" : null, "aria-busy": Boolean(waits) });
      patchRows(root, data.parts);
      arrowKeys(root, ".nn-change");
    };
  }

  /** The fields of one rule: its text, a sentence with gaps, and further fields. */
  function ruleFields(parent, { typed, apply }) {
    const box = parent.appendChild(make("div", { class: "nn-fields" }));
    const uid = Math.random().toString(36).slice(2);
    const lists = new Map();
    let made = "";
    let updates = [];
    const listOf = (kind) => {
      if (!kind) return null;
      if (!lists.has(kind)) lists.set(kind, parent.appendChild(make("datalist", { id: `nn-${kind}-${uid}` })));
      return `nn-${kind}-${uid}`;
    };
    const control = (field) => {
      const common = { "aria-label": field.label, "data-field": field.name, "data-lm-suppress-shortcuts": "true" };
      if (field.kind === "choice") {
        const select = make("select", common);
        offer(select, field.options);
        select.addEventListener("change", () => typed(field.name, select.value));
        return select;
      }
      const kind = field.kind === "number" ? { type: "number", min: 0, step: 1 } : { type: "text", list: listOf(field.suggest) };
      const input = make("input", { ...common, ...kind, placeholder: field.placeholder });
      input.addEventListener("input", () => typed(field.name, input.value));
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter") apply();
      });
      return input;
    };
    const build = (draft) => {
      updates = [];
      box.replaceChildren();
      const sentence = make("p", { class: "nn-sentence" });
      for (const field of draft.fields) {
        if (field.kind === "code") {
          const code = codeText(box, field, { typed: (text) => typed(field.name, text), apply });
          updates.push((values, ready, notice) => code(values[field.name], ready, notice.field === field.name ? notice : {}));
          continue;
        }
        const input = control(field);
        if (field.sentence) {
          sentence.append(input, make("span", {}, field.after));
          if (!sentence.isConnected) box.append(sentence);
        } else {
          const row = box.appendChild(make("label", { class: "nn-field" }));
          row.append(make("span", {}, field.label), input);
        }
        updates.push((values, ready, notice) => {
          if (input.value !== values[field.name]) input.value = values[field.name];
          if (field.sentence) input.style.width = `${Math.max(7, (input.value || field.placeholder).length + 5)}ch`;
          input.disabled = !ready;
          put(input, { "aria-invalid": notice.field === field.name ? "true" : null });
        });
      }
    };
    return (draft, offered, notice) => {
      for (const [kind, list] of lists) {
        patch(list, offered[kind] ?? [], () => make("option"), (option, value) => put(option, { value }));
      }
      if (draft === null || typing.values === null) return;
      const key = JSON.stringify([draft.rule_id, draft.form]);
      if (key !== made) build(draft);
      made = key;
      for (const update of updates) update(typing.values, !typing.chosen, notice);
    };
  }

  /** The versions of the rule with their differences, and the removed rules. */
  function versionsPart(root, ask) {
    const part = root.appendChild(store.fold("versions", make("details", { class: "nn-versions" })));
    const summary = part.appendChild(make("summary"));
    const list = part.appendChild(make("ul", { class: "nn-version-list" }));
    const title = part.appendChild(make("p", { class: "nn-note", role: "status" }));
    const diff = part.appendChild(make("div", { class: "nn-scroll nn-tall nn-diff-text", tabindex: 0, role: "region", "aria-label": "Differences" }));
    list.addEventListener("click", async ({ target }) => {
      const act = target.closest("button")?.dataset.do;
      if (!act) return;
      const { rule_id, version } = target.closest("li").row;
      const found = await ask({ do: act, rule_id, version });
      if (act !== "compare" || found === null) return;
      Object.assign(view, { diff: found, diffOf: `${rule_id} ${store.data.version}` });
      store.changed();
    });
    return (versions, draft) => {
      part.hidden = versions.rows.length === 0;
      setText(summary, versions.head);
      patchRows(list, versions.rows);
      const shown = view.diffOf === `${draft?.rule_id} ${store.data.version}` ? view.diff : null;
      diff.hidden = title.hidden = shown === null;
      setText(title, shown?.title ?? "");
      patch(diff, shown?.lines ?? [], () => make("div"), (line, [kind, text]) => {
        put(line, { "data-kind": kind });
        setText(line, `${kind} ${text}`);
      });
    };
  }

  /** Saving to a file, and the code that creates the rules. */
  function keepingPart(root, { ask, chosen }) {
    const part = root.appendChild(store.fold("keeping", make("details", { class: "nn-keeping" })));
    part.append(make("summary", {}, "Save and copy"));
    const bar = part.appendChild(make("div", { class: "nn-toolbar" }));
    const path = bar.appendChild(make("input", { type: "text", placeholder: "rules.yaml", "aria-label": "File to save to", "data-lm-suppress-shortcuts": "true" }));
    button(bar, "Save to file", () => write(false));
    const replace = button(bar, "Replace the file", () => write(true));
    button(bar, "Copy book as code", () => copy(null));
    const code = button(bar, "Copy rule as code", () => copy(chosen()));
    const done = part.appendChild(make("p", { class: "nn-note", role: "status" }));
    const text = make("textarea", { readonly: "", rows: 8, wrap: "off", "aria-label": "Code", class: "nn-copied", "data-lm-suppress-shortcuts": "true" });
    path.addEventListener("input", () => {
      view.path = path.value;
      view.exists = false;
      store.changed();
    });
    const write = async (overwrite) => {
      const answer = await ask({ do: "save", path: path.value, overwrite });
      view.exists = answer?.exists ?? false;
      if (answer !== null && !answer.exists) view.path = null;
      store.changed();
    };
    const copy = async (rule_id) => {
      const found = await ask({ do: "code", rule_id });
      if (found === null) return;
      text.value = found;
      if (!text.isConnected) part.append(text);
      // Without clipboard permission, show the code selected, for copying by hand.
      try {
        await navigator.clipboard.writeText(found);
        setText(done, "Copied.");
      } catch {
        setText(done, "Copy the code below.");
        text.focus();
        text.select();
      }
      store.changed();
    };
    return (data) => {
      const shown = view.path ?? data.file;
      if (path.value !== shown) path.value = shown;
      replace.hidden = !view.exists;
      code.disabled = data.draft === null;
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
