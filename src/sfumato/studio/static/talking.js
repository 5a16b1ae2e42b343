// What goes on: the next question of a session, the next period of a stream. Both were paid for when they were opened.

import { $, attempt, change, complain, count, data, fill, h, listing, post, payment, setText } from "./common.js";
import { complete } from "./completion.js";

let standing = null;
const replies = [];

/** What the next question costs, and what is left; told before it is put. */
function left() {
  const s = standing;
  const lines = [`It costs no budget: all of it was paid at the opening (${s.guarantee}, ${s.protects}).`];
  if (s.exhausted) lines.push("No update is left. What was learned still answers, but nothing vouches for it any more.");
  else {
    lines.push(`An easy one is answered by what is known already, within ${count(s.easy)} records, and uses nothing up. A hard one is measured, within ${count(s.hard)}, and uses up one of ${count(s.updates_left)} updates left (of ${count(s.updates)}).${s.buys ? " The first also measures the number of records, which is paid for apart." : ""}`);
    lines.push(`Those bounds hold together with probability ${s.confidence} for ${count(s.guaranteed_questions)} more questions, as long as updates last.`);
  }
  fill($("left"), lines.map((text) => h("p", {}, text)));
  setText($("put").querySelector("button"), s.exhausted ? "Ask without a guarantee" : "Ask");
  Object.assign($("going").dataset, { updates: s.updates_left, asked: s.questions });
}

const HOW = { hypothesis: "easy: nothing used up", measured: "hard: one update used up", exhausted: "no guarantee", histogram: "summed" };

function session(found) {
  standing = found;
  $("going").hidden = false;
  left();
  complete($("next-question"), () => standing.attributes);
  $("put").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = $("next-question").value.trim();
    if (!question) return;
    const button = $("put").querySelector("button");
    button.disabled = true; // one question at a time: a second click would use up another update
    const given = await attempt($("replies"), () => post("put", { name: data.name, seen: standing.anchor, question }));
    button.disabled = false;
    if (!given) return;
    standing = given.standing;
    left();
    const a = given.answer;
    replies.unshift([a.question, a.value, a.low ?? "–", a.high ?? "–", HOW[a.how] + (a.guaranteed || a.how === "exhausted" ? "" : ", beyond the questions that bounds are for")]);
    fill($("replies"), h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Answers" },
      listing(["question", "answer", "from", "to", "how"], replies, { numeric: [false, true, true, true, false] })),
      h("p", { className: "quiet" }, "What every window asked stands under Audit."));
  });
}

async function watched() {
  for (;;) {
    const job = await payment();
    if (job.state === "paying") fill($("period-job"), h("progress", { "aria-label": "Publishing" }), h("p", {}, `${job.step}…`));
    else return job;
    await new Promise((go) => { setTimeout(go, 250); });
  }
}

function stream(found) {
  $("period").hidden = false;
  const form = $("append");
  form.hidden = found.periods_left === 0;
  fill($("periods-left"), h("p", {}, found.periods_left
    ? `${count(found.periods)} published, ${count(found.periods_left)} paid for and left. A period costs no budget, is read once, and cannot be taken back; its table is kept in the spec as the source.`
    : `All ${count(found.periods)} periods that were paid for are published.`));
  if (data.broken || data.problem) { form.hidden = true; fill($("period-job"), h("p", {}, "Mend the spec before another period is added: its source is the period's table.")); return; }
  $("period-table").value = data.spec.data?.source ?? "";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const source = $("period-table").value.trim();
    const period = $("period-label").value.trim();
    if (!source || !period) { complain("name the period's table and its label"); return; }
    const button = form.querySelector("button");
    button.disabled = true;
    if (source !== data.spec.data?.source) await change([{ place: ["data", "source"], value: source }]);
    const begun = data.spec.data?.source === source && await attempt($("period-job"), () => post("append", { version: data.version, name: data.name, seen: found.anchor, period }));
    const job = begun ? await watched() : null;
    button.disabled = false;
    if (!job) return;
    fill($("period-job"), h("p", { className: job.state === "done" ? "done" : "problem" }, job.text, " ",
      job.state === "done" ? h("a", { href: `/read?name=${encodeURIComponent(data.name)}` }, "See the totals") : null));
    $("period-job").dataset.state = job.state;
  });
}

export function going(found) {
  if (found.kind === "session") session(found);
  else stream(found);
}
