// What an operator can do: decide approval requests, and buttons that say what went wrong.

import { announce, button, element, since, warn } from "./dom.js";

// A button for an action; a failure is shown beside it and read aloud.
export function actionButton(text, act, attributes = {}) {
  const problem = element("span", { class: "problem", role: "alert" });
  const pressed = button(text, async () => {
    pressed.disabled = true;
    problem.textContent = "";
    try {
      await act();
      announce(`${text}: done`);
    } catch (error) {
      pressed.isConnected ? (problem.textContent = error.message) : warn(`${text}: ${error.message}`);
    }
    pressed.disabled = false;
  }, attributes);
  return element("span", { class: "action" }, pressed, problem);
}

const SCOPES = {
  once: "Approve",
  exact: "Approve this call from now on",
  directory: "Approve in this directory",
  tool: "Approve this tool",
  session: "Approve all in this session",
  always: "Approve always",
  "deny-once": "Deny",
  "deny-session": "Deny in this session",
};

const USUAL = ["once", "deny-once"];

function scopeButtons(connection, session, asked, isWanted) {
  return asked.scopes.filter(isWanted).map((scope) => {
    const denies = scope.startsWith("deny");
    if (!denies && !asked.is_complete) return null;
    const decide = () => connection.act(session, denies ? "deny" : "approve", { request_id: asked.request_id, scope });
    return actionButton(SCOPES[scope] || scope, decide, {
      class: denies ? "danger" : scope === "once" ? "primary" : "", "data-focus": scope,
    });
  });
}

function editor(connection, session, asked) {
  if (!asked.editable) return null;
  const name = `edit-${asked.request_id}`;
  const field = element("textarea", { id: name, rows: 3, spellcheck: "false" });
  field.value = asked.edit_text;
  const send = () => connection.act(session, "edit", { request_id: asked.request_id, text: field.value });
  return element("details", {},
    element("summary", { "data-focus": "edit" }, "Edit"),
    element("label", { for: name }, `Change the ${asked.editable.replaceAll("_", " ")}, then run it`),
    field, actionButton("Approve this instead", send, { class: "primary" }));
}

export function approval(connection, session, asked) {
  const label = `approval-${asked.request_id}`;
  const decisions = connection.isOperator
    ? [
      element("div", { class: "buttons" }, ...scopeButtons(connection, session, asked, (scope) => USUAL.includes(scope))),
      editor(connection, session, asked),
      element("details", {}, element("summary", { "data-focus": "more" }, "More answers"),
        element("div", { class: "buttons" }, ...scopeButtons(connection, session, asked, (scope) => !USUAL.includes(scope)))),
    ]
    : [element("p", { class: "muted" }, "An operator can answer.")];
  return element("section", { class: "approval guarded", "aria-labelledby": label },
    element("h2", { id: label }, `${asked.tool} waits for approval`, asked.agent && asked.agent !== "agent" ? ` (${asked.agent})` : ""),
    element("pre", { tabindex: "0" }, asked.text),
    asked.preview ? element("pre", { tabindex: "0" }, asked.preview) : null,
    asked.is_complete ? null : element("p", { class: "warning" }, "It is too long to be shown completely: it can only be denied here."),
    element("p", { class: "muted" }, [asked.target && `on ${asked.target.replace(/:$/, "")}`, asked.reason, asked.why].filter(Boolean).join(" · "), " · for ", element("span", { "data-since": asked.since }, since(asked.since))),
    ...decisions);
}
