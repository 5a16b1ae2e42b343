// The fourth page: what is paid for, the ledger, a name, one payment, and how far it is.

import { $, attempt, bar, budgetFields, budgetOf, change, complain, data, described, fill, h, post, say, setText, payment, toTheLastDigit } from "./common.js";

let plan = null;
let fits = false;
let paying = false;

const NAMES = { release: "this release", pmw: "this session", histogram: "this session", stream: "this stream" };
const what = () => document.querySelector("input[name=what]:checked").value;
const named = () => NAMES[data.stream ? "stream" : what()];
const capital = (text) => text[0].toUpperCase() + text.slice(1);

function ready() {
  $("pay").querySelector("button").disabled = !(plan && fits && !paying && $("name").value.trim());
}

function ledger(found) {
  $("make-ledger").hidden = found !== null;
  fits = found?.fits ?? false;
  const it = named();
  if (found === null) { fill($("ledger")); return; }
  const left = Math.max(0, 1 - found.spent_share - (found.released ? 0 : found.plan_share ?? 0));
  const percent = (x) => `${(100 * x).toFixed(x && x < 0.1 ? 1 : 0)} %`;
  const made = found.released ? `This plan was ${data.stream || what() === "pmw" ? "opened" : "released"} as ${found.released}.` : null;
  const planned = made ? 0 : (found.plan_share ?? 0);
  const label = `Spent ${percent(found.spent_share)}, ${it} ${percent(planned)}, left then ${percent(left)}`;
  fill($("ledger"),
    bar([[found.spent_share, "spent"], [planned, found.fits ? "this" : "over"]], label),
    h("ul", { className: "key" }, h("li", { className: "spent" }, "spent", ": ", percent(found.spent_share)),
      made ? null : h("li", { className: found.fits ? "this" : "over" }, it, ": ", percent(planned)), h("li", { className: "left" }, made ? "left" : "left then", ": ", percent(left))),
    h("p", {}, `${capital(it)} ${found.paid ? `takes ${found.paid}` : `: ${found.quote}`}.`),
    described({ ...found.described, blocks: found.described.blocks.slice(0, 1) }), toTheLastDigit(found.exact),
    made ? h("p", { className: "done" }, `${made} Under another name it would be paid for anew.`) : null,
    found.fits || made ? null : h("p", { className: "problem" }, `${capital(it)} does not fit into what is left. Choose a smaller budget under What if.`));
}

async function refresh() {
  const found = await attempt($("ledger"), () => post("account", { version: data.version, what: what() }));
  if (found) ledger(found.ledger);
  ready();
}

function told(job) {
  if (job.state === "none") { fill($("job")); return; }
  const link = h("a", { href: `/read?name=${encodeURIComponent(job.name)}` }, /opened/i.test(job.text) ? `Go on with ${job.name}` : `Read ${job.name}`);
  if (job.state === "paying") fill($("job"), h("progress", { "aria-label": "Paying and measuring" }), h("p", {}, `${job.name}: ${job.step}…`));
  else if (job.state === "done") fill($("job"), h("p", { className: "done" }, `${job.text} `, link));
  else fill($("job"), h("p", { className: "problem" }, job.text));
  $("job").dataset.state = job.state;
}

async function watch() {
  paying = true;
  ready();
  for (;;) {
    const job = await payment();
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
  const begun = await attempt($("job"), () => post("pay", { version: data.version, what: what(), fingerprint: plan.fingerprint, name: $("name").value.trim() }));
  if (begun) { await watch(); return; }
  const refused = $("problem").textContent;
  paying = false;
  await refresh();
  complain($("problem").textContent || refused);
});
$("name").addEventListener("input", ready);
$("kind").addEventListener("change", budgetFields);
$("make-ledger").addEventListener("submit", async (event) => {
  event.preventDefault();
  const budget = budgetOf($("kind").value, $("parameter").value, $("delta").value);
  const made = await attempt($("make-ledger"), () => post("ledger", { budget, table: data.spec.data?.table ?? null }));
  if (made) await refresh();
});

/** What the choice promises; a session says so before it is opened, and what would err less. */
function promised() {
  if (!plan) { fill($("promise")); return; }
  const session = what() === "pmw" && !data.stream;
  fill($("promise"), described(plan.described, undefined, true), session ?
    h("p", {}, "All of it is paid now. No question costs budget later; what a hard one uses up is one of the updates above.") : null);
}

async function replan() {
  plan = null;
  ready();
  const one = what() === "pmw";
  setText($("pay").querySelector("button"), one ? "Pay and open" : "Pay and release");
  $("records-field").hidden = !one;
  if (one && !$("ledger").firstChild) {
    fill($("promise"), h("p", {}, "A session is planned in the currency of the ledger that pays: make the ledger first."));
    return;
  }
  if (one && !data.spec.plan?.records) {
    fill($("promise"), h("p", {}, "Say above how many records there are: how near a first guess has to be follows from it."));
    return;
  }
  say("Planning…");
  plan = await attempt($("promise"), () => post("plan", { version: data.version, what: what() }));
  say("");
  promised();
  if (plan) await refresh();
}

async function start() {
  if (data.broken || data.problem) { complain(data.broken || `Before anything can be paid: ${data.problem}`); fill($("promise")); return; }
  if (data.stream) {
    $("choice").hidden = true;
    setText($("pay").querySelector("button"), "Pay and open");
    say("The spec declares a stream: all its periods are paid for now, and their tables are added one by one under Read.");
  }
  const kept = data.spec.privacy;
  $("kind").value = "rho" in kept ? "zcdp" : "mu" in kept ? "gdp" : "delta" in kept ? "approx" : "pure";
  const proposed = data.proposal;
  $("parameter").value = proposed.epsilon ?? proposed.rho ?? proposed.mu ?? "1";
  $("delta").value = proposed.delta ?? "1e-6";
  fill($("proposed"), proposed.why ?? "");
  $("records").value = data.spec.plan?.records ?? "";
  if (kept.neighbours === "replace-one") setText($("records-name"), "The number of records, which is public here and checked");
  budgetFields();
  for (const way of document.querySelectorAll("input[name=what]")) way.addEventListener("change", replan);
  $("records").addEventListener("change", async () => {
    const records = Number($("records").value.replaceAll(",", ""));
    if (!Number.isInteger(records) || records < 1) { complain("a number of records is a whole number from 1 up"); return; }
    await change([{ place: ["plan", "records"], value: records }]);
    await replan();
  });
  $("choice").dataset.ready = "yes";
  const told0 = $("status").textContent;
  if (!data.stream) say("Planning…");
  plan = await attempt($("promise"), () => post("plan", { version: data.version, what: what() }));
  say(data.stream ? told0 : "");
  if (!plan) return;
  promised();
  await refresh();
  told(data.job);
  if (data.job.state === "paying") await watch();
}
start();
