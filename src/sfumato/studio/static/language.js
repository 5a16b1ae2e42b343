// The page in its user's language: finished English texts are said anew, as those of reports are (_util/catalogue.py).
// Names and labels that people gave stay as they are; what the catalogue lacks stays English.

const KEPT = "sfumato-language";
const KNOWN = ["en", "de", "fr"];
const asked = () => localStorage.getItem(KEPT) ?? navigator.language?.slice(0, 2);

/** The language that was chosen here, else that of the browser, else English. */
export const pageLanguage = () => (KNOWN.includes(asked()) ? asked() : "en");
export const chooseLanguage = (language) => localStorage.setItem(KEPT, language);

let words = null; // English texts, each with what is said for it
let patterns = [];
let marks = { decimal: ".", thousands: "," };
let mine = () => new Set();
const told = new Map();

const FEW = 9; // letters: a text that says less by itself takes single words alone
const NUMBER = /^[-\u2212]?[\d,]+(\.\d+)?$/;
const BARE = /^([\u00b1\u00d7] )?[-\u2212]?\d[\d,]*(\.\d+)?( %)?$/;
const SENTENCE = /(?<=[.!?])\s+(?=[A-Z\d\u201c'"])/;
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
const marked = (text) => text.replace(/[,.]/g, (m) => (m === "," ? marks.thousands : marks.decimal));

/** The marks of numbers; null in English. */
export const numberMarks = () => (words ? marks : null);

/** Take the words of a language. `given` says what people called things, which stays as it is. */
export function takeWords(found, given) {
  if (!found) return;
  ({ words, marks } = found);
  mine = given;
  const own = (text) => text.replace(/\{\w+\}/g, "");
  const letters = (text) => own(text).replace(/[^\p{L}]/gu, "").length;
  patterns = Object.keys(words).filter((t) => t.includes("{")).sort((a, b) => own(b).length - own(a).length).flatMap((text) => {
    const names = [...text.matchAll(/\{(\w+)\}/g)].map((m) => m[1]);
    if (!letters(text) || new Set(names).size < names.length) return [];
    const each = letters(text) < FEW ? "\\S+?" : "[\\s\\S]+?";
    const parts = text.split(/\{\w+\}/).map(escaped);
    return [[new RegExp(`^${parts.map((p, i) => p + (i < names.length ? `(?<${names[i]}>${each})` : "")).join("")}$`), text]];
  });
}

function whole(text) {
  if (mine().has(text)) return text;
  if (text in words) return words[text];
  if (BARE.test(text)) return marked(text);
  for (const [pattern, key] of patterns) {
    const found = pattern.exec(text)?.groups;
    if (!found) continue;
    const pairs = Object.entries(found);
    if (pairs.some(([k, v]) => SENTENCE.test(v) || (k.startsWith("n_") && !NUMBER.test(v)))) continue;
    const said = Object.fromEntries(pairs.map(([k, v]) => [k, k.startsWith("n_") || (/^(low|high)$/.test(k) && NUMBER.test(v)) ? marked(v) : whole(v) ?? v]));
    return words[key].replace(/\{(\w+)\}/g, (_, name) => said[name]);
  }
  return null;
}

/** A finished English text in the language of the page: as a whole, by a pattern, or sentence by sentence. */
export function spoken(text) {
  const plain = String(text).trim().replace(/^\u2190 | \u2192$/g, ""); // arrows between pages
  if (!words || !plain || mine().has(plain)) return String(text);
  if (!told.has(plain)) {
    told.set(plain, whole(plain) ?? plain.split(SENTENCE).map((one) => whole(one) ?? one).join(" "));
  }
  return String(text).replace(plain, () => told.get(plain));
}

const ENGLISH = /\b(the|of|and|is|are|were|for|with|by|its|it|than|to|from|be|has|have|which|that|this|they|no|errs?|noise)\b/i;
/** Whether a text stays English on a page that is not: names of strategies, remarks of a planner. */
export const staysEnglish = (text) => words !== null && ENGLISH.test(spoken(text));

/** What the page itself says, once its words are there. */
export function speakPage(language) {
  document.documentElement.lang = language;
  if (!words) return;
  document.title = document.title.split(" \u00b7 ").map(spoken).join(" \u00b7 ");
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!node.parentElement.closest("code, script, [translate=no]")) node.data = spoken(node.data);
  }
  for (const key of ["aria-label", "placeholder"]) {
    for (const place of document.querySelectorAll(`[${key}]`)) place.setAttribute(key, spoken(place.getAttribute(key)));
  }
}
