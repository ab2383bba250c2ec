// One session: its panes, the agent's conversation, its jobs, and what an operator can do.

import { actionButton, approval } from "./actions.js";
import { conversation } from "./conversation.js";
import { button, element, reconcile, since } from "./dom.js";
import { commandOutput, hosts } from "./hosts.js";
import { outputOf } from "./output.js";
import { stateBadge } from "./overview.js";
import { PaneTerminal } from "./terminal.js";

export function sessionPage(content, connection, key) {
  const head = element("div", { class: "head" });
  const approvals = element("div", { class: "approvals" });
  const problem = element("p", { class: "problem", role: "alert" });
  const paneColumn = element("div", { class: "column first" });
  const side = element("div", { class: "column" });
  const columns = element("div", { class: "columns" }, approvals, paneColumn, side);
  content.append(element("h1", {}, connection.sessions.get(key)?.target || "Session"), head, problem, columns);

  let parts = null; // built when the kind of the session is known

  function build(row) {
    if (row.kind === "fleet") return [hosts(columns, connection, key)];
    if (row.kind === "forward") return [];
    if (row.kind === "run" && !row.panes.length) return [commandOutput(columns, connection, key)];
    if (row.kind === "run") return [panes(paneColumn, connection, key), commandOutput(side, connection, key)];
    return [
      row.panes.length ? panes(paneColumn, connection, key) : null,
      row.kind === "agent" ? conversation(side, connection, key) : null,
      jobs(row.panes.length ? side : paneColumn, connection, key),
    ].filter(Boolean);
  }

  function draw() {
    const now = connection.sessions.get(key);
    if (now) parts ??= build(now);
    if (!now) {
      head.replaceChildren(element("p", { class: "muted" }, connection.isComplete ? "This session has ended." : "Asking …"));
      approvals.replaceChildren();
      return;
    }
    content.querySelector("h1").textContent = now.target || key;
    const buttons = { shown: buttonsOf(connection, now), work: now.work, paused_by: now.paused_by };
    reconcile(head, [
      ["facts", { ...now, approvals: null, jobs: null, work: null }],
      ["buttons", buttons],
      ["notes", { attach: now.attach, shown: buttons.shown, kind: now.kind }],
    ], (part) => part === "facts" ? facts(now) : part === "buttons" ? headButtons(connection, key, now) : notes(connection, now));
    reconcile(approvals, now.approvals.map((one) => [one.request_id, one]), (_, one) => approval(connection, key, one));
    problem.textContent = [now.process.problem, now.note].filter(Boolean).join("; ");
    for (const part of parts) part.draw?.(now);
  }

  const clock = setInterval(() => {
    for (const node of content.querySelectorAll("[data-since]")) node.textContent = since(Number(node.dataset.since));
  }, 1000);
  connection.addEventListener("sessions", draw);
  draw();
  return () => {
    clearInterval(clock);
    connection.removeEventListener("sessions", draw);
    for (const part of parts || []) part.close();
  };
}

function facts(row) {
  const found = [
    row.model,
    row.cost === null ? "" : `$${row.cost.toFixed(2)}`,
    row.context_limit ? `${Math.round((100 * row.context) / row.context_limit)} % of the context` : "",
    row.paused_by ? `paused by ${row.paused_by}` : "",
    ...Object.entries(row.taken_by).map(([pane, who]) => `${who} has taken over ${pane}`),
  ].filter(Boolean);
  return element("div", {},
    element("p", {}, stateBadge(row), " for ", element("span", { "data-since": row.since }, since(row.since)), found.length ? ` · ${found.join(" · ")}` : ""),
    row.title ? element("p", { class: "command" }, row.title) : null);
}

const CANCELLABLE = ["thinking", "running", "waiting", "reconnecting"];

function buttonsOf(connection, row) {
  const wanted = [row.doing === "paused" ? "resume" : "pause", CANCELLABLE.includes(row.doing) || row.work.length ? "cancel" : ""];
  return connection.isOperator ? wanted.filter((action) => row.actions.includes(action)) : [];
}

// The buttons are built anew, and guarded, when they are for another turn or pause. A key is not for it either: the
// focus stays only with a button of the same meaning.
function headButtons(connection, key, row) {
  const shown = buttonsOf(connection, row);
  const act = (text, action, meant, attributes) => shown.includes(action)
    ? actionButton(text, () => connection.act(key, action, meant), { "data-focus": [action, ...Object.values(meant)].join(" "), ...attributes }) : null;
  return element("div", { class: "buttons guarded" },
    act("Resume", "resume", { paused_by: row.paused_by }, { class: "primary" }),
    act("Pause", "pause", {}),
    act(row.kind === "agent" ? "Cancel the turn" : "Cancel", "cancel", { work: row.work }, { class: "danger" }));
}

function notes(connection, row) {
  return element("div", {},
    row.kind === "fleet" && connection.isOperator && row.actions.includes("cancel")
      ? element("p", { class: "muted" }, "Cancel starts no further host; a second time, it interrupts those that run.") : null,
    row.attach.length ? element("p", { class: "muted" }, "Attach: ", element("code", {}, row.attach.join(" "))) : null);
}

// -- panes

