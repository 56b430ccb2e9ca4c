/* charts.js - bars of the budget, and the roofline. Each chart has its table beside it. */

/* Returns the colour class of a leaf of the budget by its path. */
function classOfLeaf(leaf) {
  const rows = [['start', /start-up|compiling/], ['compute', /^computing/], ['comm', /communicating|another rank/], ['copy', /copying/],
    ['host', /launching|synchronisation|allocator/], ['io', /data loader|file/], ['python', /Python|system call/]];
  const found = rows.find(([, words]) => words.test(leaf));
  return found ? found[0] : 'none';
}
const LEAF_CLASSES = [['start', 'start-up, compiling'], ['compute', 'computing'], ['comm', 'communicating, waiting for ranks'], ['copy', 'copying'],
  ['host', 'device waits for launches, calls'], ['io', 'waiting for data and files'], ['python', 'Python, system calls'], ['none', 'nothing known']];

function legend(classes) {
  return el('ul', { class: 'legend' }, LEAF_CLASSES.filter(([name]) => classes.has(name)).map(([name, words]) => el('li', {}, el('span', { class: `key ${name}` }), words)));
}

/* Returns the three elements of a bar in a grid: label, parts, figure. `longest` has the whole width. */
function bar(label, parts, longest) {
  const total = sum(parts.map((part) => part.us));
  const inside = parts.map((part) => {
    const piece = el('span', { class: classOfLeaf(part.leaf), title: `${part.leaf}: ${alone('us', part.us)}` });
    piece.style.width = `${longest > 0 ? (100 * part.us) / longest : 0}%`;
    return piece;
  });
  const words = parts.map((part) => `${part.leaf} ${alone('us', part.us)}`).join(', ');
  return [el('span', {}, label), el('div', { class: 'bar', role: 'img', 'aria-label': `${label}: ${words}` }, inside), el('span', {}, alone('us', total))];
}

/* Returns rank -> its leaves with known times. */
function leavesByRank(rows) {
  const ranks = new Map();
  for (const row of rows) {
    if (!ranks.has(row.rank)) ranks.set(row.rank, []);
    ranks.get(row.rank).push(row);
  }
  return ranks;
}
const isKnown = (leaves) => leaves.every((leaf) => isNumber(leaf.us));

/* Returns [{leaf, us, least, most, pct}] over the ranks whose budget is known, `us` the mean. */
function leavesOfAll(ranks) {
  const known = [...ranks.values()].filter(isKnown), leaves = new Map();
  for (const rank of known) for (const row of rank) leaves.set(row.leaf, [...(leaves.get(row.leaf) || []), row.us]);
  const all = [...leaves].map(([leaf, us]) => ({ leaf, us: sum(us) / known.length, least: us.length < known.length ? 0 : Math.min(...us), most: Math.max(...us) }));
  const wall = sum(all.map((row) => row.us));
  for (const row of all) row.pct = wall > 0 ? (100 * row.us) / wall : null;
  return all.sort((a, b) => b.us - a.us);
}

/* ---- the roofline ---- */

const CHART = { width: 720, height: 400, left: 64, right: 704, top: 16, bottom: 352 };

/* Returns a logarithmic axis over the values: from and to are powers of ten. */
function logAxis(values, from, to) {
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const step = Math.ceil((high - low) / 8);
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push(power);
  return { at: (value) => from + ((to - from) * (Math.log10(value) - low)) / (high - low), ticks };
}

const powerLabel = (power) => (power >= -3 && power <= 4 ? String(Number((10 ** power).toPrecision(1))) : `1e${power}`);

