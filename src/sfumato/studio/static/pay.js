// The fourth page: the ledger, a name, one payment, and how far it is.

import { $, attempt, bar, budgetFields, budgetOf, complain, data, fill, h, post, say } from "./common.js";

let plan = null;
let fits = false;
let paying = false;

function ready() {
  $("pay").querySelector("button").disabled = !(plan && fits && !paying && $("name").value.trim());
}

function ledger(found) {
  $("make-ledger").hidden = found !== null;
  fits = found?.fits ?? false;
  if (found === null) { fill($("ledger")); return; }
  const left = Math.max(0, 1 - found.spent_share - (found.released ? 0 : found.plan_share ?? 0));
  const percent = (x) => `${(100 * x).toFixed(x && x < 0.1 ? 1 : 0)} %`;
  const made = found.released ? `This plan was released as ${found.released}.` : null;
  const planned = made ? 0 : (found.plan_share ?? 0);
  const label = `Spent ${percent(found.spent_share)}, this release ${percent(planned)}, left then ${percent(left)}`;
  fill($("ledger"),
    bar([[found.spent_share, "spent"], [planned, found.fits ? "this" : "over"]], label),
    h("ul", { className: "key" }, h("li", { className: "spent" }, `spent: ${percent(found.spent_share)}`),
      made ? null : h("li", { className: found.fits ? "this" : "over" }, `this release: ${percent(planned)}`), h("li", { className: "left" }, `left${made ? "" : " then"}: ${percent(left)}`)),
    h("dl", { className: "facts" }, h("dt", {}, "In all"), h("dd", {}, found.total), h("dt", {}, "Left now"), h("dd", {}, found.left),
      h("dt", {}, "This release"), h("dd", {}, found.paid ? `takes ${found.paid}` : found.quote),
      h("dt", {}, "Protects"), h("dd", {}, found.protects), h("dt", {}, "Table"), h("dd", {}, found.table)),
    made ? h("p", { className: "done" }, `${made} Under another name it would be measured, and paid for, anew.`) : null,
    found.fits || made ? null : h("p", { className: "problem" }, "This release does not fit into what is left. Choose a smaller budget under What if."),
    found.unreleased.length ? h("p", { className: "note" }, `Not stored: ${found.unreleased.join(", ")}. It was ${found.why_unreleased}.`) : null);
}

async function refresh() {
  const found = await attempt($("ledger"), () => post("account", { version: data.version }));
  if (found) ledger(found.ledger);
  ready();
}

function told(job) {
  if (job.state === "none") { fill($("job")); return; }
  const link = h("a", { href: `/read?name=${encodeURIComponent(job.name)}` }, `Read ${job.name}`);
  if (job.state === "paying") fill($("job"), h("progress", { "aria-label": "Paying and measuring" }), h("p", {}, `${job.name}: ${job.step}…`));
  else if (job.state === "done") fill($("job"), h("p", { className: "done" }, `${job.text} `, link));
  else fill($("job"), h("p", { className: "problem" }, job.text));
  $("job").dataset.state = job.state;
}

async function watch() {
  paying = true;
  ready();
  for (;;) {
    const job = await (await fetch("/job", { credentials: "same-origin" })).json();
    told(job);
    if (job.state !== "paying") break;
    await new Promise((go) => { setTimeout(go, 250); });
  }
  paying = false;
  await refresh();
}

$("pay").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (paying) return;
  paying = true;
  ready();
  const begun = await attempt($("job"), () => post("pay", { version: data.version, fingerprint: plan.fingerprint, name: $("name").value.trim() }));
  if (begun) { await watch(); return; }
  paying = false;
  await refresh();
});
$("name").addEventListener("input", ready);
$("kind").addEventListener("change", budgetFields);
$("make-ledger").addEventListener("submit", async (event) => {
  event.preventDefault();
  const budget = budgetOf($("kind").value, $("parameter").value, $("delta").value);
  const made = await attempt($("make-ledger"), () => post("ledger", { budget, table: data.spec.data?.table ?? null }));
  if (made) await refresh();
});

async function start() {
  if (data.broken || data.problem) { complain(data.broken || `Before anything can be paid: ${data.problem}`); fill($("promise")); return; }
  if (data.stream) complain("The spec declares a stream, whose tables come one by one: sfumato stream open pays for it. What is published of it can be read under Read.");
  const kept = data.spec.privacy;
  $("kind").value = "rho" in kept ? "zcdp" : "mu" in kept ? "gdp" : "delta" in kept ? "approx" : "pure";
  $("parameter").value = kept.epsilon ?? kept.rho ?? kept.mu;
  $("delta").value = kept.delta ?? "1e-6";
  budgetFields();
  say("Planning…");
  plan = await attempt($("promise"), () => post("plan", { version: data.version }));
  say("");
  if (!plan) return;
  fill($("promise"), plan.protects.map((text) => h("p", {}, text)));
  if (data.stream) plan = null;
  await refresh();
  told(data.job);
  if (data.job.state === "paying") await watch();
}
start();