function panes(column, connection, key) {
  const tabs = element("div", { class: "buttons", role: "group", "aria-label": "Panes" });
  const host = element("div", { class: "pane" });
  const note = element("p", { class: "muted", role: "status" });
  const controls = element("div", { class: "buttons" });
  column.append(tabs, host, note, controls);
  let names = [];
  let name = null;
  let terminal = null;
  let stop = () => {};
  let holds = false;
  let renews = false; // whether the page has connected again, and its operator holds the pane

  function show(pane) {
    stop();
    terminal?.close();
    host.replaceChildren();
    name = pane;
    note.textContent = "";
    terminal = new PaneTerminal(host, { label: `Pane ${pane}`, onInput: (text) => connection.type(key, pane, text) });
    stop = connection.open(key, "pane", pane, {
      screen: (columns, rows, ...rest) => {
        note.textContent = `${columns} × ${rows}`;
        terminal.screen(columns, rows, ...rest);
      },
      output: (...all) => terminal.output(...all),
      item: (item) => {
        if (item.type === "job_started") note.textContent = `runs: ${item.command}`;
        if (item.type === "job_ended") note.textContent = `job ${item.job_id} ended: ${item.exit_code ?? item.status}`;
      },
      ended: (reason) => (note.textContent = reason || "the pane was closed"),
    });
    drawTabs();
    draw(connection.sessions.get(key));
  }

  function drawTabs() {
    tabs.replaceChildren(...(names.length > 1 ? names.map((pane) => button(pane, () => show(pane), { "aria-pressed": String(pane === name) })) : []));
  }

  function draw(row) {
    if (!row) return;
    if (name === null && row.panes.length) {
      names = row.panes;
      show(row.panes[0]);
      connection.query(key, "panes").then((found) => {
        names = found.panes.map((one) => one.name);
        drawTabs();
      }, () => {});
      return;
    }
    const holder = row.taken_by[name] || "";
    const mine = holder !== "" && holder === `dashboard: ${connection.login?.name}`;
    if (mine !== holds) {
      holds = mine;
      terminal?.allowTyping(mine);
    }
    if (mine && renews) connection.type(key, name, "");
    renews = false;
    host.classList.toggle("taken", mine);
    const possible = connection.isOperator && row.actions.includes("take_pane");
    reconcile(controls, [["lease", { holder, mine, possible }]], () => leaseControls(holder, mine, possible));
  }

  function leaseControls(holder, mine, possible) {
    if (mine) {
      return element("p", {}, "You type into this pane. Everyone sees it. ",
        actionButton("Give it back", () => connection.act(key, "release_pane", { pane: name }), { class: "primary", "data-focus": "lease" }));
    }
    if (holder) return element("p", {}, `${holder} has taken over this pane.`);
    if (!possible) return element("p", { class: "muted" }, "Read only.");
    return element("p", {}, actionButton("Take over", () => connection.act(key, "take_pane", { pane: name }), { "data-focus": "lease" }));
  }

  const problem = (event) => (note.textContent = event.detail);
  const connected = (event) => (renews = holds && event.detail === "connected");
  connection.addEventListener("problem", problem);
  connection.addEventListener("state", connected);
  return {
    draw,
    close: () => {
      connection.removeEventListener("problem", problem);
      connection.removeEventListener("state", connected);
      stop();
      terminal?.close();
    },
  };
}

// -- jobs

function jobs(column, connection, key) {
  const list = element("div", { class: "jobs" });
  const output = outputOf(connection, key);
  const status = element("p", { class: "muted" });
  let stored = [];
  const section = element("section", { "aria-label": "Jobs" },
    element("h2", {}, "Jobs "), element("div", { class: "buttons" }, button("List all", refresh)), list, status, output.node);
  column.append(section);

  async function refresh() {
    try {
      stored = (await connection.query(key, "jobs")).jobs;
      status.textContent = stored.length ? "" : "No jobs are stored.";
    } catch (error) {
      status.textContent = error.message;
    }
    draw(connection.sessions.get(key));
  }

  function draw(row) {
    if (!row) return;
    const known = new Map(stored.map((job) => [job.job_id, { ...job, running: job.status === "running" }]));
    for (const job of row.jobs) known.set(job.job_id, { ...job, running: job.is_running });
    reconcile(list, [...known].reverse(), (id, job) => jobRow(row, id, job));
  }

  function jobRow(row, id, job) {
    const may = (action) => job.running && connection.isOperator && row.actions.includes(action);
    const ending = job.running ? "runs" : `ended: ${job.exit_code ?? job.status ?? "unknown"}`;
    return element("div", { class: "job guarded" },
      element("code", {}, job.command), element("span", { class: "muted" }, ` ${id} · ${ending} `),
      button("Output", () => output.show(`job:${id}`, `Output of job ${id}`), { "data-focus": `tail-${id}`, "aria-label": `Output of job ${id}` }),
      may("interrupt_job") ? actionButton("Interrupt", () => connection.act(key, "interrupt_job", { job_id: id })) : null,
      may("kill_job") ? actionButton("Kill", () => connection.act(key, "kill_job", { job_id: id }), { class: "danger" }) : null);
  }

  return { draw, close: output.close };
}
