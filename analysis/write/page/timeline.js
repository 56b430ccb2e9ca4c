/* timeline.js - the timeline: rows of boxes and of values over one axis of time; zoom and pan by mouse, touch and keyboard, search, marks. */

const ROW = 16, VALUE_ROW = 36, GAP = 3, AXIS = 20, LEAST_ZOOM = 1e-6;
const PALETTE = ['--compute', '--comm', '--python', '--host', '--io', '--start', '--copy', '--none'];

/* Turns the columns of a row into moments: starts are written as differences. */
function unpackLane(lane) {
  let at = 0;
  const starts = lane.start.map((step) => (at += step));
  return { ...lane, starts };
}

/* Says what the values of a row are at most, in their unit. */
function mostOf(row) {
  const known = row.values.filter(isNumber);
  return known.length ? Math.max(...known) : 0;
}

class Timeline {
  constructor(data, findings) {
    Object.assign(this, { data, from: 0, to: 1, words: '', pointers: new Map(), waiting: false });
    this.span = data.span_us * 1e3;
    this.lanes = data.lanes.map(unpackLane);
    this.marked = this.marksOf(findings);
    this.rows = [...this.lanes.map((lane) => ({ lane, height: ROW })), ...data.values.map((values) => ({ values, height: VALUE_ROW }))];
    this.canvas = el('canvas', { tabindex: 0, role: 'img', id: 'timeline-canvas', 'aria-label': 'timeline; arrow keys move, plus and minus zoom, 0 shows all, the table below has the rows' });
    this.said = el('p', { role: 'status', class: 'soft', id: 'timeline-said' });
    this.element = el('div', {}, this.tools(), this.canvas, this.said);
    this.listen();
  }

  /* Returns rank -> the names of stages that a finding names. */
  marksOf(findings) {
    const marks = new Map();
    for (const row of findings) {
      if (!row.stage || row.severity === 'note') continue;
      const number = this.data.names.indexOf(row.stage);
      if (number >= 0) marks.set(row.rank, (marks.get(row.rank) || new Set()).add(number));
    }
    return marks;
  }

  isMarked(lane, i) {
    return lane.kind === 'stages' && Boolean(this.marked.get(lane.rank)?.has(lane.name[i]));
  }

  tools() {
    const button = (label, title, act) => {
      const one = el('button', { type: 'button', title, 'aria-label': title }, label);
      one.addEventListener('click', act);
      return one;
    };
    const search = el('input', { type: 'search', placeholder: 'search names', 'aria-label': 'search the timeline' });
    search.addEventListener('input', () => this.search(search.value));
    return el('div', { class: 'tools' }, search, button('+', 'zoom in', () => this.zoom(0.5, 0.5)), button('\u2212', 'zoom out', () => this.zoom(2, 0.5)), button('\u25c0', 'earlier', () => this.pan(-0.25)),
      button('\u25b6', 'later', () => this.pan(0.25)), button('all', 'show all of the time', () => this.show(0, 1)));
  }

  /* ---- where it looks ---- */

  show(from, to) {
    const width = Math.min(1, Math.max(LEAST_ZOOM, to - from));
    this.from = Math.min(Math.max(0, from), 1 - width);
    this.to = this.from + width;
    this.later();
  }

  zoom(factor, at) {
    const width = this.to - this.from, center = this.from + at * width, wanted = Math.min(1, Math.max(LEAST_ZOOM, width * factor));
    this.show(center - at * wanted, center + (1 - at) * wanted);
  }

  pan(share) {
    const step = (this.to - this.from) * share;
    this.show(this.from + step, this.to + step);
  }

  search(words) {
    this.words = words.toLowerCase();
    this.found = new Set(this.words ? this.data.names.flatMap((name, i) => (name.toLowerCase().includes(this.words) ? [i] : [])) : []);
    const boxes = sum(this.lanes.map((lane) => lane.name.filter((name) => this.found.has(name)).length));
    this.said.textContent = this.words ? `${this.found.size} names found, in ${boxes} boxes` : '';
    this.canvas.dataset.found = boxes;
    this.later();
  }

  /* ---- what the user does ---- */

