// A command: its output, and on many hosts the state of each, with the output of those that are asked for.

import { button, element, labelled, reconcile } from "./dom.js";
import { outputOf } from "./output.js";
import { paneGrid } from "./panes.js";

export function commandOutput(column, connection, key) {
  const output = outputOf(connection, key);
  const read = () => output.show("command", "Output of the command");
  column.replaceWith(element("section", { "aria-label": "Output" },
    element("div", { class: "buttons" }, button("Read again", read)), output.node));
  read();
  return { close: output.close };
}

export function hosts(column, connection, key) {
  const output = outputOf(connection, key);
  const body = element("tbody");
  const note = element("p", { class: "muted", role: "status" }, "Asking …");
  const name = element("input", { id: "host", type: "search", placeholder: "its name, as listed", spellcheck: "false" });
  const grid = paneGrid(connection, "h3");
  const panesTitle = element("h2", { hidden: true }, "Panes");
  const opened = new Set(); // the rows whose hosts are listed
  const show = (host) => output.show(`host:${host}`, `Output of ${host}`);
  const form = element("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    if (name.value.trim()) show(name.value.trim());
  } }, labelled("Host", name), element("button", { type: "submit" }, "Show its output"));
  column.replaceWith(element("section", { "aria-label": "Hosts" },
    element("h2", {}, "Hosts"), note,
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "States of the hosts" },
      element("table", {}, element("caption", { class: "unseen" }, "Hosts"),
        element("thead", {}, element("tr", {}, ...["State", "Count", "Hosts", "How it ended", "Output"].map((title) => element("th", { scope: "col" }, title)))),
        body)),
    form, output.node, panesTitle, grid.node));

  // What runs in a pane of a host is shown as it is there.
  function draw(row) {
    panesTitle.hidden = !row.panes.length;
    const names = [...row.panes].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    grid.draw(names.map((host) => [host, { session: key, pane: host, title: host }]));
  }

  function drawGroups(item) {
    const groups = item.groups;
    note.textContent = item.run === null ? "" : `run ${item.run}: harness fleet show ${item.run} lists it later, too`;
    reconcile(body, groups.map((group) => [`${group.state}/${group.hosts[0]}`, group]), groupRow);
  }

  function groupRow(row, group) {
    const state = group.state.replaceAll("_", " ");
    const cells = [
      ["State", element("span", { class: `badge ${group.state}` }, state)],
      ["Count", String(group.count)],
      ["Hosts", element("span", { class: "command" }, group.folded)],
      ["How it ended", group.ending && element("span", { class: "command" }, group.ending)],
      ["Output", outputs(row, group)],
    ];
    return element("tr", {}, ...cells.map(([title, value]) => element("td", { "data-name": title }, value)));
  }

  function outputs(row, group) {
    if (group.state === "pending") return "";
    const buttons = group.hosts.map((host) => button(group.count === 1 ? "Output" : host, () => show(host), { "data-focus": host, "aria-label": `Output of ${host}` }));
    if (group.count === 1) return buttons[0];
    const more = group.count - group.hosts.length;
    return element("details", { open: opened.has(row), ontoggle: (event) => (event.target.open ? opened.add(row) : opened.delete(row)) },
      element("summary", { "data-focus": "outputs" }, "of a host"),
      element("div", { class: "buttons" }, ...buttons, more ? element("span", { class: "muted" }, `${more} more: by name, below`) : null));
  }

  const stop = connection.open(key, "hosts", "", {
    item: drawGroups,
    ended: (reason) => {
      note.textContent = `The run has ended, or cannot be followed: ${reason || "complete"}. The last results may be missing here. ${note.textContent}`;
      for (const badge of body.querySelectorAll(".badge.running, .badge.pending")) {
        badge.textContent = `was ${badge.textContent}`;
        badge.className = "badge";
      }
    },
  });
  return {
    draw,
    close: () => {
      stop();
      output.close();
      grid.close();
    },
  };
}
