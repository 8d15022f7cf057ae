const FONT = "px system-ui, Arial, 'DejaVu Sans', sans-serif", SPARSE = 60; /* so few steps are drawn as points, too */
const steps = D.steps, V = D.values;
const has = name => V[name].some(v => v !== null);
const changes = name => new Set(V[name].filter(v => v !== null)).size > 1;
const short = v => v === null ? "not finite" : String(Number(v.toPrecision(6)));
const whole = Number.isInteger;

/* Exponential moving average, divided by the sum of its weights; null where the value is missing. */
const weight = steps.length < 20 ? 0 : Math.min(0.98, Math.max(0.6, Number((1 - 60 / steps.length).toFixed(2))));
function smooth(values) {
  let sum = 0, weights = 0;
  return values.map(v => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

function stepAxis() {
  return {
    stroke: () => color("soft"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { stroke: () => color("line"), size: 4 },
    incrs: increments.filter(whole), size: 26, label: "step", labelSize: AXIS - 26, labelFont: "13" + FONT, font: "12" + FONT,
  };
}
function valueAxis(label) {
  return { size: LEFT - 20, stroke: () => color("soft"), label, labelSize: 20, labelFont: "13" + FONT, font: "12" + FONT,
    grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false },
    values: (u, at) => at.map(v => Math.abs(v) >= 1e-3 || v === 0 ? String(Number(v.toPrecision(6))) : v.toExponential()) };
}
const line = (name, width, points) => ({ stroke: () => color(name), width,
  points: { show: points ?? steps.length <= SPARSE, size: 5, fill: () => color(name) } });

/* series: [values, line]. Values that a zoom leaves in view fill the height. */
function curves(id, label, height, fromZero, series, text, draw) {
  const given = series.filter(([values]) => values.some(v => v !== null));
  if (!given.length) { document.getElementById("figure-" + id).remove(); return null; }
  return plot(id, height, {
    yRange: (u, min, max) => {
      if (min === null) return [0, 1];
      const pad = 0.06 * (max - min || Math.abs(max) || 1);
      return [fromZero ? 0 : min - pad, fromZero ? 1.08 * max || 1 : max + pad];
    },
    axes: [stepAxis(), valueAxis(label)], series: [{}, ...given.map(([, l]) => l)], hooks: draw ? { draw: [draw] } : {},
    hover: (u, t) => {
      const after = lastBefore(steps, t) + 1, before = Math.max(0, after - 1);
      const i = after < steps.length && steps[after] - t < t - steps[before] ? after : before;
      return "step " + steps[i] + "\n" + text(i);
    },
  }, [steps, ...given.map(([values]) => values)]);
}

/* Checkpoints as dotted lines, those that failed and skipped steps in red. */
function marks(u) {
  const { ctx, bbox } = u, k = devicePixelRatio;
  ctx.save();
  const vertical = (step, name, from, dash) => {
    const x = Math.round(px(u, step));
    ctx.lineWidth = dash.length ? k : 2 * k;
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.strokeStyle = color(name); ctx.setLineDash(dash);
    ctx.beginPath(); ctx.moveTo(x, bbox.top + from * bbox.height); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
  };
  for (const s of D.saves) vertical(s.step, s.error === null ? "soft" : "wait", 0, [2 * k, 3 * k]);
  for (const step of D.skipped) vertical(step, "wait", 0.94, []);
  ctx.restore();
}

const smoothed = weight ? smooth(V.loss) : V.loss.map(() => null);
const isSkipped = new Set(D.skipped), savesOf = step => D.saves.filter(s => s.step === step);
const lossPlot = curves("loss", "loss", 300, false, [[V.loss, line(weight ? "raw" : "device", 1)], [smoothed, line("device", 2, false)],
  [V.eval_loss, { ...line("non-model", 2, true), spanGaps: true }]], i =>
  "loss " + short(V.loss[i]) + (weight && smoothed[i] !== null ? " (smoothed " + short(smoothed[i]) + ")" : "") +
  (V.eval_loss[i] !== null ? "\nvalidation loss " + short(V.eval_loss[i]) : "") + (isSkipped.has(steps[i]) ? "\nskipped" : "") +
  savesOf(steps[i]).map(s => s.error === null ? "\ncheckpoint " + s.name : "\ncheckpoint failed: " + s.error).join(""), marks);
curves("lr", "learning rate", 170, true, [[V.lr, line("device", 1.5)]], i => "learning rate " + short(V.lr[i]));
curves("norm", "norm", 190, true, [[V.grad_norm, line("update", 1.5)]], i => "norm of the gradients " + short(V.grad_norm[i]));
if (changes("loss_scale")) curves("scale", "power of two", 170, false, [[V.loss_scale.map(v => v === null ? null : Math.log2(v)), line("collective", 1.5)]],
  i => "loss scale " + short(V.loss_scale[i]));
else document.getElementById("figure-scale").remove();
curves("throughput", "tokens/s", 190, true, [[V.tokens_per_s, line("disk", 1.5)]], i =>
  short(V.tokens_per_s[i]) + " tokens/s\n" + seconds(V.step_s[i] ?? 0) + " a step" +
  (V.wait_s[i] ? ", " + seconds(V.wait_s[i]) + " waiting for copies" : ""));
const tiers = ["device", "host", "disk"], bytesOf = tier => V[tier + "_peak_bytes"];
const used = tiers.filter(tier => bytesOf(tier).some(b => b > 0));
const peaksPlot = curves("peaks", "MB", 220, true, used.map(tier => [bytesOf(tier).map(b => b === null ? null : b / 1e6), line(tier, 2)]),
  i => used.map(tier => tier + " " + (bytesOf(tier)[i] === null ? "-" : megabytes(bytesOf(tier)[i]))).join("\n"));

if (lossPlot) legend("loss-legend", [...(weight ? [["raw", "each step", "line"], ["device", "smoothed, " + short(weight), "line"]] :
  [["device", "training", "line"]]), ...(has("eval_loss") ? [["non-model", "validation", "line"]] : []),
  ...(D.saves.some(s => s.error === null) ? [["soft", "checkpoint", "dash"]] : []),
  ...(D.skipped.length || D.saves.some(s => s.error !== null) ? [["wait", "step skipped, or checkpoint failed", "line"]] : [])]);
if (peaksPlot) legend("peaks-legend", used.map(tier => [tier, tier + (D.ranks > 1 ? ", most of " + D.ranks + " ranks" : ""), "line"]));

function selftest() {
  const needed = { loss: [weight ? "raw" : "device", ...(has("eval_loss") ? ["non-model"] : []), ...(D.skipped.length ? ["wait"] : [])],
    lr: ["device"], norm: ["update"], scale: ["collective"], throughput: ["disk"], peaks: used.slice(-1) };
  checkDrawn(needed);
  const middle = Math.floor(steps.length / 2), text = hover(lossPlot, steps[middle], 5);
  check("a step's values: " + text.split("\n").join(" | "), text.includes("step " + steps[middle] + "\n") &&
    text.includes(short(V.loss[middle])));
  checkZoom(lossPlot, "figure-loss");
}
if (location.hash === "#selftest") setTimeout(selftest, 100);
