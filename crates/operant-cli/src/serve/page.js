// Fetches the live part of the page again while it is looked at, and keeps what the user chose: the rows that a filter
// leaves, the boxes that are ticked, the point of a plot under the mouse.
"use strict";

const live = document.getElementById("live");
const said = document.getElementById("said");
const filter = document.getElementById("filter");
const pause = document.getElementById("pause");
const range = document.getElementById("window");
const [kind, severity, env] = ["kind", "severity", "env"].map((id) => document.getElementById(id));
const fields = [filter, kind, severity, env].filter(Boolean);
let paused = false;

// Only events have a kind, a severity and an env; a list of runs has no fields for them.
function isWanted(row) {
  const of = row.dataset;
  if (!kind || of.kind === undefined) return true;
  return (
    (!kind.value || of.kind === kind.value) &&
    Number(of.severity) >= Number(severity.value) &&
    (!env.value || of.env === env.value)
  );
}

function keepRows() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of live.querySelectorAll("tr.row")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !isWanted(row) || !words.every((word) => text.includes(word));
  }
}

async function refresh() {
  const query = range && range.value ? "?window=" + range.value : "";
  try {
    const response = await fetch(live.dataset.source + query);
    if (!response.ok) {
      said.textContent = (await response.text()).trim();
      return;
    }
    const chosen = new Set([...live.querySelectorAll("input:checked")].map((box) => box.value));
    live.innerHTML = await response.text();
    for (const box of live.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(box.value);
    said.textContent = "as of " + new Date().toLocaleTimeString();
    keepRows();
  } catch {
    said.textContent = "the server does not answer; start it again: operant serve";
  }
}

// A run that has ended may be resumed, so it is looked at too, less often.
function pace() {
  const state = document.getElementById("state");
  return state && state.dataset.status !== "running" ? 5000 : 1000;
}

async function keepFresh() {
  if (!paused && !document.hidden) await refresh();
  setTimeout(keepFresh, pace());
}

// An address may name what to show: …/run/RUN#severity=1&env=2
const named = new URLSearchParams(location.hash.slice(1));
for (const field of fields) {
  field.value = named.get(field.id) ?? field.value;
  field.addEventListener("input", keepRows);
}
keepRows();
if (range) range.addEventListener("change", refresh);
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "go on" : "pause";
});

// Values under the mouse: the nearest point of each line, read back from its place in the plot.
live.addEventListener("mousemove", (event) => {
  const svg = event.target.closest("svg");
  if (!svg) return;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
  const [low, high] = svg.dataset.y.split(" ").map(Number);
  const [top, bottom] = svg.dataset.rows.split(" ").map(Number);
  const values = [...svg.querySelectorAll("polyline")].map((line) => {
    const points = line.getAttribute("points").split(" ").filter(Boolean).map((pair) => pair.split(",").map(Number));
    if (!points.length) return null;
    const [, y] = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    return Number((low + ((bottom - y) / (bottom - top)) * (high - low)).toPrecision(3));
  });
  said.textContent = svg.getAttribute("aria-label") + ": " + values.filter((value) => value !== null).join(", ");
});

setTimeout(keepFresh, pace());
