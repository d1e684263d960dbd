// Rows of a request: items with their texts and folded stretches of them, made once and filled again.
const ROW_PARTS = ["nn-t-why", "nn-t-long", "nn-t-was"];

/** Return a part of a row where it is wanted, made when it is first; a list has many rows, and most have few parts. */
function partIn(row, kind, isWanted, create = () => make("div", { class: kind })) {
  row.parts ??= new Map();
  let part = row.parts.get(kind);
  if (!part && isWanted) {
    row.parts.set(kind, (part = create()));
    const behind = ROW_PARTS.slice(ROW_PARTS.indexOf(kind) + 1).find((other) => row.parts.has(other));
    row.insertBefore(part, row.parts.get(behind) ?? null);
  }
  if (part) part.hidden = !isWanted;
  return isWanted ? part : null;
}

/** Make a text that can be opened: its beginning, and a button that fetches all of it. */
function longText() {
  const box = make("div", { class: "nn-t-long" });
  box.append(make("div", { class: "nn-t-words" }));
  return box;
}

/** Write a text behind the head of a row, where there is one. */
function writeText(row, text, more, state) {
  const box = partIn(row, "nn-t-long", text !== "" || Boolean(more), longText);
  if (box) fillText(box, text, more, state);
}

function fillText(box, text, more, state) {
  const whole = state.whole.get(state.key);
  setText(box.firstElementChild, whole ?? text);
  box.hidden = text === "" && !more;
  let button = box.children[1];
  if (!button && !more) return;
  button ??= box.appendChild(make("button", { type: "button", class: "nn-t-more", tabindex: -1 }));
  button.hidden = !more;
  put(button, { "aria-expanded": whole !== undefined, "data-key": String(state.key) });
  setText(button, whole === undefined ? `Show all ${more}` : "Show less");
}

function itemRow() {
  const row = make("li", { class: "nn-t-item", tabindex: -1 });
  const head = row.appendChild(make("div", { class: "nn-t-item-head" }));
  head.append(
    make("span", { class: "nn-t-change" }),
    make("span", { class: "nn-t-origin-swatch", "aria-hidden": "true" }),
    make("span", { class: "nn-t-origin" }),
    make("span", { class: "nn-t-facts" }),
    make("span", { class: "nn-number" }),
  );
  return row;
}

function wasPart() {
  const was = make("div", { class: "nn-t-was" });
  was.append(make("span", { class: "nn-t-change" }, "before"), longText());
  return was;
}

function foldRow() {
  const row = make("li", { class: "nn-t-fold", tabindex: -1 });
  row.append(make("span"), make("button", { type: "button", class: "nn-t-more", tabindex: -1 }, "Show them"));
  return row;
}

/** Fill the row of an item: `changes` are the marks of changes, `whole` the texts that are open, `remedy` what would have admitted it. */
function fillItem(row, data, { isChosen, changes = {}, remedy = "", whole }) {
  const [change, swatch, origin, facts, tokens] = row.firstElementChild.children;
  const [name, fill] = data.of;
  const mark = data.change ? `${changes[data.change]} ${data.change}` : "";
  put(row, {
    "data-sent": data.sent,
    "data-change": data.change,
    "data-key": data.key,
    "data-item": data.item,
    "aria-current": isChosen ? "true" : null,
  });
  setText(change, mark);
  change.hidden = mark === "";
  swatch.style.setProperty("--nn-fill", fill);
  setText(origin, name);
  setText(facts, [data.role, data.tool].filter((fact) => fact && fact !== name).join(" · "));
  setText(tokens, data.tokens && `${data.tokens} tokens`);
  const why = partIn(row, "nn-t-why", data.why !== "");
  if (why) setText(why, [data.why, remedy].filter(Boolean).join(" "));
  writeText(row, data.text, data.more, { key: data.key, whole });
  const was = partIn(row, "nn-t-was", data.was !== undefined, wasPart);
  if (was) fillText(was.lastElementChild, data.was, data.wasMore, { key: `w${data.key}`, whole });
}

/** Draw the entries of a list: items by `fill`, and folded stretches, which are other elements and kept apart by their kind. */
function drawEntries(list, entries, fill) {
  while (list.childElementCount > entries.length) list.lastElementChild.remove();
  entries.forEach((data, at) => {
    const isFold = data.fold !== undefined;
    let node = list.children[at];
    if (!node || node.classList.contains("nn-t-fold") !== isFold) {
      const made = isFold ? foldRow() : itemRow();
      if (node) node.replaceWith(made);
      else list.append(made);
      node = made;
    }
    if (!isFold) return fill(node, data);
    const [words, button] = node.children;
    setText(words, data.text);
    put(button, { "data-fold": data.fold });
  });
}

/** Let rows of a list be chosen: with a click, the space bar, or Enter, which opens what is folded as well. */
function choosable(list, choose) {
  list.addEventListener("keydown", (event) => {
    const row = event.target;
    if (row.parentElement !== list || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") [...row.querySelectorAll("button")].find((button) => button.offsetParent)?.click();
    choose(row);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("li");
    // Who marks text to copy it chooses nothing.
    if (row?.parentElement === list && !event.target.closest("button") && String(getSelection()) === "") choose(row);
  });
}
