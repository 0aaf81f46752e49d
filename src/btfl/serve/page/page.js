"use strict";
// The fleet and one stream, live. Nothing is loaded from elsewhere; text goes in by textContent only.
const $ = (id) => document.getElementById(id);
const KEY = "btfl-token";
const rows = new Map();            // streams by number
let points = [], opened = 0, levels = {}, model = {}, totals = {}, server = {}, offset = 0, reading = null;

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "rect", "text", "g"].includes(tag);
  const one = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...children);
  return one;
}

async function ask(path, signal) {
  const token = sessionStorage.getItem(KEY);
  const answer = await fetch(path, { signal, cache: "no-store", headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({ error: answer.statusText }));
  throw Object.assign(new Error(told.error), { status: answer.status });
}

const time = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const count = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n.toLocaleString("en"));
function ago(seconds) {
  if (seconds === null) return "–";
  const s = Math.max(0, Date.now() / 1000 + offset - seconds);
  return s < 60 ? `${Math.round(s)} s ago` : s < 3600 ? `${Math.round(s / 60)} min ago` : s < 172800 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
}
const sure = (row) => row.all_external ?? row.e ?? 0;
const alarmed = (row) => row.alarmed !== "" && !row.ended;
const state = (row) => (row.ended ? "ended" : row.alarmed ? row.alarmed.replace(",", ", ") : "own");
const order = (a, b) => alarmed(b) - alarmed(a) || b.updated - a.updated;

function drawFleet() {
  $("total-alarmed").firstElementChild.textContent = count(totals.alarmed ?? 0);
  $("total-alarmed").classList.toggle("alarmed", totals.alarmed > 0);
  $("total-streams").textContent = count(totals.streams ?? 0);
  $("total-models").textContent = count(server.models ?? 0);
  $("total-samples").textContent = count(totals.samples ?? 0);
  document.title = totals.alarmed ? `▲ ${totals.alarmed} turned – btfl fleet` : "btfl fleet";
  const find = $("find").value.trim().toLowerCase();
  const all = [...rows.values()];
  const shown = all.filter((row) => `${row.model}/${row.sequence}`.toLowerCase().includes(find)).sort(order);
  $("tiles").replaceChildren(...all.sort((a, b) => a.id - b.id).map((row) => {
    const said = `${row.model}, stream ${row.sequence}: ${state(row)}, ${Math.round(100 * sure(row))} %`;
    const tile = make("a", { class: "tile", href: `#${row.id}`, "data-p": Math.min(9, Math.floor(10 * sure(row))), title: said, "aria-label": said });
    if (alarmed(row)) tile.dataset.alarmed = "";
    if (row.ended) tile.dataset.ended = "";
    return tile;
  }));
  $("streams").tBodies[0].replaceChildren(...shown.slice(0, 200).map(drawRow));
  $("none").hidden = all.length > 0;
}

function drawRow(row) {
  const fill = make("i");
  fill.style.width = `${100 * sure(row)}%`;
  const sureness = make("span", { class: "sure" }, make("span", { class: "bar-track" }, fill), `${(100 * sure(row)).toFixed(0)} %`);
  const line = make("tr", { tabindex: 0, "data-id": row.id, class: row.ended ? "ended" : row.alarmed ? "alarmed" : "" },
    make("td", { class: "state" }, state(row)), make("td", {}, row.model), make("td", {}, row.sequence), make("td", {}, sureness),
    make("td", { class: "n" }, (row.e ?? 0).toFixed(2)), make("td", { class: "n" }, count(row.samples)),
    make("td", {}, ago(row.turned)), make("td", {}, ago(row.updated)));
  const open = () => { location.hash = row.id; };
  line.addEventListener("click", open);
  line.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  return line;
}

function drawStream() {
  const row = rows.get(opened);
  if (!row) return;
  $("name").textContent = `${row.model} · stream ${row.sequence}`;
  $("now").className = alarmed(row) ? "alarmed" : "";
  $("now").textContent = (row.ended ? "Ended. " : row.alarmed ? `▲ Alarm: ${state(row)} since ${time(row.turned)}. ` : "Looks like the client's own data. ")
    + `${count(row.samples)} samples, the last ${ago(row.updated)}.`;
  const charts = [["all_external", "P(all external): the stream has turned", 0, 1], ["e", "e: weight of the global head", 0, 1],
    ["log_tau", "evidence log τ: above 0 speaks for own data", null, null], ["strangeness", "strangeness", null, null]];
  $("charts").replaceChildren(...charts.filter(([name]) => points.some((p) => p[name] !== null)).map((one) => chart(...one)));
  const began = points.filter((p) => p.began);
  $("alarms").replaceChildren(...(began.length ? began.slice().reverse().map((p) =>
    make("li", {}, `${time(p.time)}, sample ${count(p.seen)}: ${p.began.replace(",", ", ")} begins`)) : [make("li", {}, "none among the requests that are remembered")]));
}

