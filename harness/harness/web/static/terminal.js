// A pane drawn by xterm.js at the pane's own size, whatever the window is. What a program prints can draw, and nothing
// else: it sets no title and no clipboard, opens no link, changes no palette, and gets no answer from the browser.

import { Terminal } from "./vendor/xterm.mjs";

const LARGEST_FONT = 15;
const SMALLEST_FONT = 6; // a pane that is too wide for it is scrolled
const SMALLEST_TILE_FONT = 2;
const COLORS = {
  background: "#10161d", foreground: "#e6edf3", cursor: "#e6edf3",
  black: "#4a5562", red: "#ff7b72", green: "#6fdd8b", yellow: "#e3b341", blue: "#79b8ff", magenta: "#d2a8ff", cyan: "#56d4dd", white: "#c9d1d9",
  brightBlack: "#8b98a5", brightRed: "#ffa198", brightGreen: "#8ff0a4", brightYellow: "#f2cc60", brightBlue: "#a5d6ff", brightMagenta: "#e2c5ff", brightCyan: "#8be9f0", brightWhite: "#ffffff",
};
const SWALLOWED_OSC = [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 17, 19, 50, 52, 104, 105, 110, 111, 112, 117, 119, 133, 633, 777, 1337];
const SWALLOWED_CSI = [
  { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" },
  { final: "n" }, { prefix: "?", final: "n" },
  { final: "t" }, { prefix: ">", final: "t" },
  { prefix: ">", final: "q" }, { final: "x" }, { prefix: "?", final: "u" },
  { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" },
  { intermediates: "$", final: "w" }, { intermediates: "*", final: "y" },
];

allowStylesOfScripts();

export class PaneTerminal {
  constructor(host, { label, scrollback = 1000, onInput = null, isTile = false }) {
    this.host = host;
    this.smallestFont = isTile ? SMALLEST_TILE_FONT : SMALLEST_FONT;
    this.terminal = new Terminal({
      cols: 80,
      rows: 24,
      fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
      fontSize: LARGEST_FONT,
      scrollback,
      disableStdin: true,
      // Each key would start the blinking anew: that asks for a frame, and until it is drawn Chromium holds the echo back.
      cursorBlink: false,
      linkHandler: { activate() {} },
      windowOptions: {},
      theme: COLORS,
      minimumContrastRatio: 1,
    });
    this.makeInert();
    this.terminal.open(host);
    this.terminal.textarea?.setAttribute("aria-label", label);
    if (onInput) this.terminal.onData((text) => this.isTyping && onInput(text));
    this.isTyping = false;
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(host);
  }

  makeInert() {
    const parser = this.terminal.parser;
    for (const number of SWALLOWED_OSC) parser.registerOscHandler(number, () => true);
    for (const form of SWALLOWED_CSI) parser.registerCsiHandler(form, () => true);
    parser.registerDcsHandler({ intermediates: "$", final: "q" }, () => true);
    parser.registerDcsHandler({ intermediates: "+", final: "q" }, () => true);
    parser.registerEscHandler({ final: "Z" }, () => true);
  }

  allowTyping(allowed) {
    this.isTyping = allowed;
    this.terminal.options.disableStdin = !allowed;
    if (allowed) this.terminal.focus();
  }

  screen(columns, rows, bytes, drawn) {
    this.terminal.reset();
    this.terminal.resize(columns, rows);
    this.terminal.write(bytes, () => {
      this.fit();
      drawn();
    });
  }

  output(bytes, drawn) {
    this.terminal.write(bytes, drawn);
  }

  // Chooses the largest font with which all columns fit.
  fit() {
    const drawn = this.terminal.element?.querySelector(".xterm-screen");
    if (!drawn || !drawn.offsetWidth || !this.host.clientWidth) return;
    const size = this.terminal.options.fontSize;
    const wanted = Math.floor(((this.host.clientWidth - 2) / drawn.offsetWidth) * size * 4) / 4;
    const chosen = Math.min(LARGEST_FONT, Math.max(this.smallestFont, wanted));
    if (chosen !== size) this.terminal.options.fontSize = chosen;
  }

  close() {
    this.watcher.disconnect();
    this.terminal.dispose();
  }
}

// The content policy allows no inline styles. xterm.js makes style elements and style attributes; what scripts set by
// the object model is allowed, so both are set that way.
function allowStylesOfScripts() {
  const create = Document.prototype.createElement;
  document.createElement = function (name, ...rest) {
    if (name === "style") return sheetElement(create.call(document, "data"));
    const made = create.call(document, name, ...rest);
    if (name === "span") made.setAttribute = setAttribute;
    return made;
  };
}

function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

function sheetElement(node) {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  node.hidden = true;
  Object.defineProperty(node, "textContent", { set: (text) => sheet.replaceSync(text), get: () => "" });
  node.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    Element.prototype.remove.call(node);
  };
  return node;
}
