// The third page: errors before data. Budgets scale what was planned; weights plan anew, the old figures greyed.

import { $, attempt, budgetFields, budgetOf, change, complain, count, data, fill, h, listing, number, options, post, refuse, say, setText, size, spoken } from "./common.js";
import { doubtOfCondition, marksOf, readNumber } from "./notation.js";

/** The number of a field, as the table writes numbers. */
const typed = (id) => Number(readNumber($(id).value, marksOf(data.spec.data)) ?? $(id).value.replace(",", "."));
let plan = null;
let factor = 1;
const weights = new Map(); // part: weight as it was changed here
const NAMES = { approx: "epsilon", pure: "epsilon", zcdp: "rho", gdp: "mu" };

const entry = (part) => (data.spec.queries || []).findIndex((q) => q.name === part);
const weightOf = (part) => weights.get(part) ?? Number(data.spec.queries[entry(part)]?.weight ?? 1);
const changes = () => [...weights].map(([part, w]) => ({ place: ["queries", entry(part), "weight"], value: number(w) }));
const budget = () => budgetOf($("kind").value, $("parameter").value, $("delta").value);
const kindOf = (p) => ("rho" in p ? "zcdp" : "mu" in p ? "gdp" : "delta" in p ? "approx" : "pure");

function asInSpec() {
  const kept = data.spec.privacy || {};
  $("kind").value = kindOf(kept);
  $("parameter").value = kept[NAMES[$("kind").value]] ?? "1";
  $("delta").value = kept.delta ?? "1e-6";
  budgetFields();
  slideTo();
}

function slideTo() {
  const value = Math.log10(Number($("parameter").value));
  if (Number.isFinite(value)) $("budget").value = Math.round(100 * value);
  $("budget").setAttribute("aria-valuetext", $("parameter").value);
}

const touched = () => JSON.stringify(budget()) !== JSON.stringify(budgetOf(kindOf(data.spec.privacy), String(data.spec.privacy[NAMES[kindOf(data.spec.privacy)]]), String(data.spec.privacy.delta ?? "")));

let asking = false;
let again = false;
/** Ask for the factor of the budget on the slider; while one request is under way, the last wish waits. */
async function scale() {
  for (const id of ["keep-budget", "undo"]) $(id).disabled = !touched();
  if (!plan) return;
  if (asking) { again = true; return; }
  asking = true;
  const began = performance.now();
  const found = await attempt(null, () => post("scale", { version: data.version, budget: budget(), changes: changes() }));
  if (found) {
    factor = found.factor;
    promise(found);
    figures();
    $("lines").dataset.took = String(performance.now() - began);
  }
  asking = false;
  if (again) { again = false; scale(); }
}

function promise(found) {
  fill($("promise"), h("p", {}, h("strong", {}, found.statement), ": ", found.guarantee, "."),
    found.attack ? h("p", {}, `Whoever guesses about one person would be right at most ${found.attack} of the time, where 50 % is guessing.`) : null);
}

function weighing(line, first) {
  if (!first || entry(line.key) < 0) return "";
  const now = weightOf(line.key);
  const shown = h("output", {}, `× ${size(now)}`);
  const slider = h("input", {
    type: "range", min: -6, max: 10, step: 1, value: Math.round(Math.log2(now)), "aria-label": `Weight of ${line.part}`, "aria-valuetext": `times ${now}`,
    oninput: (event) => { shown.textContent = `× ${size(2 ** Number(event.target.value))}`; },
    onchange: (event) => { weights.set(line.key, 2 ** Number(event.target.value)); replan(`weight-${line.key}`); },
    id: `weight-${line.key}`,
  });
  return h("span", { className: "weight" }, slider, shown);
}

const ordered = (order) => (order === 0 ? "number of records" : order === 1 ? "of one attribute" : `of ${order} attributes`);

const lineName = (l) => (l.what ? `${l.part}: ${spoken(l.what)}` : l.part);