  listen() {
    const c = this.canvas;
    c.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; /* the page scrolls */
      event.preventDefault();
      if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.shareAt(event.clientX));
      else this.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
    }, { passive: false });
    c.addEventListener('pointerdown', (event) => {
      this.pointers.set(event.pointerId, event.clientX);
      if (event.isTrusted) c.setPointerCapture(event.pointerId);
    });
    c.addEventListener('pointermove', (event) => (this.pointers.has(event.pointerId) ? this.drag(event) : this.point(event)));
    for (const kind of ['pointerup', 'pointercancel']) c.addEventListener(kind, (event) => this.pointers.delete(event.pointerId));
    c.addEventListener('click', (event) => this.point(event));
    c.addEventListener('keydown', (event) => {
      const act = { ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1), '+': () => this.zoom(0.5, 0.5), '=': () => this.zoom(0.5, 0.5), '-': () => this.zoom(2, 0.5), 0: () => this.show(0, 1) }[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    new ResizeObserver(() => this.later()).observe(c);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.later());
  }

  shareAt(x) {
    const box = this.canvas.getBoundingClientRect();
    return (x - box.left - this.left()) / Math.max(1, box.width - this.left());
  }

  /* One finger or the mouse pans, two fingers zoom around their middle. */
  drag(event) {
    const before = [...this.pointers.values()];
    this.pointers.set(event.pointerId, event.clientX);
    const after = [...this.pointers.values()], width = Math.max(1, this.canvas.clientWidth - this.left());
    if (after.length === 1) this.pan((before[0] - after[0]) / width);
    if (after.length !== 2) return;
    const distance = (pair) => Math.max(8, Math.abs(pair[0] - pair[1]));
    this.zoom(distance(before) / distance(after), this.shareAt((after[0] + after[1]) / 2));
  }

  /* Says what lies below the pointer. */
  point(event) {
    const box = this.canvas.getBoundingClientRect(), time = (this.from + this.shareAt(event.clientX) * (this.to - this.from)) * this.span;
    let y = event.clientY - box.top - AXIS;
    const row = this.rows.find((one) => (y -= one.height + GAP) < 0);
    if (!row) return;
    this.said.textContent = row.lane ? this.wordsOfLane(row.lane, time) : this.wordsOfValues(row.values, time);
  }

  wordsOfLane(lane, time) {
    const i = lane.starts.findIndex((start, at) => start <= time && time < start + lane.time[at]), label = this.labelOf(lane);
    if (i < 0) return `${label}: nothing at ${alone('us', time / 1e3)}`;
    const joined = lane.count[i] > 1 ? `${lane.count[i]} intervals that are drawn as one, the longest of them ` : '';
    return `${label}: ${joined}${this.data.names[lane.name[i]]}, ${alone('us', lane.time[i] / 1e3)} from ${alone('us', lane.starts[i] / 1e3)}${this.isMarked(lane, i) ? '; a finding names it' : ''}`;
  }

  wordsOfValues(row, time) {
    const value = row.values[Math.min(row.values.length - 1, Math.max(0, Math.floor((time / this.span) * row.values.length)))];
    return `${this.labelOf(row)} at ${alone('us', time / 1e3)}: ${this.valueWords(row, value)}`;
  }

  valueWords(row, value) {
    if (!isNumber(value)) return 'unknown';
    return row.unit === 'bytes' ? alone('bytes', value) : row.unit === 'ns' ? `${grouped((value * row.values.length) / Math.max(1, this.span), 2)} threads` : `${grouped(value, 0)} ${row.unit}`;
  }

  labelOf(row) {
    return `${row.rank === null ? `pid ${row.pid}` : `rank ${row.rank}`} ${row.label || row.name}`;
  }

  /* ---- drawing ---- */

  left() {
    return this.canvas.clientWidth < 600 ? 0 : 190;
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const c = this.canvas, width = c.clientWidth, height = AXIS + sum(this.rows.map((row) => row.height + GAP)), scale = window.devicePixelRatio || 1;
    if (!width) return;
    c.style.height = `${height}px`;
    c.width = Math.round(width * scale);
    c.height = Math.round(height * scale);
    const g = c.getContext('2d'), style = getComputedStyle(c), color = (name) => style.getPropertyValue(name).trim();
    g.scale(scale, scale);
    g.font = '11px system-ui, sans-serif';
    this.pen = { g, width, height, left: this.left(), text: color('--text'), soft: color('--soft'), rule: color('--rule'), page: color('--page'), bad: color('--bad'), colors: PALETTE.map(color) };
    this.drawAxis();
    let y = AXIS;
    for (const row of this.rows) {
      if (row.lane) this.drawLane(row.lane, y);
      else this.drawValues(row.values, y);
      y += row.height + GAP;
    }
    Object.assign(c.dataset, { from: this.from, to: this.to });
  }

  xOf(time) {
    const { width, left } = this.pen;
    return left + ((time / this.span - this.from) / (this.to - this.from)) * (width - left);
  }

  drawAxis() {
    const { g, width, left, height, soft, rule } = this.pen, ticks = width < 600 ? 3 : 6;
    const unit = unitOf('us', [(this.to * this.span) / 1e3]);
    for (let i = 0; i <= ticks; i++) {
      const time = (this.from + ((this.to - this.from) * i) / ticks) * this.span, x = this.xOf(time);
      g.fillStyle = rule;
      g.fillRect(x, AXIS - 4, 1, height);
      g.fillStyle = soft;
      g.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
      g.fillText(`${figure('us', time / 1e3, unit)} ${unit[1]}`, Math.min(width, Math.max(left, x)), 11);
    }
    g.textAlign = 'left';
  }

  drawLane(lane, y) {
    const { g, width, left, text, page, bad, colors, soft } = this.pen;
    g.save();
    g.beginPath();
    g.rect(left, y, width - left, ROW);
    g.clip();
    for (let i = 0; i < lane.starts.length; i++) {
      const x = this.xOf(lane.starts[i]), right = this.xOf(lane.starts[i] + lane.time[i]);
      if (right < left || x > width) continue;
      const shown = Math.max(left, x), wide = Math.max(0.6, right - shown);
      g.globalAlpha = this.words && !this.found.has(lane.name[i]) ? 0.15 : 1;
      g.fillStyle = colors[lane.name[i] % colors.length];
      g.fillRect(shown, y, wide > 3 ? wide - 0.5 : wide, ROW);
      if (this.isMarked(lane, i)) {
        g.fillStyle = bad;
        g.fillRect(shown, y + ROW - 4, wide, 4);
      }
      if (wide > 40) this.drawName(this.data.names[lane.name[i]], shown, y, wide, page, text);
    }
    g.restore();
    this.drawLabel(lane.depth ? '' : this.labelOf(lane), y + 12, soft);
  }

  /* Writes a name on a plate of the page's colour, which every colour of a box leaves readable. */
  drawName(name, x, y, wide, page, text) {
    const { g } = this.pen, fits = Math.floor((wide - 6) / 6), short = shortName(name).slice(0, Math.max(1, fits));
    g.fillStyle = page;
    g.fillRect(x + 2, y + 2, Math.min(wide - 4, g.measureText(short).width + 4), ROW - 6);
    g.fillStyle = text;
    g.fillText(short, x + 4, y + 10, wide - 6);
  }

  drawLabel(words, y, color) {
    const { g, left } = this.pen;
    if (!left || !words) return;
    g.fillStyle = color;
    g.fillText(words, 0, y, left - 6);
  }

  drawValues(row, y) {
    const { g, width, left, rule, soft, colors } = this.pen, most = mostOf(row), count = row.values.length;
    g.save();
    g.beginPath();
    g.rect(left, y, width - left, VALUE_ROW);
    g.clip();
    g.fillStyle = row.unit === 'bytes' ? colors[0] : row.unit === 'MHz' ? colors[1] : colors[2];
    row.values.forEach((value, i) => {
      if (!isNumber(value) || !most) return;
      const x = this.xOf((this.span * i) / count), wide = this.xOf((this.span * (i + 1)) / count) - x, high = (value / most) * (VALUE_ROW - 2);
      g.fillRect(x, y + VALUE_ROW - high, wide + 0.3, high);
    });
    g.restore();
    g.fillStyle = rule;
    g.fillRect(left, y + VALUE_ROW, width - left, 1);
    this.drawLabel(this.labelOf(row), y + 12, soft);
    this.drawLabel(`at most ${this.valueWords(row, most)}`, y + 25, soft);
  }
}

