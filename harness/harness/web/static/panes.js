// A grid of small live panes: every session with a terminal.

import { element, reconcile } from "./dom.js";
import { sessionLink, stateBadge } from "./overview.js";
import { PaneTerminal } from "./terminal.js";

const MOST = 24;

export function panesPage(content, connection) {
  const grid = element("div", { class: "grid" });
  const note = element("p", { class: "muted" });
  const open = new Map();
  content.append(element("h1", {}, "Panes"), note, grid);

  function build(key, { session, pane, target }) {
    const host = element("div", { class: "pane small" });
    const state = element("span");
    const tile = element("section", { class: "tile", "aria-label": `${target}, pane ${pane}` },
      element("h2", {}, element("a", { href: sessionLink(session), "data-focus": "link" }, target), " ", state), host);
    queueMicrotask(() => {
      const terminal = new PaneTerminal(host, { label: `Pane ${pane} of ${target}, read only`, scrollback: 0 });
      const stop = connection.open(session, "pane", pane, {
        screen: (...all) => terminal.screen(...all),
        output: (...all) => terminal.output(...all),
        ended: (reason) => (state.textContent = reason || "closed"),
      });
      open.set(key, { state, close: () => { stop(); terminal.close(); } });
      draw();
    });
    return tile;
  }

  function draw() {
    const all = [...connection.sessions].flatMap(([session, row]) => row.panes.map((pane) => [`${session}/${pane}`, { session, pane, target: row.target }]));
    const shown = all.slice(0, MOST);
    for (const [key, one] of open) {
      if (shown.some(([name]) => name === key)) continue;
      one.close();
      open.delete(key);
    }
    reconcile(grid, shown, build);
    for (const [key, { session }] of shown) {
      const row = connection.sessions.get(session);
      if (open.has(key) && row) open.get(key).state.replaceChildren(stateBadge(row));
    }
    note.textContent = all.length > MOST ? `${all.length - MOST} more panes are not shown` : all.length ? "" : "No session has a terminal.";
  }

  connection.addEventListener("sessions", draw);
  draw();
  return () => {
    connection.removeEventListener("sessions", draw);
    for (const one of open.values()) one.close();
  };
}