const SIZES = [100, 1000, 10_000]; // records of a group, for what its mean errs
/** What means of measures err: it follows from a group's size, and from how far the mean is from the middle of the range. */
function meanErrors() {
  const found = plan.means ?? [];
  $("means-section").hidden = !found.length;
  const range = (m, n) => `± ${size((m.least * factor) / n)} to ${size((m.most * factor) / n)}`;
  fill($("means"), listing(["mean of", "in", ...SIZES.map((n) => `a group of ${count(n)}`)], found.map((m) => [m.name, m.part, ...SIZES.map((n) => range(m, n))]),
    { caption: `The first is for a mean of ${[...new Set(found.map((m) => `${m.name} near ${m.about}`))].join(", ")}, the second for one at an end of the range`, numeric: [false, false, ...SIZES.map(() => true)] }));
}

function figures() {
  const seen = new Set();
  const rows = plan.lines.map((l) => {
    const first = !seen.has(l.key);
    seen.add(l.key);
    return [lineName(l), ordered(l.order), count(l.queries), `± ${size(l.margin * factor)}`, size(l.rmse * factor), size(l.alone === null ? null : l.alone * factor),
      l.fifth === null ? "–" : count(Math.ceil(l.fifth * factor)), weighing(l, first)];
  });
  const units = [...new Set(plan.lines.map((l) => l.unit))];
  const made = listing(["part", "tables", "queries", "margin", "typical error", "alone", "known to a fifth", "weight"], rows,
    { caption: `In ${units.join(" and ")}`, numeric: [false, false, true, true, true, true, true, false] });
  const focused = document.activeElement?.id;
  fill($("lines"), made);
  if (focused?.startsWith("weight-")) $(focused)?.focus();
  const above = plan.above === null ? "for this noise no bound is known" : `${(100 * plan.above).toFixed(1)} % above the least that Gaussian noise can err, as is proved`;
  setText($("summary"), plan.mechanism ? `${plan.mechanism}: ${count(plan.queries)} queries, with a typical error of ${size(Number(plan.typical.replaceAll(",", "")) * factor)} ${plan.unit} (${plan.alike}); ${above}.${factor === 1 ? "" : " Scaled to the budget above."}` : plan.note);
  meanErrors();
  every();
  people();
}

/** Of how many people the margins of the line that was asked about are a tenth and a hundredth, with the budget above. */
function people() {
  const line = plan?.lines[Number($("line").value)];
  const place = $("people");
  if (!place || !line) return;
  const found = [0.1, 0.01].map((share) => `${count(Math.ceil((line.margin * factor) / share))} people for ${100 * share} %`).join(", ");
  setText(place, ` With the budget above, these margins are a share of all records: ${found}.`);
}

const scaledBy = (value) => (value === null ? "–" : value === undefined ? "…" : size(value * factor));
function every() {
  const wanted = $("filter").value.toLowerCase();
  const found = plan.tables.filter((t) => t.name.toLowerCase().includes(wanted));
  const rows = found.slice(0, 400).map((t) => [t.unit === "records" ? t.name : `${t.name}, in ${t.unit}`, t.part, count(t.cells), `± ${size(t.margin === null ? null : t.margin * factor)}`, scaledBy(t.rmse), scaledBy(t.alone), t.fifth === null ? "–" : count(Math.ceil(t.fifth * factor))]);
  fill($("every"), listing(["table", "part", "cells", "margin", "typical error", "alone", "known to a fifth"], rows,
    { caption: `${count(found.length)} of ${count(plan.tables.length)}`, numeric: [false, false, true, true, true, true, true] }));
}

let working = false;
/** What each table that is shown would have alone: some at a time, as long as they are looked at. */
async function alone() {
  if (working || !plan?.scales || data.stream || !$("every").closest("details").open) return;
  working = true;
  const of = plan;
  for (;;) {
    const wanted = $("filter").value.toLowerCase();
    const left = of.tables.map((t, i) => [t, i]).filter(([t]) => t.name.toLowerCase().includes(wanted)).slice(0, 400).filter(([t]) => t.alone === undefined).map(([, i]) => i);
    if (!left.length || plan !== of) break;
    const found = await attempt(null, () => post("alone", { version: data.version, tables: left }));
    if (!found) break;
    for (const [i, error] of found.alone) of.tables[i].alone = error;
    if (plan === of) every();
  }
  working = false;
  if (plan !== of) alone();
}