const LANE_COLUMNS = [RANK, id('pid', 'pid'), word('row', 'row'), number('boxes', 'boxes'), number('events', 'events or values'), us('busy_us', 'sum of times'), word('most', 'at most')];

/* Returns the timeline with what was thinned, and its table. */
function timelineOf(data, findings) {
  if (!data || !(data.lanes.length || data.values.length)) return el('p', { class: 'soft' }, 'no stage, no work of a device and no sample was recorded');
  const timeline = new Timeline(data, findings);
  const rows = [...data.lanes.map((lane) => ({ rank: lane.rank, pid: lane.pid, row: `${lane.label}, ${lane.kind}${lane.kind === 'stages' ? ` of depth ${lane.depth + 1}` : ''}`, boxes: lane.start.length, events: sum(lane.count), busy_us: lane.busy_us, most: null })),
    ...data.values.map((row) => ({ rank: row.rank, pid: row.pid, row: row.name, boxes: null, events: row.values.filter(isNumber).length, busy_us: null, most: timeline.valueWords(row, mostOf(row)) }))];
  const thinned = [`What is shorter than ${alone('us', data.cell_us)} is drawn together with its neighbours.`];
  if (data.left_processes) thinned.push(`${grouped(data.left_processes, 0)} more processes are not drawn.`);
  if (data.left_events) thinned.push(`${grouped(data.left_events, 0)} events are not drawn: of further threads, streams and depths, or the shortest of a full row.`);
  const marks = timeline.marked.size ? el('p', { class: 'soft' }, 'A line below a stage: a finding names it.') : '';
  return el('div', {}, timeline.element, marks, el('p', { class: 'soft', id: 'thinned' }, thinned.join(' ')),
    el('details', {}, el('summary', {}, 'The rows in figures'), new Table('timeline-table', 'the rows of the timeline', LANE_COLUMNS, rows).element));
}
