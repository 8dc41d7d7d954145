"use strict";
// Reads /live.json every second while the page is visible. Texts are set as text, never as markup.
const EVERY = 1000;
const BAD = new Set(["failed", "error", "blocked"]);
const WARN = new Set(["repaired", "rejected", "unjudged"]);
const byId = (id) => document.getElementById(id);
let lastRead = null;
let timer = null;
let isReading = false;

function tone(verdict) {
  return BAD.has(verdict) ? "bad" : WARN.has(verdict) ? "warn" : "good";
}

function fill(table, rows) {
  const shown = JSON.stringify(rows);
  if (table.shown === shown) return; // a selection in it stays
  table.shown = shown;
  const body = document.createElement("tbody");
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const cells of rows) {
    const row = body.insertRow();
    for (const [text, kind] of cells) {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.dataset.head = heads[cell.cellIndex];
      if (kind) cell.className = kind;
    }
  }
  table.tBodies[0].replaceWith(body);
}

function showFigures(state) {
  const MiB = (bytes) => `${(bytes / 1048576).toFixed(1)} MiB`;
  const upstream = state.upstream_ready;
  const figures = [
    ["Judge", state.judge_up ? "running" : "down", state.judge_up ? "good" : "bad"],
    ["Upstream", upstream === null ? "not probed" : upstream ? "ready" : "unreachable", upstream === false ? "bad" : upstream ? "good" : ""],
    ["Open exchanges", state.open],
    ["Buffered responses", state.buffered],
    ["Queued for the judge", state.queued],
    ["Memory", `${MiB(state.memory_bytes)} of ${MiB(state.memory_limit)}`],
    ["Exchanges", state.totals.exchanges],
    ["Judged", state.totals.judged],
    ["Failed a MUST check", state.totals.failing, state.totals.failing ? "bad" : ""],
    ["Dropped or lost", state.totals.dropped + state.totals.lost, state.totals.dropped + state.totals.lost ? "warn" : ""],
    ["Internal errors", state.totals.problems, state.totals.problems ? "bad" : ""],
    ...Object.entries(state.verdicts).sort().map(([name, count]) => [`Answers ${name}`, count]),
  ];
  const list = figures.map(([name, value, kind]) => {
    const group = document.createElement("div");
    const term = group.appendChild(document.createElement("dt"));
    const figure = group.appendChild(document.createElement("dd"));
    term.textContent = name;
    figure.textContent = value;
    if (kind) figure.className = kind;
    return group;
  });
  byId("figures").replaceChildren(...list);
}

function showTables(state) {
  fill(byId("checks"), state.checks.map((row) => [
    [row.check], [row.fail, row.fail ? "bad" : ""], [row.variant], [row.error, row.error ? "bad" : ""],
    [row.pass], [row.repaired], [row.blocked], [row.left],
  ]));
  fill(byId("recent"), state.recent.map((one) => [
    [new Date(one.started * 1000).toLocaleTimeString()],
    [one.route || "other path"],
    [one.model || "–"],
    [one.status === null ? one.end : `${one.status}${one.end === "complete" ? "" : " " + one.end}`],
    [one.seconds.toFixed(2)],
    [one.verdict, tone(one.verdict)],
    [one.failed.join(", ")],
    [[...one.repaired.map((check) => `repaired ${check}`), ...one.blocked.map((check) => `blocked ${check}`)].join(", ")],
    [one.id],
  ]));
}

async function update() {
  clearTimeout(timer);
  if (!document.hidden && !isReading) {
    isReading = true;
    try {
      const answer = await fetch("/live.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const state = await answer.json();
      showFigures(state);
      showTables(state);
      lastRead = new Date();
      byId("state").textContent = "Live";
      byId("state").className = "good";
    } catch (problem) {
      byId("state").textContent = `Not connected (${problem.message}), ` + (lastRead ? `last update ${lastRead.toLocaleTimeString()}` : "no data");
      byId("state").className = "bad";
    }
    isReading = false;
  }
  clearTimeout(timer);
  timer = setTimeout(update, EVERY);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
update();