async function replan() {
  $("lines").classList.add("old");
  say("Planning…");
  const began = performance.now();
  const found = await attempt($("lines"), () => post("plan", { version: data.version, changes: changes() }));
  $("lines").classList.remove("old");
  say("");
  if (!found) return;
  plan = found;
  factor = 1;
  $("lines").dataset.planned = String(performance.now() - began);
  $("keep-weights").disabled = weights.size === 0;
  options($("line"), plan.lines.map((l, i) => [String(i), `${lineName(l)}, ${ordered(l.order)}`]), $("line").value || "0");
  $("budget").disabled = !plan.scales;
  promise(found);
  figures();
  if (plan.scales) await scale();
  alone();
}

$("budget").addEventListener("input", () => {
  $("parameter").value = String(Number((10 ** (Number($("budget").value) / 100)).toPrecision(3)));
  $("budget").setAttribute("aria-valuetext", $("parameter").value);
  scale();
});
for (const id of ["parameter", "delta"]) $(id).addEventListener("change", () => { slideTo(); scale(); });
$("kind").addEventListener("change", () => { budgetFields(); scale(); });
$("undo").addEventListener("click", () => { asInSpec(); scale(); });
$("keep-budget").addEventListener("click", async () => {
  const asked = budget();
  // where labels are to be found, half of delta stays set aside
  if (asked.delta && data.spec.privacy.thresholds !== undefined) asked.thresholds = String(Number(asked.delta) / 2);
  const gone = ["epsilon", "delta", "thresholds", "rho", "mu"].filter((k) => k in data.spec.privacy && !(k in asked));
  await change([...gone.map((k) => ({ place: ["privacy", k], value: null })), ...Object.entries(asked).map(([k, v]) => ({ place: ["privacy", k], value: number(v) }))]);
  for (const id of ["keep-budget", "undo"]) $(id).disabled = true;
  if (data.problem) complain(data.problem); else await replan();
});
$("keep-weights").addEventListener("click", async () => {
  await change(changes());
  weights.clear();
  $("keep-weights").disabled = true;
  await replan();
});
$("wanted").addEventListener("submit", async (event) => {
  event.preventDefault();
  const line = plan.lines[Number($("line").value)];
  const margin = typed("margin");
  const found = await attempt($("takes"), () => post("margin", { version: data.version, changes: changes(), margin, part: line.key, order: line.order, unit: line.unit }));
  if (!found) return;
  fill($("takes"), `A budget of ${found.statement}. `, tryAbove(found.budget), h("span", { id: "people" }));
  people();
});
const tryAbove = (wanted) => h("button", { type: "button", className: "small", onclick: () => {
  $("kind").value = wanted.kind; $("parameter").value = wanted.parameter; if (wanted.delta) $("delta").value = wanted.delta;
  budgetFields(); slideTo(); scale();
} }, "Try it above");
$("guess").addEventListener("submit", async (event) => {
  event.preventDefault();
  const doubt = doubtOfCondition($("condition").value, marksOf(data.spec.data));
  refuse($("condition"), doubt);
  if (doubt) return;
  const [size, within] = ["size", "within"].map(typed);
  const found = await attempt($("known"), () => post("guess", { version: data.version, changes: changes(), budget: budget(), condition: $("condition").value, count: size, within }));
  if (found) fill($("known"), found.text, " ", tryAbove(found.budget));
});
$("line").addEventListener("change", () => fill($("takes"))); // what stands there is of another line
$("filter").addEventListener("input", () => { if (plan) { every(); alone(); } });
$("every").closest("details").addEventListener("toggle", alone);

if (data.broken || data.problem) complain(data.broken || `Before anything can be planned: ${data.problem}`);
if (data.spec?.privacy) asInSpec();
if (!data.problem && !data.broken) replan();
