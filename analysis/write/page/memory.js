/* memory.js - pictures of memory over time: areas of what is in use, by category where it is known, and a line of what is reserved. */

const CATEGORIES = [['parameter', 'compute'], ['optimizer state', 'start'], ['input', 'io'], ['temporary', 'copy'], ['activation', 'python'], ['gradient', 'comm'], ['autograd detail', 'host'], ['unknown', 'none']];

/* Returns the values of a picture at each of its moments: the sums of the bands up to each. */
function stackOf(picture) {
  const sums = picture.time_us.map(() => 0);
  return picture.bytes.map((band) => band.map((value, i) => (sums[i] += value)));
}

/* A value holds until the next moment: its path has two points for each. */
function stepsOf(values, x, y, times) {
  return values.flatMap((value, i) => (i ? [`${x(times[i])},${y(values[i - 1])}`, `${x(times[i])},${y(value)}`] : [`${x(times[i])},${y(value)}`]));
}

function memoryChart(picture, bands, title) {
  const c = { width: 720, height: 220, left: 80, right: 704, top: 14, bottom: 190 }, times = picture.time_us, stack = stackOf(picture);
  const from = times[0], span = Math.max(1e-3, times[times.length - 1] - from), reserved = picture.reserved.map((value) => value || 0);
  const most = Math.max(1, picture.peak_bytes, ...reserved), unit = unitOf('bytes', [most]), clock = unitOf('us', [from + span]);
  const x = (time) => (c.left + ((c.right - c.left) * (time - from)) / span).toFixed(1), y = (value) => (c.bottom - ((c.bottom - c.top) * Math.max(0, value)) / most).toFixed(1);
  const axis = [0, 0.5, 1].flatMap((part) => [svg('line', { class: 'rule', x1: c.left, x2: c.right, y1: y(part * most), y2: y(part * most) }),
    svg('text', { x: c.left - 6, y: Number(y(part * most)) + 4, 'text-anchor': 'end' }, `${figure('bytes', part * most, unit)} ${unit[1]}`),
    svg('text', { x: x(from + part * span), y: c.bottom + 18, 'text-anchor': ['start', 'middle', 'end'][2 * part] }, `${figure('us', from + part * span, clock)} ${clock[1]}`)]);
  const areas = stack.map((values, i) => svg('polygon', { class: bands[i][1], points: [`${x(from)},${y(0)}`, ...stepsOf(values, x, y, times), `${x(from + span)},${y(0)}`].join(' ') }, svg('title', {}, bands[i][0]))).reverse();
  const line = reserved.length ? [svg('polyline', { class: 'roof', points: stepsOf(reserved, x, y, times).join(' ') })] : [];
  return svg('svg', { class: 'chart', viewBox: `0 0 ${c.width} ${c.height}`, role: 'img', 'aria-label': `${title}: memory over time; the table below has the figures` }, ...axis, ...areas, ...line);
}

const BAND_COLUMNS = [word('category', 'category'), bytes('peak_bytes', 'at the peak'), bytes('largest_bytes', 'largest'), us('since_us', 'since'), bytes('last_bytes', 'at the end')];

/* Returns the exact figures of all moments: a row a category, the one on top of the picture first, and their total. */
function bandRows(picture, bands) {
  const rows = bands.map(([category], i) => ({ category, peak_bytes: picture.at_peak[i], largest_bytes: picture.largest[i], since_us: picture.since_us[i], last_bytes: picture.last[i] })).reverse();
  return rows.length === 1 ? rows : [...rows, { category: 'total', peak_bytes: picture.peak_bytes, largest_bytes: picture.peak_bytes, since_us: picture.peak_us, last_bytes: sum(picture.last) }];
}

function pictureOf(picture, number) {
  const where = picture.host ? 'the host' : picture.device === null ? 'an unknown device' : `device ${picture.device}`;
  const title = `${picture.rank === null ? '' : `rank ${picture.rank}, `}${picture.pid === null ? '' : `pid ${picture.pid}, `}${picture.allocator || 'memory'} of ${where}`;
  const bands = picture.bytes.length > 1 ? CATEGORIES : [['in use', 'compute']];
  const doubts = [picture.complete ? '' : el('strong', { class: 'bad' }, 'a part of the trace is missing; '), picture.simulated ? el('strong', { class: 'bad' }, 'a simulated device; ') : ''];
  return el('div', { class: 'picture' }, el('h3', {}, title), memoryChart(picture, bands, title), el('ul', { class: 'legend' }, bands.map(([name, key]) => el('li', {}, el('span', { class: `key ${key}` }), name)), picture.reserved.length ? el('li', {}, 'line: reserved') : ''),
    el('p', { class: 'soft' }, doubts, `at most ${alone('bytes', picture.peak_bytes)}, at ${alone('us', picture.peak_us)}; reserved ${picture.peak_reserved_bytes === null ? 'unknown' : `at most ${alone('bytes', picture.peak_reserved_bytes)}`}; `,
      `${grouped(picture.moments, 0)} moments, ${grouped(picture.time_us.length, 0)} of them drawn; ${picture.path}`),
    new Table(`memory-${number}`, 'the picture in figures', BAND_COLUMNS, bandRows(picture, bands)).element);
}

/* Draws the memory of each allocator and device, with what was thinned. */
function memoryOf(data, more) {
  if (!data) return '';
  return el('div', {}, data.pictures.map(pictureOf), data.pictures.length ? '' : el('p', {}, 'No memory was recorded.'),
    data.left_out ? el('p', { class: 'soft' }, `${grouped(data.left_out, 0)} more are not drawn; `, el('code', {}, more), ' draws them') : '');
}

/* Draws the page of `memory --layout html`: this section alone. */
function drawMemory(data) {
  drawHead('Memory over time');
  section('memory', 'Memory', memoryOf(data.runs[0], '--rank, --pid or --device'), el('p', { class: 'soft' }, `tfanalyze ${data.version}`));
}
