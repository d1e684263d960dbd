// One line of text, announced when it changes.
export default {
  render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb" }));
    const line = root.appendChild(make("div", { class: "nn-notice", role: "status", "aria-live": "polite" }));
    const draw = () => {
      put(line, { "data-mood": model.get("mood") });
      setText(line, model.get("text"));
    };
    const leave = hideStatic(model, el, root);
    model.on("change:text", draw);
    model.on("change:mood", draw);
    draw();
    return () => {
      leave();
      model.off("change:text", draw);
      model.off("change:mood", draw);
    };
  },
};
