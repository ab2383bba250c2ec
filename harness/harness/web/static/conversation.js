// The agent's conversation: turns, answers, calls with their results folded.

import { element, visible } from "./dom.js";

const MOST_ENTRIES = 600;

export function conversation(column, connection, key) {
  const log = element("div", { class: "conversation", role: "log", tabindex: "0", "aria-label": "Conversation" });
  column.append(element("section", {}, element("h2", {}, "Conversation"), log));
  let calls = new Map();
  let answer = null;
  let isStored = false; // whether the items are those of the stored conversation

  function add(node) {
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 40;
    log.append(node);
    while (log.children.length > MOST_ENTRIES) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
    return node;
  }

  function call(given, isChanged = false) {
    const found = calls.get(given.call_id) ?? storedCall(given, isChanged) ?? addedCall(given);
    calls.set(given.call_id, found);
    return found;
  }

  // The stored conversation names a call as the model's provider does, and the events by another ID: they are the same if
  // the stored one waits for its result and has the same arguments, or is the only one and an operator may have changed it.
  function storedCall(given, isChanged) {
    const waiting = [...calls.values()].filter((one) => one.isStored && !one.isDone && one.name === given.name);
    return waiting.find((one) => one.text === pretty(given.arguments)) ?? (isChanged && waiting.length === 1 ? waiting[0] : undefined);
  }

  function addedCall(given) {
    const state = element("span", { class: "muted" }, " …");
    const result = element("pre", { tabindex: "0" });
    add(element("details", { class: "call" },
      element("summary", {}, element("code", {}, `${given.name} ${subject(given.arguments)}`), state),
      element("pre", { tabindex: "0" }, pretty(given.arguments)), result));
    return { state, result, name: given.name, text: pretty(given.arguments), isStored, isDone: false };
  }

  const takers = {
    history: ({ items }) => {
      log.replaceChildren();
      calls = new Map();
      answer = null;
      isStored = true;
      for (const item of items) take(item);
      isStored = false;
    },
    turn_started: ({ prompt }) => {
      answer = null;
      add(element("p", { class: "prompt" }, prompt));
    },
    answer_delta: ({ text }) => {
      answer ??= add(element("p", { class: "answer" }));
      answer.append(visible(text));
    },
    answer_completed: ({ text }) => {
      if (answer) answer.textContent = visible(text);
      else if (text) add(element("p", { class: "answer" }, text));
      answer = null;
    },
    tool_call_requested: ({ call: given }) => call(given),
    tool_call_progress: ({ call_id: id, text }) => {
      const found = calls.get(id);
      if (found && found.result.textContent.length < 20000) found.result.append(visible(text));
    },
    tool_call_completed: ({ outcome }) => {
      const found = call(outcome.call, true);
      const { state, result } = found;
      found.isDone = true;
      const end = outcome.status ? " done" : "";  // the stored conversation does not say how a call ended
      state.textContent = outcome.is_error ? ` failed${outcome.status ? `: ${outcome.status}` : ""}` : end;
      state.className = outcome.is_error ? "problem" : "muted";
      result.textContent = visible(outcome.text);
    },
    turn_completed: ({ failure }) => failure && add(element("p", { class: "problem" }, failure)),
    permission_replied: ({ allowed, by }) => add(element("p", { class: "muted" }, `${allowed ? "approved" : "denied"} by ${by}`)),
    agent_paused: ({ by, reason }) => add(element("p", { class: "muted" }, `paused by ${by}${reason ? `: ${reason}` : ""}`)),
    agent_resumed: ({ by }) => add(element("p", { class: "muted" }, `resumed by ${by}`)),
    notice: ({ text }) => add(element("p", { class: "muted" }, text)),
  };

  function take(item) {
    takers[item.type]?.(item);
  }

  const stop = connection.open(key, "events", "", { item: take, ended: (reason) => reason && add(element("p", { class: "problem" }, reason)) });
  return { close: stop };
}

function subject(given) {
  const values = typeof given === "string" ? parsed(given) : given || {};
  const text = values.command ?? values.path ?? values.url ?? Object.values(values).find((value) => typeof value === "string") ?? "";
  return String(text).split("\n")[0].slice(0, 120);
}

function parsed(text) {
  try {
    return JSON.parse(text) || {};
  } catch {
    return {};
  }
}

function pretty(given) {
  const values = typeof given === "string" ? parsed(given) : given || {};
  return Object.entries(values).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");
}
