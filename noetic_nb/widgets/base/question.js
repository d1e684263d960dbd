// A question of the agent.
/** Make its form; `answer` gets the button that was pressed and the reason. */
function questionForm({ asked, call, why }, answer) {
  const form = make("form", { class: "nn-question" });
  const list = make("ul", { class: "nn-list" });
  patch(list, why, () => make("li"), setText);
  form.append(make("p", { class: "nn-asked" }, asked), make("p", { class: "nn-quote" }, call), list);
  const row = form.appendChild(make("div", { class: "nn-toolbar" }));
  for (const [word, text] of [["once", "Allow once"], ["always", "Allow for this run"], ["deny", "Deny"]]) button(row, text, () => answer(word, reason.value));
  const reason = row.appendChild(make("input", { type: "text", "aria-label": "Why not?", placeholder: "Why not?" }));
  reason.addEventListener("keydown", (event) => event.stopPropagation());
  // Enter in the field of a reason is a no, never a yes.
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer("deny", reason.value);
  });
  return form;
}