function axes(x, y, xTitle, yTitle) {
  const c = CHART, parts = [];
  for (const power of x.ticks) {
    const at = x.at(10 ** power);
    parts.push(svg('line', { class: 'rule', x1: at, x2: at, y1: c.top, y2: c.bottom }));
    parts.push(svg('text', { x: at, y: c.bottom + 16, 'text-anchor': 'middle' }, powerLabel(power)));
  }
  for (const power of y.ticks) {
    const at = y.at(10 ** power);
    parts.push(svg('line', { class: 'rule', x1: c.left, x2: c.right, y1: at, y2: at }));
    parts.push(svg('text', { x: c.left - 6, y: at + 4, 'text-anchor': 'end' }, powerLabel(power)));
  }
  parts.push(svg('text', { x: (c.left + c.right) / 2, y: c.height - 12, 'text-anchor': 'middle' }, xTitle));
  parts.push(svg('text', { x: 14, y: (c.top + c.bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(c.top + c.bottom) / 2})` }, yTitle));
  return parts;
}

/* Draws the peaks of devices: what memory lets through at each intensity, and what the units of each type compute at most. */
function roofsOf(peaks, x, y) {
  const low = { x: 10 ** x.ticks[0], y: 10 ** y.ticks[0] }, parts = [];
  for (const peak of peaks) {
    const types = ['fp64', 'fp32', 'tf32', 'fp16', 'fp8'], roofs = new Set(types.map((type) => peak[`${type}_tflops`]).filter((most) => most > 0));
    for (const most of roofs) {
      const type = types.filter((one) => peak[`${one}_tflops`] === most).join(', ').toUpperCase(), from = Math.max(low.x, (1000 * low.y) / peak.gbs), ridge = (1000 * most) / peak.gbs;
      const points = [[x.at(from), y.at((from * peak.gbs) / 1000)], [x.at(ridge), y.at(most)], [CHART.right, y.at(most)]];
      parts.push(svg('polyline', { class: 'roof', points: points.map((point) => point.map((at) => at.toFixed(1)).join(',')).join(' ') }, svg('title', {}, `${peak.device}: ${type} at most ${alone('tflops', most)}, memory ${alone('gbs', peak.gbs)}`)));
      parts.push(svg('text', { x: CHART.right - 2, y: y.at(most) - 3, 'text-anchor': 'end' }, type));
    }
  }
  return parts;
}

/* Draws the operators whose work is known, below the peaks of their devices. The area of a circle grows with their device time. */
function rooflineChart(rows, peaks = []) {
  const known = rows.filter((row) => row.flops > 0 && row.bytes > 0 && row.achieved_tflops > 0), most = peaks.map((peak) => Math.max(peak.fp8_tflops, peak.fp16_tflops, peak.fp32_tflops));
  if (!known.length) return '';
  const x = logAxis([...known.map((row) => row.flops / row.bytes), ...peaks.map((peak, i) => (1000 * most[i]) / peak.gbs)], CHART.left, CHART.right);
  const y = logAxis([...known.map((row) => row.achieved_tflops), ...most], CHART.bottom, CHART.top);
  const longest = Math.max(...known.map((row) => row.device_us));
  const circles = known.map((row) => svg('circle', {
    class: row.bound === 'compute' ? 'compute' : row.bound === 'memory' ? 'comm' : 'none', cx: x.at(row.flops / row.bytes).toFixed(1),
    cy: y.at(row.achieved_tflops).toFixed(1), r: (3 + 9 * Math.sqrt(row.device_us / longest)).toFixed(1), 'fill-opacity': 0.75,
  }, svg('title', {}, `${row.name}: ${alone('us', row.device_us)}, ${alone('tflops', row.achieved_tflops)}`)));
  const picture = svg('svg', { class: 'chart', viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: 'img', 'aria-label': 'roofline: achieved TFLOP/s over FLOP per byte, both logarithmic; the table below has the figures' },
    ...axes(x, y, 'intensity, FLOP per byte', 'achieved, TFLOP/s'), ...roofsOf(peaks, x, y), ...circles);
  const bounds = [['compute', 'computing bounds it'], ['comm', 'memory bounds it'], ['none', 'what bounds it is unknown']];
  return el('div', {}, picture, el('ul', { class: 'legend' }, bounds.map(([name, words]) => el('li', {}, el('span', { class: `key ${name}` }), words)),
    el('li', {}, 'area: device time'), peaks.length ? el('li', {}, `lines: the peaks of ${peaks.map((peak) => peak.device).join(', ')}`) : ''));
}
