// Elements, times and texts. Texts are set as text: nothing that a program printed becomes HTML.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== "").map((child) => typeof child === "string" ? visible(child) : child));
  return made;
}

// Returns a text with characters that change the direction escaped: they could show another command than the one that ran.
export function visible(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (char) => `\\u${char.charCodeAt(0).toString(16)}`);
}

export function button(text, action, attributes = {}) {
  return element("button", { type: "button", onclick: action, ...attributes }, text);
}

// A field with its label, which stay on one line.
export function labelled(text, field) {
  return element("span", { class: "field" }, element("label", { for: field.id }, text), field);
}

export function announce(text) {
  const region = document.getElementById("announcements");
  region.replaceChildren(element("p", {}, text));
}

// Shows what went wrong where its place on the page is gone, until it is closed or another page is shown.
export function warn(text) {
  const notice = document.getElementById("notice");
  notice.replaceChildren(element("span", {}, text), button("Close", () => notice.replaceChildren()));
}

let ahead = 0; // seconds that the clock of this browser is ahead of the server's

export function setClock(serverTime) {
  ahead = Date.now() / 1000 - serverTime;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function since(time) {
  return time ? duration(Date.now() / 1000 - ahead - time) : "";
}

export function clock(time) {
  return time ? new Date(time * 1000).toLocaleString() : "";
}

const GUARD_MS = 700;
const MOVED_PIXELS = 4;
const places = new WeakMap();

// Lets parts of the page take no click for a moment after they appeared or moved: it was meant for what was there before.
// Keys need no guard: the focus stays with its button.
export function guardMoved() {
  for (const node of document.querySelectorAll(".guarded")) {
    const place = node.getBoundingClientRect().top + window.scrollY;
    const stayed = Math.abs(place - places.get(node)) < MOVED_PIXELS; // not if it is new
    if (!stayed) node.animate({ pointerEvents: ["none", "none"] }, GUARD_MS);
    places.set(node, place);
  }
}

// Replaces the children of a node, by key, without touching those that are unchanged: focus and selection survive.
export function reconcile(parent, entries, build) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(entries.map(([key]) => key));
  for (const [key, node] of known) if (!wanted.has(key)) node.remove(); // first, so that the others stay in place
  let place = parent.firstElementChild;
  for (const [key, value] of entries) {
    const text = JSON.stringify(value);
    let node = known.get(key);
    if (!node || node.dataset.value !== text) {
      const made = build(key, value);
      made.dataset.key = key;
      made.dataset.value = text;
      if (node) {
        const hadFocus = node.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
        if (node === place) place = made;
        node.replaceWith(made);
        if (hadFocus) made.querySelector(`[data-focus="${CSS.escape(hadFocus)}"]`)?.focus();
      }
      node = made;
    }
    if (node !== place) parent.insertBefore(node, place);
    else place = place.nextElementSibling;
  }
}
