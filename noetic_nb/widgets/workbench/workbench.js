// The panels of a run: each is a view as it stands alone, with a model of its own inside the one of the workbench.
export default () => {
  const panels = new Map();

  /** What a view takes for its model: state of its own, and messages that travel inside those of the workbench. */
  function panelModel(host, name, data) {
    const listeners = new Map();
    const state = { fault: "", static_name: "", ...data.traits, snapshot: data.snapshot };
    let changed = {};
    const model = {
      get: (key) => state[key],
      set: (key, value) => {
        for (const [each, given] of Object.entries(typeof key === "object" ? key : { [key]: value })) {
          if (state[each] === given) continue;
          state[each] = changed[each] = given;
          model.emit(`change:${each}`, given);
        }
      },
      save_changes: () => {
        if (Object.keys(changed).length) host.send({ type: "panel", panel: name, set: changed });
        changed = {};
      },
      send: (message) => host.send({ type: "panel", panel: name, message }),
      on: (event, listener) => (listeners.get(event) ?? listeners.set(event, new Set()).get(event)).add(listener),
      off: (event, listener) => listeners.get(event)?.delete(listener),
      emit: (event, value) => [...(listeners.get(event) ?? [])].forEach((listener) => listener(value)),
      received: (traits) => {
        for (const [each, given] of Object.entries(traits)) {
          state[each] = given;
          model.emit(`change:${each}`, given);
        }
      },
    };
    return model;
  }

  function panelOf(host, name, data) {
    const view = PANEL_SCRIPTS[name]();
    const model = panelModel(host, name, data);
    view.initialize({ model });
    return { view, model };
  }

  const store = storeOf((data, message) => {
    if (message.type !== "panels") return true;
    for (const [name, content] of message.news) panels.get(name)?.model.emit("msg:custom", content);
    for (const [name, traits] of Object.entries(message.traits)) panels.get(name)?.model.received(traits);
    return true;
  });

  function initialize({ model }) {
    const end = store.initialize({ model });
    for (const [name, data] of Object.entries(store.data.panels)) panels.set(name, panelOf(model, name, data));
    return end;
  }

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb nn-workbench", role: "group", "aria-label": "Workbench" }));
    root.append(make("p", { class: "nn-title" }, "Workbench"));
    const grid = root.appendChild(make("div", { class: "nn-panels" }));
    const ends = [];
    for (const [name, title] of store.data.titles) {
      const panel = panels.get(name);
      if (!panel) continue;
      const box = grid.appendChild(make("section", { class: "nn-panel", "aria-label": title }));
      ends.push(panel.view.render({ model: panel.model, el: box }));
    }
    const hide = store.show({ model, el, root, draw: () => {} });
    return () => {
      hide();
      ends.forEach((end) => end?.());
    };
  }

  return { initialize, render: store.guard(render) };
};
