// The output of a job, a command or a host, as it comes.

import { element } from "./dom.js";

const MOST_OUTPUT = 1_000_000;

export function outputOf(connection, key) {
  const node = element("div");
  let stop = () => {};

  function show(about, title) {
    stop();
    const text = element("pre", { class: "output", tabindex: "0", "aria-label": title });
    const end = element("p", { class: "muted", role: "status" }, "…");
    node.replaceChildren(element("h3", {}, title), text, end);
    stop = connection.open(key, "tail", about, {
      item: (item) => append(text, item),
      ended: (reason) => (end.textContent = reason || "complete"),
    });
  }

  return { node, show, close: () => stop() };
}

function append(node, item) {
  const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - 8;
  node.append(element("span", { class: item.stream === "stderr" ? "stderr" : "" }, item.text ?? ""));
  while (node.textContent.length > MOST_OUTPUT) node.firstChild.remove();
  if (atEnd) node.scrollTop = node.scrollHeight;
}
