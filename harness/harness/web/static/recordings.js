// Recordings of panes, and their player: the same terminal as for live panes, fed by a clock.

import { get } from "./connection.js";
import { button, clock, duration, element } from "./dom.js";
import { PaneTerminal } from "./terminal.js";

const SPEEDS = [1, 2, 4, 8, 0.5];
const LONGEST_PAUSE = 2;

export function recordingsPage(content) {
  const body = element("tbody");
  const status = element("p", { role: "status" });
  content.append(element("h1", {}, "Recordings"), status,
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Recordings" },
      element("table", {}, element("caption", { class: "unseen" }, "Recordings"),
        element("thead", {}, element("tr", {}, ...["Recording", "Started", "Length", "Size"].map((name) => element("th", { scope: "col" }, name)))), body)));
  get("api/recordings").then(({ recordings }) => {
    status.textContent = recordings.length ? "" : "Nothing was recorded. Start harness with --record to keep each pane.";
    body.replaceChildren(...recordings.map((one) => {
      const link = element("a", { href: `#/recording/${encodeURIComponent(one.id)}` }, one.title);
      const cells = [["Recording", link], ["Started", clock(one.started)], ["Length", duration(one.seconds)], ["Size", `${Math.ceil(one.bytes / 1024)} KiB`]];
      return element("tr", {}, ...cells.map(([name, value]) => element("td", { "data-name": name }, value)));
    }));
  }, (error) => (status.textContent = error.message));
}

export function recordingPage(content, connection, id) {
  const host = element("div", { class: "pane" });
  const status = element("p", { role: "status", class: "muted" }, "Loading …");
  const marks = element("ol", { class: "marks" });
  const controls = element("div", { class: "buttons" });
  content.append(element("h1", {}, "Recording"), controls, status, host, element("h2", {}, "Jobs"), marks);
  const terminal = new PaneTerminal(host, { label: "Recording" });
  let player = null;
  get(`api/recordings/${encodeURIComponent(id)}`).then((recording) => {
    content.querySelector("h1").textContent = recording.title;
    if (!recording.is_complete) marks.before(element("p", { class: "warning" }, `Only the first part is shown here. All of it: harness recordings play ${id}`));
    player = new Player(terminal, recording, status);
    controls.replaceChildren(...player.controls());
    marks.replaceChildren(...player.marks.map(([time, label]) => element("li", {}, button(`${duration(time)}: ${label}`, () => player.seek(time), { class: "link" }))));
    player.play();
  }, (error) => (status.textContent = error.message));
  return () => {
    player?.pause();
    terminal.close();
  };
}

class Player {
  constructor(terminal, recording, status) {
    this.terminal = terminal;
    this.columns = recording.columns;
    this.rows = recording.rows;
    this.status = status;
    this.encoder = new TextEncoder();
    this.events = withoutPauses(recording.events);
    this.marks = this.events.filter(([, kind]) => kind === "m").map(([time, , label]) => [time, label]);
    this.length = this.events.at(-1)?.[0] ?? 0;
    this.speed = 1;
    this.rewind();
  }

  controls() {
    this.toggle = button("Pause", () => (this.timer ? this.pause() : this.play()), { class: "primary" });
    const faster = button("Speed 1×", () => {
      this.speed = SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length];
      faster.textContent = `Speed ${this.speed}×`;
    });
    this.range = element("input", { type: "range", min: 0, max: this.length, step: "any", "aria-label": "Position", oninput: () => this.seek(Number(this.range.value)) });
    return [this.toggle, faster, this.range];
  }

  rewind() {
    this.next = 0;
    this.position = 0;
    this.terminal.screen(this.columns, this.rows, new Uint8Array(), () => {});
  }

  play() {
    if (this.next >= this.events.length) this.rewind();
    let last = performance.now();
    this.timer = setInterval(() => {
      const now = performance.now();
      this.position += ((now - last) / 1000) * this.speed;
      last = now;
      this.draw();
      if (this.next >= this.events.length) this.pause();
    }, 33);
    this.toggle.textContent = "Pause";
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.toggle) this.toggle.textContent = "Play";
  }

  seek(time) {
    if (time < this.position) this.rewind();
    this.position = time;
    this.draw();
  }

  draw() {
    let text = "";
    for (; this.next < this.events.length && this.events[this.next][0] <= this.position; this.next++) {
      const [, kind, data] = this.events[this.next];
      if (kind === "o") text += data;
      if (kind !== "r") continue;
      this.write(text);
      text = "";
      const [columns, rows] = data.split("x").map(Number);
      this.terminal.terminal.resize(columns, rows);
      this.terminal.fit();
    }
    this.write(text);
    if (this.range) this.range.value = String(Math.min(this.position, this.length));
    this.status.textContent = `${duration(Math.min(this.position, this.length))} of ${duration(this.length)}`;
  }

  write(text) {
    if (text) this.terminal.output(this.encoder.encode(text), () => {});
  }
}

function withoutPauses(events) {
  let cut = 0;
  let before = 0;
  return events.map(([time, kind, data]) => {
    cut += Math.max(0, time - before - LONGEST_PAUSE);
    before = time;
    return [time - cut, kind, data];
  });
}
