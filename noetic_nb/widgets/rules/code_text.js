// A textarea with line numbers beside it. Tab indents, Escape then Tab leaves, Enter keeps the indentation.
export default () => {
  // What was last typed on this page: a view that is drawn anew shows it at once, however busy the kernel is.
  let last = null;

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb nn-code-text" }));
    const gutter = root.appendChild(make("div", { class: "nn-gutter", "aria-hidden": "true" }));
    const area = root.appendChild(
      make("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", rows: 12 }),
    );
    area.setAttribute("data-lm-suppress-shortcuts", "true");
    let leaves = false;

    const numberLines = () => {
      const bad = model.get("error_line");
      const lines = Array.from({ length: area.value.split("\n").length }, (_, at) => at + 1);
      patch(gutter, lines, () => make("div"), (node, line) => {
        setText(node, String(line));
        put(node, { "data-bad": line === bad ? "yes" : null });
      });
      put(area, { "aria-invalid": bad ? "true" : "false" });
      gutter.scrollTop = area.scrollTop;
    };
    let generation = model.get("shown").generation;
    const send = (type = "text") => {
      last = { text: area.value, generation };
      numberLines();
      model.send({ type, text: area.value, generation });
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
      const moved = out ? block.replace(/^ {1,4}/gm, "") : block.replace(/^/gm, "    ");
      area.setRangeText(moved, first, selectionEnd, "select");
      send();
    };
    const take = ({ text, generation: newest }) => {
      generation = newest;
      if (area.value !== text) area.value = text;
      numberLines();
    };
    const isOurs = (shown) => last !== null && last.generation === shown.generation;
    // An answer that comes after someone began to type is older than what they typed.
    const receive = (message) => message.type === "text" && !isOurs(message) && take(message);
    const again = () => take(isOurs(model.get("shown")) ? last : model.get("shown"));
    const draw = () => {
      area.disabled = model.get("disabled");
      put(area, { "aria-label": model.get("label"), placeholder: model.get("placeholder") });
      numberLines();
    };

    area.addEventListener("input", () => send());
    area.addEventListener("scroll", () => (gutter.scrollTop = area.scrollTop));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leaves = true;
      else if (event.key === "Tab" && !leaves) {
        event.preventDefault();
        if (event.shiftKey || area.selectionStart !== area.selectionEnd) shift(event.shiftKey);
        else insert("    ");
      } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
        const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
        const indent = line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : "");
        if (indent) {
          event.preventDefault();
          insert(`\n${indent}`);
        }
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        send("apply");
      }
      if (event.key !== "Escape") leaves = false;
    });
    const names = ["error_line", "disabled", "label", "placeholder"].map((name) => `change:${name}`);
    names.forEach((name) => model.on(name, draw));
    model.on("change:shown", again);
    model.on("msg:custom", receive);
    again();
    draw();
    // What was typed in another view of this field is not in its state.
    model.send({ type: "again" });
    return () => {
      names.forEach((name) => model.off(name, draw));
      model.off("change:shown", again);
      model.off("msg:custom", receive);
    };
  }

  return { render };
};
