// The audit log: every call, who decided it, and how it ended.

import { get } from "./connection.js";
import { clock, element, labelled } from "./dom.js";

const FIELDS = ["text", "target", "tool", "status", "session"];

export function auditPage(content) {
  const inputs = Object.fromEntries(FIELDS.map((name) => [name, element("input", { id: `audit-${name}`, type: "search" })]));
  const status = element("p", { role: "status" });
  const body = element("tbody");
  const form = element("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); search(); } },
    ...FIELDS.map((name) => labelled(name[0].toUpperCase() + name.slice(1), inputs[name])),
    element("button", { type: "submit", class: "primary" }, "Search"));
  content.append(element("h1", {}, "Audit"), form, status,
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Calls" },
      element("table", {}, element("caption", { class: "unseen" }, "Audited calls"),
        element("thead", {}, element("tr", {}, ...["Call", "Time", "Target", "Tool", "Status", "Decided by", "What"].map((name) => element("th", { scope: "col" }, name)))), body)));
  const details = element("div");
  content.append(details);

  async function search() {
    const query = new URLSearchParams(FIELDS.map((name) => [name, inputs[name].value.trim()]).filter(([, value]) => value));
    try {
      const { calls, has_more: hasMore } = await get(`api/audit?${query}`);
      body.replaceChildren(...calls.map(row));
      status.textContent = `${calls.length} ${calls.length === 1 ? "call" : "calls"}${hasMore ? ", the newest ones" : ""}`;
    } catch (error) {
      status.textContent = error.message;
    }
  }

  function row(call) {
    const open = element("button", { type: "button", class: "link", onclick: () => show(call.number) }, String(call.number));
    const cells = [["Call", open], ["Time", clock(call.at)], ["Target", call.target], ["Tool", call.tool], ["Status", call.status], ["Decided by", call.decided_by], ["What", element("code", {}, call.text)]];
    return element("tr", {}, ...cells.map(([name, value]) => element("td", { "data-name": name }, value)));
  }

  async function show(number) {
    try {
      const call = await get(`api/audit/${number}`);
      const title = element("h2", { tabindex: "-1" }, `Call ${number}: ${call.status}`);
      details.replaceChildren(title, ...call.records.map((record) => element("dl", {},
        ...Object.entries(record).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, name === "at" ? clock(value) : typeof value === "string" ? value : JSON.stringify(value))]))));
      title.focus();
    } catch (error) {
      status.textContent = error.message;
    }
  }

  search();
}
