// Small live panes in a grid: those of every session with a terminal, or of the hosts of a run.

import { element, reconcile } from "./dom.js";
import { sessionLink, stateBadge } from "./overview.js";
import { PaneTerminal } from "./terminal.js";

const MOST = 24;

// A grid of panes, with headings of a level. `draw` takes [key, { session, pane, title, href }] of each, and what is beside its title.
export function paneGrid(connection, level) {
  const node = element("div", { class: "grid" });
  const open = new Map();

  function build(key, { session, pane, title, href }) {
    const host = element("div", { class: "pane small" });
    const state = element("span");
    const heading = href ? element("a", { href, "data-focus": "link" }, title) : title;
    const tile = element("section", { class: "tile", "aria-label": `Pane of ${title}` }, element(level, {}, heading, " ", state), host);
    queueMicrotask(() => {
      const terminal = new PaneTerminal(host, { label: `Pane ${pane} of ${title}, read only`, scrollback: 0, isTile: true });
      const stop = connection.open(session, "pane", pane, {
        screen: (...all) => terminal.screen(...all),
        output: (...all) => terminal.output(...all),
        ended: (reason) => state.replaceChildren(reason || "closed"),
      });
      open.set(key, { state, close: () => { stop(); terminal.close(); } });
    });
    return tile;
  }

  function draw(entries) {
    const wanted = new Set(entries.map(([key]) => key));
    for (const [key, one] of open) {
      if (wanted.has(key)) continue;
      one.close();
      open.delete(key);
    }
    reconcile(node, entries, build);
  }

  return {
    node,
    draw,
    mark: (key, badge) => open.get(key)?.state.replaceChildren(badge),
    close: () => draw([]),
  };
}

export function panesPage(content, connection) {
  const grid = paneGrid(connection, "h2");
  const note = element("p", { class: "muted" });
  content.append(element("h1", {}, "Panes"), note, grid.node);

  function draw() {
    const all = [...connection.sessions].flatMap(([session, row]) => row.panes.map((pane) =>
      [`${session}/${pane}`, { session, pane, title: row.kind === "fleet" ? pane : row.target, href: sessionLink(session) }]));
    grid.draw(all.slice(0, MOST));
    queueMicrotask(() => {
      for (const [key, { session }] of all.slice(0, MOST)) {
        if (connection.sessions.has(session)) grid.mark(key, stateBadge(connection.sessions.get(session)));
      }
    });
    note.textContent = all.length > MOST ? `${all.length - MOST} more panes are not shown` : all.length ? "" : "No session has a terminal.";
  }

  connection.addEventListener("sessions", draw);
  draw();
  return () => {
    connection.removeEventListener("sessions", draw);
    grid.close();
  };
}
