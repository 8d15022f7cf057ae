const tiersOf = bits => D.tiers.filter((_, i) => bits >> i & 1).join(" and ");
function chunkText(c) {
  const k = D.chunks[c], more = k.tensors - k.names.length;
  return D.lists[k.list] + " " + k.index + ", " + megabytes(k.bytes) + "\n" + k.names.join("\n") +
    (more > 0 ? "\nand " + more + " more" : "");
}

function hatch(ctx) {
  const k = devicePixelRatio, c = document.createElement("canvas"), n = Math.round(6 * k);
  c.width = c.height = n;
  const g = c.getContext("2d");
  g.fillStyle = color("wait-back"); g.fillRect(0, 0, n, n);
  g.strokeStyle = color("wait"); g.lineWidth = 0.45 * n;
  g.beginPath();
  for (const d of [-n, 0, n]) { g.moveTo(d - 1, n + 1); g.lineTo(d + n + 1, -1); }
  g.stroke();
  return ctx.createPattern(c, "repeat");
}

const bandColors = ["forward-band", "backward-band", "update-band"];
function bands(u, top, height) {
  const { ctx, bbox } = u, y = top ?? bbox.top, h = height ?? bbox.height;
  bandColors.forEach((name, phase) => {
    ctx.fillStyle = color(name);
    for (const [b, e, p] of D.phases) if (p === phase) {
      const x0 = Math.max(px(u, b), bbox.left), x1 = Math.min(px(u, e), bbox.left + bbox.width);
      if (x1 > x0) ctx.fillRect(x0, y, x1 - x0, h);
    }
  });
}
function stepNames(u) {
  const { ctx, bbox } = u, k = devicePixelRatio;
  ctx.save();
  ctx.font = 12 * k + "px system-ui, Arial, 'DejaVu Sans', sans-serif";
  ctx.textAlign = "center"; ctx.textBaseline = "alphabetic"; ctx.fillStyle = color("text"); ctx.strokeStyle = color("soft");
  for (const [b, e, name] of D.steps) {
    const x0 = Math.max(px(u, b), bbox.left), x1 = Math.min(px(u, e), bbox.left + bbox.width);
    if (x1 - x0 > 60 * k) ctx.fillText(name, (x0 + x1) / 2, bbox.top - 5 * k);
    const x = px(u, b);
    if (x > bbox.left + 1 && x < bbox.left + bbox.width) {
      ctx.lineWidth = k; ctx.setLineDash([2 * k, 3 * k]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    }
  }
  ctx.restore();
}

function timeAxis(hasLabel) {
  return {
    stroke: () => color("soft"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("line"), size: 4 },
    incrs: increments, size: 26, label: hasLabel ? "time (s)" : undefined, labelSize: AXIS - 26,
    labelFont: "13px system-ui, Arial, 'DejaVu Sans', sans-serif",
    font: "12px system-ui, Arial, 'DejaVu Sans', sans-serif",
    values: (u, at, axis, space, step) => at.map(v => (v - D.begin).toFixed(Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)))),
    splits: (u, axis, min, max, step) => {
      const list = [], first = Math.ceil((min - D.begin) / step - 1e-9);
      for (let i = first; D.begin + i * step <= max + step * 1e-6 && list.length < 1000; i++) list.push(D.begin + i * step);
      return list;
    },
  };
}

