/** A code field with line numbers. Tab indents, Escape then Tab leaves, Enter keeps the indentation. */
function codeText(parent, field, { typed, apply }) {
  const frame = parent.appendChild(make("div", { class: "nn-code-text" }));
  const gutter = frame.appendChild(make("div", { class: "nn-gutter", "aria-hidden": "true" }));
  const paper = frame.appendChild(make("div", { class: "nn-paper" }));
  const behind = paper.appendChild(make("pre", { "aria-hidden": "true" }));
  const area = paper.appendChild(
    make("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": field.label, placeholder: field.placeholder, "data-lm-suppress-shortcuts": "true" }),
  );
  let leaves = false;
  let bad = {};
  const mark = () => {
    const lines = area.value.split("\n");
    patch(gutter, lines, () => make("div"), (node, _line, at) => {
      setText(node, String(at + 1));
      put(node, { "data-bad": at + 1 === bad.line ? "yes" : null });
    });
    put(area, { "aria-invalid": bad.line ? "true" : "false", rows: Math.max(4, Math.min(24, lines.length + 1)) });
    // The same text behind the field, transparent except for the mark at the error.
    const at = bad.column ? lines.slice(0, bad.line - 1).join("\n").length + (bad.line > 1 ? 1 : 0) + bad.column - 1 : -1;
    behind.replaceChildren(area.value.slice(0, Math.max(0, at)));
    if (at >= 0) behind.append(make("mark", {}, area.value.slice(at).match(/^\w+|^[^\n]/)?.[0] ?? " "));
    scroll();
  };
  const scroll = () => {
    gutter.scrollTop = area.scrollTop;
    behind.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
  };
  const send = () => {
    bad = {};
    mark();
    typed(area.value);
  };
  const insert = (text) => {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    send();
  };
  /** Indent or outdent the lines of the selection. */
  const shift = (out) => {
    const { value, selectionStart, selectionEnd } = area;
    const first = value.lastIndexOf("\n", selectionStart - 1) + 1;
    const block = value.slice(first, selectionEnd);
    area.setRangeText(out ? block.replace(/^ {1,4}/gm, "") : block.replace(/^/gm, "    "), first, selectionEnd, "select");
    send();
  };
  area.addEventListener("input", send);
  area.addEventListener("scroll", scroll);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leaves = true;
    else if (event.key === "Tab" && !leaves) {
      event.preventDefault();
      if (event.shiftKey || area.selectionStart !== area.selectionEnd) shift(event.shiftKey);
      else insert("    ");
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      apply();
    } else if (event.key === "Enter" && !event.shiftKey) {
      const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
      const indent = line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : "");
      if (indent) {
        event.preventDefault();
        insert(`\n${indent}`);
      }
    }
    if (event.key !== "Escape") leaves = false;
  });
  return (text, ready, notice) => {
    bad = notice;
    if (area.value !== text) area.value = text;
    area.disabled = !ready;
    mark();
  };
}
