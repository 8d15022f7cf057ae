const D = JSON.parse(document.getElementById("data").textContent);
const errors = [];
window.addEventListener("error", e => errors.push(e.message));
const consoleError = console.error;
console.error = (...a) => { errors.push(a.join(" ")); consoleError.apply(console, a); };

const LEFT = 104, RIGHT = 16, TOP = 20, AXIS = 44; /* CSS pixels around the plotting area */
const tip = document.getElementById("tip");
const themed = /[?&](dark|light)\b/.exec(location.search);

/* ?dark and ?light: the theme whatever the system says. */
if (themed) {
  document.documentElement.dataset.theme = themed[1];
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule instanceof CSSMediaRule && rule.conditionText.includes("dark"))
        rule.media.mediaText = themed[1] === "dark" ? "all" : "not all";
  document.documentElement.style.colorScheme = themed[1];
}
const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/* ---- text ---- */
const megabytes = b => b >= 1e5 ? (b / 1e6).toFixed(1) + " MB" : b + " B";
const seconds = s => s < 5e-8 ? "0 s" : s < 1e-3 ? (s * 1e6).toFixed(1) + " µs" : s < 1 ? (s * 1e3).toFixed(2) + " ms" : s.toFixed(3) + " s";

function legend(id, keys) {
  const p = document.getElementById(id);
  for (const [name, label, shape] of keys) {
    const span = document.createElement("span"), i = document.createElement("i");
    if (shape === "line" || shape === "dash") { i.className = "line " + shape; i.style.borderColor = "var(--" + name + ")"; }
    else if (shape === "hatch") i.style.background =
      "repeating-linear-gradient(135deg, var(--wait) 0 3px, var(--wait-back) 3px 5px)";
    else i.style.background = "var(--" + name + ")";
    span.append(i, label);
    p.append(span);
  }
}

/* ---- what all figures over time share ---- */
const plots = [];
let zooming = false;
function zoomAll(from) {
  if (zooming) return;
  zooming = true;
  const { min, max } = from.scales.x;
  for (const u of plots) if (u !== from && u.status === 1) u.setScale("x", { min, max });
  zooming = false;
}
const px = (u, t) => u.valToPos(t, "x", true);

const increments = [];
for (let e = -9; e <= 6; e++) for (const m of [1, 2, 5]) increments.push(Number(m + "e" + e));

function plot(id, height, options, data) {
  const host = document.getElementById(id);
  const u = new uPlot({
    width: host.clientWidth, height, legend: { show: false }, padding: [TOP, RIGHT, 0, 0],
    cursor: { sync: { key: "time", scales: ["x", null] }, points: { show: false }, y: false, drag: { x: true, y: false, setScale: true } },
    ...options,
    scales: { x: { time: false, range: (u, min, max) => [Math.max(min ?? D.begin, D.begin), Math.min(max ?? D.end, D.end)] },
      y: { range: options.yRange } },
    hooks: { ...options.hooks, setScale: [(u, key) => { if (key === "x") zoomAll(u); }] },
  }, data, host);
  plots.push(u);
  u.over.addEventListener("mousemove", e => {
    const t = u.posToVal(e.offsetX ?? 0, "x"), r = u.over.getBoundingClientRect();
    show(options.hover(u, u.posToVal(e.clientX - r.left, "x"), e.clientY - r.top, t), e);
  });
  u.over.addEventListener("mouseleave", () => { tip.hidden = true; });
  return u;
}
function show(text, e) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const x = e.clientX + 14, y = e.clientY + 14;
  tip.style.left = Math.max(0, Math.min(x, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (y + tip.offsetHeight > innerHeight ? Math.max(0, y - tip.offsetHeight - 28) : y) + "px";
}
/* Index of the last element of sorted times not above t, or -1. */
function lastBefore(times, t) {
  let lo = 0, hi = times.length;
  while (lo < hi) { const mid = lo + hi >> 1; if (times[mid] <= t) lo = mid + 1; else hi = mid; }
  return lo - 1;
}

new ResizeObserver(() => {
  for (const u of plots) {
    const width = u.root.parentNode.clientWidth;
    if (width && width !== u.width) u.setSize({ width, height: u.height });
  }
}).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(u => u.redraw()));

/* ---- a page tests itself when its address ends in #selftest ---- */
const said = [];
const check = (name, ok) => said.push((ok ? "ok " : "FAILED ") + name);
/* needed: for each plot the names of colours that must be seen */
function checkDrawn(needed) {
  for (const u of plots) {
    const { left, top, width, height } = u.bbox, seen = new Set(), id = u.root.parentNode.id;
    const data = u.ctx.getImageData(left, top, width, height).data;
    for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    const missing = needed[id].filter(name => !seen.has(parseInt(color(name).slice(1), 16)));
    check("drawn " + id + ": " + needed[id].join(", ") + missing.map(name => "; no " + name).join(""), missing.length === 0);
  }
}
/* What is shown for the mouse at x and y pixels below the plot's top. */
function hover(u, at, y) {
  const r = u.over.getBoundingClientRect();
  const x = (at - u.scales.x.min) / (u.scales.x.max - u.scales.x.min) * r.width;
  u.over.dispatchEvent(new MouseEvent("mousemove", { clientX: r.left + x, clientY: r.top + y, bubbles: true }));
  return tip.hidden ? "" : tip.textContent;
}
/* The last checks; then the result is in the page. */
function checkZoom(u, figure) {
  const middle = (D.begin + D.end) / 2;
  u.setScale("x", { min: middle, max: D.end });
  setTimeout(() => {
    check("zoom of one is zoom of all", plots.every(u => Math.abs(u.scales.x.min - middle) < 1e-6));
    location.hash = figure;
    check("one figure alone", [...document.body.children].every(e => e.offsetHeight === 0 || e.id === figure));
    check("no error" + errors.map(e => ": " + e).join(""), errors.length === 0);
    const pre = document.createElement("pre");
    pre.id = "selftest";
    pre.textContent = said.join("\n") + "\n" + said.length + " checks, " + said.filter(s => s.startsWith("FAILED")).length + " failed";
    document.body.append(pre);
  }, 50);
}