/* ---- memory ---- */
function memory(id, tier, height, isLast) {
  const m = D.memory[tier], host = document.getElementById(id);
  const total = m.chunks.map((c, i) => c + m.non_model[i] + m.other[i]);
  const most = Math.max(1, ...total), budget = D.budgets[tier], hasBudget = budget > 0 && budget < 4 * most;
  if (!m.t.length || most <= 1) { host.remove(); return; }
  const top = 1.08 * Math.max(most, hasBudget ? budget : 0) / 1e6;
  const line = (name, width, fill, dash) => ({ stroke: () => color(name), fill: fill ? () => color(fill) : undefined, width, dash,
    paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
  const mb = a => a.map(v => v / 1e6);
  const times = [D.begin - 1e-9, ...m.t, D.end], extend = a => [a[0], ...a, a[a.length - 1]];
  plot(id, height, {
    yRange: () => [0, top],
    axes: [timeAxis(isLast), { size: LEFT - 20, stroke: () => color("soft"), label: D.tiers[tier] + " (MB)", labelSize: 20,
      labelFont: "13px system-ui, Arial, 'DejaVu Sans', sans-serif", font: "12px system-ui, Arial, 'DejaVu Sans', sans-serif",
      grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false } }],
    series: [{}, line("chunks", 1, "chunks-fill"), line("non-model", 1.5), line("total", 1.5),
      line("budget", 2, null, [8, 5])],
    hooks: { drawClear: [u => bands(u)], draw: [stepNames] },
    hover: (u, t) => {
      const i = Math.max(0, lastBefore(m.t, t));
      return D.tiers[tier] + " at " + seconds(t - D.begin) + "\ntotal " + megabytes(total[i]) + "\nchunks " +
        megabytes(m.chunks[i]) + (tier === 0 ? "\nnon-model " + megabytes(m.non_model[i]) : "") + (m.other[i] ? "\nother " + megabytes(m.other[i]) : "") +
        (budget ? "\nbudget " + megabytes(budget) : "");
    },
  }, [times, extend(mb(m.chunks)), tier === 0 ? extend(mb(m.non_model)) : times.map(() => null), extend(mb(total)), times.map(() => hasBudget ? budget / 1e6 : null)]);
}

/* ---- chunks ---- */
const rowTops = []; /* by chunk, in CSS pixels below the plot's top */
const sections = [];
let rowHeight = 0, rowsHeight = 0;
function layRows() {
  const gap = 8;
  rowHeight = Math.max(1, Math.min(8, Math.floor(640 / Math.max(1, D.rows.length) * 2) / 2));
  let y = 0, list = -1;
  for (const c of D.rows) {
    if (D.chunks[c].list !== list) {
      if (list >= 0) y += gap;
      list = D.chunks[c].list;
      sections.push({ list, top: y, bottom: y });
    }
    rowTops[c] = y;
    y += rowHeight;
    sections[sections.length - 1].bottom = y;
  }
  rowsHeight = Math.max(y, 20);
}
const mainTier = bits => bits & 1 ? 0 : bits & 2 ? 1 : 2;
const flat = [[D.begin, D.end], [0, 0]];
const hiddenSeries = [{}, { paths: () => null, points: { show: false } }];
const blankAxis = { size: LEFT, splits: () => [], grid: { show: false }, ticks: { show: false } };

function drawRects(u, rects) { /* of [begin, end, top, height, style] in seconds and CSS pixels */
  const { ctx, bbox } = u, k = devicePixelRatio, right = bbox.left + bbox.width;
  ctx.save();
  for (const [b, e, top, height, style] of rects) {
    const x0 = Math.max(px(u, b), bbox.left), x1 = Math.min(px(u, e), right);
    if (x1 < bbox.left || x0 > right || x1 < x0) continue;
    ctx.fillStyle = style;
    ctx.fillRect(x0, bbox.top + top * k, Math.max(x1 - x0, 0.6), height * k);
  }
  ctx.restore();
}
function labelRows(u, rows) { /* of [label, middle, color] */
  const { ctx, bbox } = u, k = devicePixelRatio;
  ctx.save();
  ctx.font = 13 * k + "px system-ui, Arial, 'DejaVu Sans', sans-serif";
  ctx.textAlign = "right"; ctx.textBaseline = "middle";
  for (const [label, middle, name] of rows) {
    ctx.fillStyle = color(name);
    ctx.fillText(label, bbox.left - 8 * k, bbox.top + middle * k);
  }
  ctx.restore();
}
function chunkAt(y) {
  for (const c of D.rows) if (y >= rowTops[c] && y < rowTops[c] + rowHeight) return c;
  return -1;
}
function chunks() {
  layRows();
  const u = plot("chunks", rowsHeight + TOP + AXIS, {
    yRange: () => [0, 1], axes: [timeAxis(true), blankAxis], series: hiddenSeries,
    hooks: { draw: [u => {
      const style = ["device", "host", "disk"].map(color), { ctx, bbox } = u, k = devicePixelRatio;
      ctx.fillStyle = color("back");
      ctx.fillRect(bbox.left, bbox.top, bbox.width, bbox.height);
      drawRects(u, D.stays.map(([c, b, e, bits]) => [b, e, rowTops[c], rowHeight > 3 ? rowHeight - 0.5 : rowHeight, style[mainTier(bits)]]));
      ctx.strokeStyle = color("line"); ctx.lineWidth = k;
      for (const s of sections) ctx.strokeRect(bbox.left, bbox.top + s.top * k, bbox.width, (s.bottom - s.top) * k);
      labelRows(u, sections.map(s => [D.lists[s.list], (s.top + s.bottom) / 2, "text"]));
      stepNames(u);
    }] },
    hover: (u, t, y) => {
      const c = chunkAt(y);
      if (c < 0) return "";
      const stay = D.stays.find(([k, b, e]) => k === c && b <= t && t < e);
      return chunkText(c) + "\n" + (stay ? "on " + tiersOf(stay[3]) + " from " + seconds(stay[1] - D.begin) + " for " +
        seconds(stay[2] - stay[1]) : "released");
    },
  }, flat);
  return u;
}

/* ---- timeline ---- */
const laneHeight = 30, laneGap = 8;
const phaseColors = ["forward", "backward", "update"], reasonColors = ["wanted", "prefetch", "write-back"];
const COMPUTE = 2, WAITS = 3, COLLECTIVES = 8, HOST_COMPUTE = 10;
const isComputing = s => s[0] === COMPUTE || s[0] === HOST_COMPUTE;
function timeline() {
  const lanes = D.lanes.filter(l => l.id < COLLECTIVES || D.spans.some(s => s[0] === l.id));
  const top = {};
  lanes.forEach((l, i) => { top[l.id] = i * (laneHeight + laneGap); l.height = laneHeight / l.slots; });
  const slotHeight = Object.fromEntries(lanes.map(l => [l.id, l.height]));
  const rect = s => [s[2], s[3], top[s[0]] + s[1] * slotHeight[s[0]], slotHeight[s[0]] - (slotHeight[s[0]] < laneHeight ? 0.5 : 0)];
  return plot("timeline", lanes.length * (laneHeight + laneGap) + TOP + AXIS, {
    yRange: () => [0, 1], axes: [timeAxis(true), blankAxis], series: hiddenSeries,
    hooks: { draw: [u => {
      const k = devicePixelRatio, { ctx, bbox } = u;
      for (const l of lanes) bands(u, bbox.top + top[l.id] * k, laneHeight * k);
      const phase = phaseColors.map(color), reason = reasonColors.map(color), wait = hatch(ctx), other = color("collective");
      const style = s => isComputing(s) ? phase[s[4]] : s[0] === WAITS ? wait : s[0] === COLLECTIVES ? other : reason[s[4]];
      drawRects(u, D.spans.map(s => [...rect(s), style(s)]));
      names(u, rect);
      labelRows(u, lanes.map(l => [l.name, top[l.id] + laneHeight / 2, l.id === WAITS ? "wait" : "text"]));
      stepNames(u);
    }] },
    hover: (u, t, y) => {
      const near = 2 * (u.scales.x.max - u.scales.x.min) / u.over.clientWidth;
      let best = null, distance = near;
      for (const s of D.spans) {
        const [b, e, at, height] = rect(s);
        if (y < at || y >= at + height) continue;
        const d = t < b ? b - t : t > e ? t - e : 0;
        if (d < distance) { best = s; distance = d; }
        if (d === 0) break;
      }
      if (!best) return "";
      const [lane, , b, e, kind, name, chunk, bytes] = best;
      return name + (lane === COMPUTE ? "" : "\n" + D.lanes.find(l => l.id === lane).name) +
        (lane > WAITS && lane < COLLECTIVES ? ", " + D.reasons[kind] : "") + (bytes ? ", " + megabytes(bytes) : "") + "\n" +
        seconds(e - b) + " from " + seconds(b - D.begin) + (chunk >= 0 ? "\n" + chunkText(chunk) : "");
    },
  }, flat);
}
function names(u, rect) { /* inside of what is wide enough */
  const { ctx, bbox } = u, k = devicePixelRatio;
  ctx.save();
  ctx.font = 11 * k + "px system-ui, Arial, 'DejaVu Sans', sans-serif";
  ctx.textAlign = "left"; ctx.textBaseline = "middle";
  for (const s of D.spans) {
    const [b, e, top, height] = rect(s);
    const x0 = Math.max(px(u, b), bbox.left), x1 = Math.min(px(u, e), bbox.left + bbox.width);
    if (height < 11 || x1 - x0 < 40 * k || s[0] === WAITS) continue;
    if (isComputing(s) && s[4] === 1) ctx.fillStyle = "#ffffff"; else ctx.fillStyle = "#10151a";
    if (ctx.measureText(s[5]).width < x1 - x0 - 6 * k) ctx.fillText(s[5], x0 + 3 * k, bbox.top + (top + height / 2) * k);
  }
  ctx.restore();
}

/* ---- where the time of a step went ---- */
function time() {
  const WIDTH = 920, COLUMNS = 3, BAR_TOP = 40, BAR_HEIGHT = 34, FIRST_LABEL = BAR_TOP + BAR_HEIGHT + 22;
  const step = Math.max(1e-9, D.parts.reduce((sum, [, s]) => sum + s, 0));
  const most = Math.max(step, ...D.busy.flatMap(([, predicted, measured]) => [predicted, measured]));
  const hasPredicted = D.busy.some(([, predicted]) => predicted >= 0), rowHeight = hasPredicted ? 40 : 22;
  const busyTop = FIRST_LABEL + 19 * Math.ceil(D.parts.length / COLUMNS) + 10;
  const text = s => Number((s < 0.1 ? s * 1e3 : s).toPrecision(3)) + (s < 0.1 ? " ms" : " s");
  const add = (parent, tag, attributes, content = "") => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) e.setAttribute(name, attributes[name]);
    e.textContent = content;
    parent.append(e);
    return e;
  };
  const svg = add(document.getElementById("time"), "svg",
    { viewBox: "0 0 " + WIDTH + " " + (busyTop + 30 + D.busy.length * rowHeight), "font-size": 12, role: "img" });
  const pattern = add(add(svg, "defs"), "pattern",
    { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  const rect = (x, y, width, height, name, parent = svg) => add(parent, "rect",
    { x, y, width: Math.max(width, 0.2), height, style: "fill:" + (name === "hatch" ? "url(#hatch)" : "var(--" + name + ")") });
  const write = (x, y, anchor, content) => add(svg, "text", { x, y, "text-anchor": anchor, style: "fill:var(--text)" }, content);
  rect(0, 0, 5, 5, "wait-back", pattern);
  rect(0, 0, 3, 5, "wait", pattern);
  write(LEFT, 24, "start", "One step, parts one behind the other (average)");
  write(LEFT - 8, BAR_TOP + 21, "end", D.measured);
  let x = LEFT;
  D.parts.forEach(([name, s], i) => {
    const style = name === "other" ? "rest" : name.startsWith("wait") ? "hatch" : name, width = s / step * (WIDTH - LEFT - RIGHT);
    const column = LEFT + i % COLUMNS * (WIDTH - LEFT - RIGHT) / COLUMNS, y = FIRST_LABEL + 19 * Math.floor(i / COLUMNS);
    rect(x, BAR_TOP, width, BAR_HEIGHT, style);
    rect(column, y - 10, 12, 12, style);
    write(column + 17, y, "start", name + " " + text(s) + " (" + (100 * s / step).toFixed(1) + " %)");
    x += width;
  });
  write(LEFT, busyTop + 14, "start", "Time that each row is busy in a step");
  D.busy.forEach(([name, predicted, measured], i) => {
    const y = busyTop + 26 + i * rowHeight;
    const bar = (s, top, style, label) => {
      if (s < 0) return; /* not known */
      const width = s / most * (WIDTH - LEFT - RIGHT - 130);
      rect(LEFT, top, width, 13, style);
      write(LEFT + width + 5, top + 11, "start", text(s) + " " + label);
    };
    write(LEFT - 8, y + (hasPredicted ? 19 : 11), "end", name);
    bar(predicted, y, "host", "predicted");
    bar(measured, hasPredicted ? y + 16 : y, "device", D.measured);
  });
}

/* ---- the page tests itself ---- */
function selftest(chunksPlot, timelinePlot) {
  const wide = ([b, e]) => e - b > (D.end - D.begin) / 200;
  const needed = { /* colours of what is wide enough to be seen */
    "memory-device": ["total", "chunks"], "memory-host": ["total"],
    chunks: ["device", "host", "disk"].filter((_, t) => D.stays.some(([, b, e, bits]) => mainTier(bits) === t && wide([b, e]))),
    timeline: phaseColors.filter((_, p) => D.spans.some(s => s[0] === COMPUTE && s[4] === p && wide([s[2], s[3]])))
      .concat(D.spans.some(s => s[0] === WAITS && wide([s[2], s[3]])) ? ["wait"] : []),
  };
  checkDrawn(needed);
  const labels = [...document.querySelectorAll("#time text")].map(e => e.textContent), bars = D.busy.flat().filter(s => s >= 0);
  check("drawn time: " + labels.join(" | "), [...D.parts, ...D.busy].every(([name]) => labels.some(l => l.startsWith(name))) &&
    document.querySelectorAll("#time svg > rect").length === 2 * D.parts.length + bars.length);
  const [c, b, e] = D.stays[0], text = hover(chunksPlot, (b + e) / 2, rowTops[c] + rowHeight / 2);
  check("chunk's name: " + text.split("\n").join(" | "), text.includes(D.lists[D.chunks[c].list] + " " + D.chunks[c].index) &&
    D.chunks[c].names.every(n => text.includes(n)) && text.includes("on "));
  const op = D.spans.find(s => s[0] === COMPUTE), opText = hover(timelinePlot, (op[2] + op[3]) / 2, 5);
  check("operator's name: " + opText.split("\n").join(" | "), opText !== "");
  checkZoom(chunksPlot, "figure-time");
}

memory("memory-device", 0, 300, !D.memory[1].chunks.some(v => v > 0));
memory("memory-host", 1, 190, true);
const chunksPlot = chunks(), timelinePlot = timeline();
time();
legend("memory-legend", [["total", "total", "line"], ["chunks", "chunks"], ["non-model", "non-model data", "line"],
  ["budget", "budget", "dash"], ["forward-band", "forward"], ["backward-band", "backward"], ["update-band", "update"]]);
legend("chunks-legend", [["device", "device"], ["host", "host"], ["disk", "disk"], ["back", "released"]]);
legend("timeline-legend", [["forward", "forward"], ["backward", "backward"], ["update", "update"], ["wait", "wait", "hatch"],
  ["wanted", "copy wanted now"], ["prefetch", "prefetch"], ["write-back", "write back"],
  ...(D.spans.some(s => s[0] === COLLECTIVES) ? [["collective", "collective"]] : [])]);
if (location.hash === "#selftest") setTimeout(() => selftest(chunksPlot, timelinePlot), 100);
