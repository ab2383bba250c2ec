// The connection to the server: sessions, requests and streams. It connects again by itself.

import { setClock } from "./dom.js";

const KEY = "harness-key";
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5000;
const ACK_INTERVAL = 50;
const MOST_PASTED = 100_000;
const TYPED_PIECES = /[^]{1,8000}/gu;
const HEADERS = { "content-type": "application/json" };

export async function logIn(token) {
  const answer = await fetch("api/login", { method: "POST", headers: HEADERS, body: JSON.stringify({ token }) });
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(document.error || `the login failed (${answer.status})`);
  localStorage.setItem(KEY, document.key);
}

export async function logOut() {
  await fetch("api/logout", { method: "POST", headers: authorized(HEADERS), body: "{}" });
  localStorage.removeItem(KEY);
}

function authorized(headers = {}) {
  return { ...headers, "x-harness-key": localStorage.getItem(KEY) || "" };
}

export async function get(path) {
  const answer = await fetch(path, { headers: authorized() });
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(document.error || `the server answered ${answer.status}`);
  return document;
}

export class Connection extends EventTarget {
  constructor() {
    super();
    this.sessions = new Map();
    this.isComplete = false;
    this.login = null;
    this.number = 0;
    this.replies = new Map();
    this.streams = new Map();
    this.seen = {};
    this.pause = FIRST_PAUSE;
  }

  get isOperator() {
    return this.login?.role === "operator";
  }

  report(state) {
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  connect() {
    const url = new URL("api/live", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", key: localStorage.getItem(KEY) || "" }));
    socket.onmessage = (event) => (typeof event.data === "string" ? this.take(JSON.parse(event.data)) : this.frame(event.data));
    socket.onclose = (event) => this.closed(event);
    this.socket = socket;
  }

  async closed(event) {
    this.ready = false;
    for (const reply of this.replies.values()) reply.reject(new Error("the connection was lost before the answer"));
    this.replies.clear();
    if (event.code === 4401 || (await this.isLoggedOut())) {
      this.report("logged out");
      return;
    }
    this.report("connecting");
    setTimeout(() => this.connect(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
  }

  async isLoggedOut() {
    try {
      return (await fetch("api/login", { headers: authorized() })).status === 401;
    } catch {
      return false; // the server does not answer
    }
  }

  take(message) {
    if (message.type === "welcome") {
      setClock(message.time);
      this.login = { name: message.name, role: message.role };
      this.ready = true;
      this.pause = FIRST_PAUSE;
      this.sessions.clear();
      for (const [number, stream] of this.streams) this.ask(number, stream);
      this.report("connected");
    } else if (message.type === "sessions") {
      for (const [key, row] of Object.entries(message.changed)) row === null ? this.sessions.delete(key) : this.sessions.set(key, row);
      this.isComplete = message.complete;
      this.dispatchEvent(new Event("sessions"));
    } else if (message.type === "reply") {
      this.reply(message);
    } else if (message.type === "stream_ended") {
      const stream = this.streams.get(message.stream);
      this.streams.delete(message.stream);
      stream?.ended(message.reason);
    }
  }

  reply(message) {
    const reply = this.replies.get(message.request);
    this.replies.delete(message.request);
    const problem = message.ok ? null : new Error([message.error, message.hint].filter(Boolean).join(": "));
    if (reply) problem ? reply.reject(problem) : reply.resolve(message.result);
    else if (problem && this.streams.has(message.request)) {
      const stream = this.streams.get(message.request);
      this.streams.delete(message.request);
      stream.ended(problem.message);
    } else if (problem) this.dispatchEvent(new CustomEvent("problem", { detail: problem.message }));
  }

  frame(data) {
    const view = new DataView(data);
    const number = view.getUint32(0);
    const size = data.byteLength - 4;
    const drawn = () => this.acknowledge(number, size);
    const stream = this.streams.get(number);
    if (!stream) return;
    const kind = view.getUint8(4);
    if (kind === 1) stream.screen(view.getUint16(5), view.getUint16(7), new Uint8Array(data, 9), drawn);
    else if (kind === 0) stream.output(new Uint8Array(data, 5), drawn);
    else {
      stream.item(JSON.parse(new TextDecoder().decode(new Uint8Array(data, 5))));
      drawn();
    }
  }

  // Tells the server what was drawn, so that it drops frames of a page that does not keep up.
  acknowledge(number, size) {
    this.seen[number] = (this.seen[number] || 0) + size;
    this.flush ??= setTimeout(() => {
      this.flush = null;
      this.send({ type: "ack", streams: this.seen });
      this.seen = {};
    }, ACK_INTERVAL);
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  request(type, session, action, parameters = {}) {
    if (!this.ready) return Promise.reject(new Error("the server does not answer; nothing was sent"));
    const request = ++this.number;
    this.send({ type, request, session, action, arguments: parameters });
    return new Promise((resolve, reject) => this.replies.set(request, { resolve, reject }));
  }

  act(session, action, parameters) {
    return this.request("act", session, action, parameters);
  }

  query(session, action) {
    return this.request("query", session, action);
  }

  // Types into a pane, in pieces that fit into a message: a paste may be long. An empty text shows that one is there.
  type(session, pane, text) {
    if (!this.ready) return;
    if (text.length > MOST_PASTED) {
      this.dispatchEvent(new CustomEvent("problem", { detail: `nothing was typed: the text has more than ${MOST_PASTED} characters` }));
      return;
    }
    for (const piece of text.match(TYPED_PIECES) || [""]) {
      this.send({ type: "act", request: 0, session, action: "type", arguments: { pane, text: piece } });
    }
  }

  // Opens a stream that survives a reconnect; returns a function that closes it.
  open(session, stream, about, handlers) {
    const number = ++this.number;
    const nothing = () => {};
    this.streams.set(number, { screen: nothing, output: nothing, item: nothing, ended: nothing, ...handlers, wanted: { session, stream, about } });
    if (this.ready) this.ask(number, this.streams.get(number));
    return () => {
      if (this.streams.delete(number)) this.send({ type: "close", request: number });
    };
  }

  ask(number, stream) {
    this.send({ type: "open", request: number, ...stream.wanted });
  }
}
