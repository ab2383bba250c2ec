// All sessions: what each does, since when, and what waits for an answer.

import { approval } from "./actions.js";
import { element, labelled, reconcile, since } from "./dom.js";

const ORDER = ["waiting", "lost", "reconnecting", "running", "thinking", "paused", "idle"];
const ORDERS = {
  "what waits first": (a, b) => ORDER.indexOf(a.doing) - ORDER.indexOf(b.doing) || a.started - b.started,
  oldest: (a, b) => a.started - b.started,
  newest: (a, b) => b.started - a.started,
  target: (a, b) => a.target.localeCompare(b.target),
  cost: (a, b) => (b.cost || 0) - (a.cost || 0),
};

export function sessionLink(key) {
  return `#/session/${encodeURIComponent(key)}`;
}

export function stateBadge(row) {
  const text = row.doing === "waiting" ? "waits for approval" : row.doing;
  return element("span", { class: `badge ${row.doing}` }, text);
}

function summary(row) {
  const running = row.running.map((call) => call.text).join(", ");
  const hosts = row.hosts ? `${row.hosts.ok + row.hosts.failed} of ${row.hosts.total} hosts, ${row.hosts.failed} failed` : "";
  return [hosts, running || row.title].filter(Boolean).join(" · ");
}

function tableRow(key, row) {
  const cost = row.cost === null ? "" : `$${row.cost.toFixed(2)}`;
  const cells = [
    ["State", stateBadge(row)],
    ["Target", element("a", { class: "clamped", href: sessionLink(key), "data-focus": "link" }, row.target || row.session)],
    ["Does", element("span", { class: "command clamped" }, summary(row))],
    ["For", element("span", { class: "since", "data-since": row.since }, since(row.since))],
    ["Kind", element("span", { class: "nowrap" }, `${row.kind}${row.model ? ` · ${row.model}` : ""}`)],
    ["Cost", cost],
  ];
  return element("tr", {}, ...cells.map(([name, value]) => element("td", { "data-name": name }, value)));
}

export function overviewPage(content, connection) {
  const filter = element("input", { id: "filter", type: "search", placeholder: "target, command, state" });
  const order = element("select", { id: "order" }, ...Object.keys(ORDERS).map((name) => element("option", {}, name)));
  const approvals = element("div", { class: "approvals" });
  const body = element("tbody");
  const none = element("p", { class: "muted" });
  content.append(
    element("h1", {}, "Sessions"), approvals,
    element("div", { class: "filters" },
      labelled("Filter", filter), labelled("Order", order)),
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Sessions" },
      element("table", {}, element("caption", { class: "unseen" }, "Sessions"),
        element("thead", {}, element("tr", {}, ...["State", "Target", "Does", "For", "Kind", "Cost"].map((name) => element("th", { scope: "col" }, name)))),
        body)),
    none);

  function draw() {
    const text = filter.value.toLowerCase();
    const matches = ([, row]) => [row.target, row.doing, row.kind, row.model, summary(row)].join(" ").toLowerCase().includes(text);
    const rows = [...connection.sessions].filter(matches).sort(([, a], [, b]) => ORDERS[order.value](a, b));
    reconcile(body, rows, tableRow);
    const asked = rows.flatMap(([key, row]) => row.approvals.map((one) => [`${key}/${one.request_id}`, { session: key, one }]));
    reconcile(approvals, asked, (_, { session, one }) => approval(connection, session, one));
    none.textContent = rows.length ? "" : connection.isComplete ? "No session runs. Start one: harness --ssh HOST --tmux" : "Asking …";
  }

  const clock = setInterval(() => {
    for (const node of content.querySelectorAll("[data-since]")) node.textContent = since(Number(node.dataset.since));
  }, 1000);
  filter.addEventListener("input", draw);
  order.addEventListener("change", draw);
  connection.addEventListener("sessions", draw);
  draw();
  return () => {
    clearInterval(clock);
    connection.removeEventListener("sessions", draw);
  };
}