function chart(name, title, low, high) {
  const width = Math.max(280, Math.min(1100, $("charts").clientWidth - 22)), height = 130, left = 34, bottom = 18;
  const values = points.map((p) => p[name]).filter((v) => v !== null);
  const level = levels[name]?.on;
  const most = Math.max(1e-9, level ?? 0, ...values.map(Math.abs)); // evenly around 0, where nothing is said either way
  low ??= values.some((v) => v < 0) ? -most : 0; high ??= most;
  const first = points[0].seen, last = Math.max(first + 1, points.at(-1).seen);
  const x = (p) => left + (width - left - 6) * (p.seen - first) / (last - first);
  const y = (v) => 6 + (height - bottom - 6) * (1 - (v - low) / (high - low));
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  points.forEach((p, i) => {
    if (p.alarmed) { const from = i ? x(points[i - 1]) : left; svg.append(make("rect", { class: "shade", x: from, width: Math.max(0, x(p) - from), y: 6, height: height - bottom - 6 })); }
    if (p.began) svg.append(make("line", { class: "begin", x1: x(p), x2: x(p), y1: 6, y2: height - bottom }));
  });
  for (const v of [low, (low + high) / 2, high]) {
    svg.append(make("line", { class: "axis", x1: left, x2: width - 6, y1: y(v), y2: y(v) }), make("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, Number(v.toPrecision(2)).toString()));
  }
  if (level !== undefined && level <= high) svg.append(make("line", { class: "level", x1: left, x2: width - 6, y1: y(level), y2: y(level) }));
  let path = "", pen = "M", before = -1;
  for (const p of points) {
    if (p[name] === null) { pen = "M"; continue; }
    if (p.seen < before) pen = "M"; // the stream began again
    path += `${pen}${x(p).toFixed(1)} ${y(p[name]).toFixed(1)}`; pen = "L"; before = p.seen;
  }
  svg.append(make("path", { class: "line", d: path }), make("text", { x: left, y: height - 4 }, `sample ${count(first)}`),
    make("text", { x: width - 6, y: height - 4, "text-anchor": "end" }, count(points.at(-1).seen)));
  const out = make("output", {}, points.at(-1)[name]?.toFixed(3) ?? ""), cursor = make("line", { class: "cursor", y1: 6, y2: height - bottom, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) * width / box.width;
    const near = points.reduce((best, p) => (Math.abs(x(p) - at) < Math.abs(x(best) - at) ? p : best));
    cursor.setAttribute("x1", x(near)); cursor.setAttribute("x2", x(near)); cursor.setAttribute("visibility", "visible");
    out.textContent = `sample ${count(near.seen)}, ${time(near.time)}: ${near[name]?.toFixed(3) ?? "–"}`;
  });
  return make("div", { class: "chart" }, make("h3", {}, make("span", {}, title), out), svg);
}

function draw() {
  $("ask").hidden = true;
  $("fleet").hidden = opened !== 0; $("stream").hidden = opened === 0;
  if (opened && points.length) drawStream(); else if (!opened) drawFleet();
}

function take(told) {
  offset = told.now - Date.now() / 1000;
  totals = told.totals ?? totals;
  for (const row of told.streams ?? []) rows.set(row.id, row);
  if (rows.size > 600) for (const row of [...rows.values()].sort(order).slice(500)) rows.delete(row.id);
  if (told.history?.length) points = [...points, ...told.history].slice(-512);
  draw();
}

async function listen(signal) {
  const after = points.at(-1)?.version ?? 0;
  const answer = await ask(`api/events?stream=${opened}&after=${after}`, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  live("live", "on");
  for (let text = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
  }
}

function live(said, kind) { $("live").textContent = said; $("live").className = kind; }

async function open() {
  reading?.abort();
  const mine = reading = new AbortController();
  opened = Number(location.hash.slice(1)) || 0;
  points = [];
  for (let wait = 500; !mine.signal.aborted; wait = Math.min(2 * wait, 8000)) {
    try {
      const told = await (await ask("api/fleet?limit=500", mine.signal)).json();
      server = told.server;
      rows.clear();
      if (opened) {
        const one = await (await ask(`api/streams/${opened}`, mine.signal)).json();
        points = one.history; levels = one.levels;
        told.streams.push(one.stream);
        $("levels").textContent = `Dashed: where an alarm begins, so that ${server.rate} of 1,000 samples of the client's own raise one falsely; found on ${one.calibrated_on === "sums" ? "sums alone, so this is approximate" : one.calibrated_on + " features"}. The last ${points.length} requests are shown.`;
      }
      $("about").textContent = `btfl ${server.version}, method ${server.method}${server.auth ? "" : ", no tokens asked for"}`;
      take(told);
      await listen(mine.signal);
      wait = 500;
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.status === 401 || error.status === 403) return askForToken(error);
      if (error.status === 404) { location.hash = ""; return; }
    }
    live("the server does not answer; trying again", "off");
    await new Promise((done) => setTimeout(done, wait));
  }
}

function askForToken(error) {
  live("not connected", "off");
  $("refused").textContent = sessionStorage.getItem(KEY) ? error.message : "";
  $("fleet").hidden = $("stream").hidden = true;
  $("ask").hidden = false;
  $("token").focus();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("token").value.trim());
  $("token").value = "";
  open();
});
$("find").addEventListener("input", draw);
addEventListener("hashchange", open);
setInterval(() => { if (!document.hidden && server.version && $("ask").hidden) draw(); }, 5000);
open();
