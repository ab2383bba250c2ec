// Starts the dashboard: logs in with the token of the URL, connects, and shows the page that the fragment names.

import { Connection, logIn, logOut } from "./connection.js";
import { announce, button, element, guardMoved } from "./dom.js";
import { auditPage } from "./audit.js";
import { overviewPage } from "./overview.js";
import { panesPage } from "./panes.js";
import { recordingPage, recordingsPage } from "./recordings.js";
import { sessionPage } from "./session.js";

const PAGES = { "": overviewPage, panes: panesPage, audit: auditPage, recordings: recordingsPage, recording: recordingPage, session: sessionPage };
const connection = new Connection();
const content = document.getElementById("content");
let leave = () => {};
let shown = null;

function show() {
  const [, name = "", ...rest] = location.hash.split("/").map(decodeURIComponent);
  const wanted = JSON.stringify([name, rest]);
  if (wanted === shown) return;
  shown = wanted;
  leave();
  for (const link of document.querySelectorAll("nav a")) {
    link.dataset.page === name ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  content.replaceChildren();
  document.getElementById("notice").replaceChildren();
  const page = PAGES[name] || overviewPage;
  leave = page(content, connection, ...rest) || (() => {});
  document.title = `${content.querySelector("h1")?.textContent || "harness"} – harness`;
}

function loggedOut(reason) {
  leave();
  leave = () => {};
  shown = null;
  document.getElementById("who").replaceChildren();
  content.replaceChildren(
    element("h1", {}, "Log in"),
    element("p", {}, reason),
    element("p", {}, "Open the link that ", element("code", {}, "harness web"), " printed. It works once; ",
      element("code", {}, "harness web invite NAME"), " prints another."),
  );
}

function noteState(state) {
  const note = document.getElementById("connection");
  note.textContent = state === "connecting" ? "Not connected; connecting again …" : "";
  note.className = state === "connecting" ? "warning" : "";
  if (state === "logged out") loggedOut("You are not logged in here.");
  if (state === "connected") {
    const { name, role } = connection.login;
    document.getElementById("who").replaceChildren(`${name} (${role}) `, button("Log out", async () => {
      await logOut();
      connection.socket.close();
    }));
    show();
  }
}

function announceApprovals() {
  const waiting = new Set();
  for (const row of connection.sessions.values()) {
    for (const one of row.approvals) {
      waiting.add(one.request_id);
      if (!known.has(one.request_id)) announce(`A call waits for approval on ${row.target}: ${one.text}`);
    }
  }
  known = waiting;
}

let known = new Set();

async function start() {
  connection.addEventListener("state", (event) => noteState(event.detail));
  connection.addEventListener("sessions", announceApprovals);
  new MutationObserver(guardMoved).observe(document.body, { childList: true, subtree: true }); // before it is drawn
  window.addEventListener("hashchange", () => connection.login && show());
  const token = location.hash.match(/^#token=([\w-]+)$/)?.[1];
  if (token) {
    history.replaceState(null, "", location.pathname);
    try {
      await logIn(token);
    } catch (error) {
      loggedOut(error.message);
      return;
    }
  }
  connection.connect();
}

start();
