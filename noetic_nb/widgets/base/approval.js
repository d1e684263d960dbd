// One question below a cell.
export default {
  render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "alert" }));
    root.append(questionForm(model.get("words"), (answer, reason) => model.send({ answer, reason })));
    return hideStatic(model, el, root);
  },
};
