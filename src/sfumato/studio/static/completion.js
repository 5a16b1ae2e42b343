// Completion of conditions: names of attributes, and labels after a comparison. A combobox as ARIA describes it.

import { h } from "./common.js";

const quoted = (label) => `'${label.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
const named = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `\`${name}\``);

/** What could stand where the caret is: [text, start of the word that it replaces]. */
function offers(text, attributes) {
  const compared = /(`[^`]+`|[A-Za-z_]\w*)\s*(?:==|!=|in\s*\((?:[^()]*,)?)\s*('?[^'()=,]*)$/.exec(text);
  if (compared) {
    const name = compared[1].replaceAll("`", "");
    const typed = compared[2].replace(/^'/, "").toLowerCase();
    const found = attributes.find((a) => a.name === name);
    if (found) {
      const start = text.length - compared[2].length;
      return found.labels.filter((l) => l.toLowerCase().includes(typed)).map((l) => [quoted(l), start]);
    }
  }
  const word = /(`[^`]*|[A-Za-z_]\w*)$/.exec(text);
  const typed = word ? word[0].replace("`", "").toLowerCase() : "";
  if (!word && !/(^|[\s(])$/.test(text)) return [];
  const start = text.length - (word ? word[0].length : 0);
  return attributes.filter((a) => a.name.toLowerCase().includes(typed)).map((a) => [named(a.name), start]);
}

let made = 0;
export function complete(input, attributes) {
  made += 1;
  const box = h("ul", { role: "listbox", id: `offers-${made}`, className: "offers", hidden: true, "aria-label": "Offered" });
  input.insertAdjacentElement("afterend", box);
  for (const [k, v] of Object.entries({
    role: "combobox", "aria-autocomplete": "list", "aria-controls": box.id, "aria-expanded": "false",
  })) input.setAttribute(k, v);
  let found = [];
  let at = -1;
  const close = () => {
    box.hidden = true; at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (i) => {
    const [text, start] = found[i];
    const caret = input.selectionStart;
    input.value = input.value.slice(0, start) + text + " " + input.value.slice(caret).trimStart();
    input.setSelectionRange(start + text.length + 1, start + text.length + 1);
    close();
    input.focus();
  };
  const show = () => {
    found = offers(input.value.slice(0, input.selectionStart), attributes()).slice(0, 8);
    box.replaceChildren(...found.map(([text], i) => h("li", {
      role: "option", id: `${box.id}-${i}`, "aria-selected": String(i === at),
      onmousedown: (event) => { event.preventDefault(); take(i); },
    }, text)));
    box.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(!box.hidden));
    if (at >= 0 && at < found.length) input.setAttribute("aria-activedescendant", `${box.id}-${at}`);
  };
  input.addEventListener("input", () => { at = -1; show(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (box.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      show();
    } else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) { event.preventDefault(); take(at); }
  });
}
