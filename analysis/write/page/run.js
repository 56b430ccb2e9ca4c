/* run.js - the sections of a page of one run. */

const MOST_BARS = 24;

function us(key, label) { return { key, label, kind: 'us' }; }
function number(key, label) { return { key, label, kind: 'count' }; }
function id(key, label) { return { key, label, kind: 'id' }; }
function word(key, label) { return { key, label, kind: 'text' }; }
function pct(key, label) { return { key, label, kind: 'pct' }; }
function bytes(key, label) { return { key, label, kind: 'bytes' }; }
function real(key, label, kind = 'real') { return { key, label, kind }; }
const RANK = id('rank', 'rank'), STAGE = word('stage', 'stage');

/* ---- what, when, and whether it is whole ---- */

const first = (rows, key) => { const row = rows.find((one) => one[key] !== null && one[key] !== undefined); return row ? row[key] : null; };

function factsOf(info) {
  const rows = info.rows, ranks = new Set(rows.map((row) => row.rank)), hosts = new Set(rows.map((row) => row.host).filter(Boolean));
  const inputs = (info.answer && info.answer.inputs) || [];
  const doubts = rows.filter((row) => row.health && row.health.length).length;
  const facts = [`${ranks.size} rank${ranks.size === 1 ? '' : 's'}, ${rows.length} process${rows.length === 1 ? '' : 'es'}`];
  if (hosts.size) facts.push([...hosts].slice(0, 4).join(', ') + (hosts.size > 4 ? ` and ${hosts.size - 4} more hosts` : ''));
  if (first(rows, 'start')) facts.push(`began ${first(rows, 'start')}`);
  facts.push(`${alone('us', Math.max(...rows.map((row) => row.duration_us || 0)))} long`);
  if (isNumber(info.totals.events)) facts.push(`${grouped(info.totals.events, 0)} events`);
  facts.push(info.totals.lost ? el('strong', { class: 'bad' }, `${grouped(info.totals.lost, 0)} records lost`) : 'no record lost');
  if (info.totals.complete < info.totals.processes) facts.push(el('strong', { class: 'bad' }, `${info.totals.processes - info.totals.complete} incomplete`));
  if (doubts) facts.push(el('a', { href: '#recording' }, `doubts about ${doubts} trace${doubts === 1 ? '' : 's'}`));
  if (inputs.some((input) => input.simulated)) facts.push(el('strong', { class: 'bad' }, 'simulated devices: their times are not those of a GPU'));
  return el('div', { class: 'facts' }, facts.map((fact) => el('span', {}, fact)));
}

/* Shows start-up against work, of the mean of all ranks. */
function startAgainstWork(leaves) {
  const start = sum(leaves.filter((row) => row.leaf === 'start-up').map((row) => row.us)), work = sum(leaves.map((row) => row.us)) - start;
  if (!leaves.length) return '';
  return el('p', { id: 'work' }, `${start ? `start-up ${alone('us', start)}` : 'no start-up in the trace'} | your work ${alone('us', work)}`);
}

function drawHead(title, ...children) {
  document.title = `${title} \u2013 tfanalyze`;
  document.getElementById('head').append(el('h1', {}, title), ...children);
}

/* ---- the verdict ---- */

/* Chooses the ranks that differ most from the mean of all, so that thousands of ranks are a picture still. */
function ranksToDraw(ranks, mean) {
  const known = [...ranks].filter(([, leaves]) => isKnown(leaves));
  if (known.length <= MOST_BARS) return known;
  const far = ([, leaves]) => sum(mean.map((row) => Math.abs(row.us - ((leaves.find((leaf) => leaf.leaf === row.leaf) || {}).us || 0))));
  return known.map((entry) => [far(entry), entry]).sort((a, b) => b[0] - a[0]).slice(0, MOST_BARS).map(([, entry]) => entry).sort((a, b) => a[0] - b[0]);
}

function budgetOf(part) {
  const ranks = leavesByRank(part.rows), mean = leavesOfAll(ranks);
  if (!mean.length) return el('p', {}, 'where the time went is unknown: records of it were left out', saidOf(part));
  const drawn = ranksToDraw(ranks, mean), longest = Math.max(...[...ranks.values()].filter(isKnown).map((leaves) => sum(leaves.map((leaf) => leaf.us))));
  const bars = drawn.flatMap(([rank, leaves]) => bar(`rank ${rank ?? '?'}`, mean.map((row) => leaves.find((leaf) => leaf.leaf === row.leaf)).filter(Boolean), longest));
  if (drawn.length < ranks.size) bars.unshift(...bar(`mean of ${ranks.size}`, mean, longest));
  const columns = [word('leaf', 'leaf'), us('us', 'mean'), pct('pct', 'share'), ...(ranks.size > 1 ? [us('least', 'least'), us('most', 'most')] : []), word('command', 'more')];
  for (const row of mean) row.command = `tfanalyze ${part.rows.find((one) => one.leaf === row.leaf).command}`;
  return el('div', {}, el('div', { class: 'bars' }, bars), legend(new Set(mean.map((row) => classOfLeaf(row.leaf)))),
    drawn.length < ranks.size ? el('p', { class: 'soft' }, `${drawn.length} of ${ranks.size} ranks are drawn: those that differ most from the mean`) : '',
    el('h3', {}, ranks.size > 1 ? 'The mean of all ranks' : 'In figures'), tableOf(part, 'budget', columns, mean));
}

const SECTION_OF = { ops: 'operators', breakdown: 'operators', stacks: 'flames', hotspots: 'lines', stages: 'stages', timeline: 'devices', clocks: 'devices', memory: 'memory', comm: 'collectives', stragglers: 'collectives',
  io: 'files', roofline: 'roofline', startup: 'startup', info: 'recording', budget: 'verdict' };

/* Returns a command, with a link to the section of this page that has its answer. */
function commandOf(command, links) {
  const to = links && SECTION_OF[command.split(' ')[1]];
  return to ? el('a', { href: `#${to}` }, el('code', {}, command)) : el('code', {}, command);
}

function findingOf(row, links) {
  const where = [row.rank !== null ? `rank ${row.rank}` : '', row.stage ? `stage ${row.stage}` : '', ...Object.values(row.where || {}).filter((value) => value !== null).map(String)].filter(Boolean);
  const gain = row.headroom_us ? `up to ${alone('us', row.headroom_us)}: ` : '';
  const line = (name, value) => (value ? [el('dt', {}, name), el('dd', {}, value)] : []);
  return el('details', { class: 'finding', 'data-id': row.id, 'data-value': JSON.stringify(row.headroom_us) },
    el('summary', {}, el('strong', {}, row.id), ` ${gain}${row.finding}`),
    el('dl', {}, line('fix', row.fix), line('cause', row.cause), line('where', where.join(', ')), line('confidence', `${row.severity}, ${row.confidence}`), line('confirm', row.confirm)),
    el('ul', {}, (row.evidence || []).map((one) => el('li', {}, one.value, one.command ? [' \u2013 ', commandOf(one.command, links)] : ''))));
}

function unjudgedOf(part) {
  const list = part.totals.not_judged || [];
  if (!list.length) return '';
  return el('details', { class: 'unjudged' }, el('summary', {}, `not judged: ${list.map((one) => one.what).join(', ')}`),
    el('ul', {}, list.map((one) => el('li', {}, `${one.what}: ${one.why}; `, el('code', {}, one.how)))));
}

function findingsOf(part, links = false) {
  const serious = part.rows.filter((row) => row.severity !== 'note');
  return [serious.length ? '' : el('p', {}, 'Nothing to change above a note, in what could be judged.'), ...part.rows.map((row) => findingOf(row, links)), unjudgedOf(part)];
}

/* ---- stages ---- */

/* Returns one row a stage over all ranks, in the order of a tree, with its depth. */
function treeOf(rows) {
  const stages = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.parent, row.stage]);
    if (!stages.has(key)) stages.set(key, []);
    stages.get(key).push(row);
  }
  const all = [...stages.values()].map((list) => {
    const row = { stage: list[0].stage, parent: list[0].parent, ranks: list.length };
    for (const key of ['calls', 'done_us', 'self_us', 'cpu_us', 'device_us']) row[key] = knownSum(list.map((one) => one[key]));
    const done = list.map((one) => one.done_us);
    if (list.length > 1 && done.every(isNumber)) Object.assign(row, { least: Math.min(...done), most: Math.max(...done) });
    for (const key of ['median_us', 'max_us', 'peak_allocated_bytes']) row[key] = list.length === 1 ? list[0][key] : null;
    return row;
  });
  return inTree(all);
}

/* Puts each row below its parent. What has no parent in the rows, or is its own ancestor, stands at the top. */
function inTree(all) {
  const known = new Set(all.map((row) => row.stage)), below = new Map(), out = [], done = new Set();
  for (const row of all) {
    const parent = row.parent !== null && row.parent !== row.stage && known.has(row.parent) ? row.parent : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(row);
  }
  const todo = [...(below.get(null) || [])].reverse().map((row) => [row, 0]);
  while (todo.length) {
    const [row, depth] = todo.pop();
    if (done.has(row)) continue;
    done.add(row);
    out.push({ ...row, depth });
    const inner = out.filter((one) => one.stage === row.stage).length > 1 ? [] : below.get(row.stage) || [];
    todo.push(...[...inner].reverse().map((one) => [one, depth + 1]));
  }
  return [...out, ...all.filter((row) => !done.has(row)).map((row) => ({ ...row, depth: 0 }))];
}

const STAGE_COLUMNS = [{ ...STAGE, indent: true }, number('ranks', 'ranks'), number('calls', 'calls'), us('done_us', 'until done'), us('least', 'least of a rank'), us('most', 'most of a rank'),
  us('self_us', 'without inner stages'), us('median_us', 'median call'), us('max_us', 'longest call'), us('cpu_us', 'processor'), us('device_us', 'device'), bytes('peak_allocated_bytes', 'peak memory')];

/* ---- the tables ---- */

const SLOWEST_COLUMNS = [STAGE, RANK, id('pid', 'pid'), id('thread', 'thread'), us('start_us', 'start'), us('wall_us', 'time'), real('times_median', '\u00d7 median'), id('worker', 'worker'), word('shapes', 'shapes'), word('file', 'file')];
const OP_COLUMNS = [word('name', 'operator'), word('shapes', 'shapes'), number('calls', 'calls'), us('self_cpu_us', 'own host'), pct('host_share_pct', 'of all'), us('cpu_total_us', 'host with inner'), us('self_device_us', 'own device'), pct('device_share_pct', 'of all'),
  us('device_total_us', 'device with inner'), word('stack', 'line'), word('types', 'types'), bytes('device_mem_bytes', 'device memory'), real('flops', 'FLOP')];
const KERNEL_COLUMNS = [{ key: 'name', label: 'kernel', kind: 'name' }, word('kind', 'kind'), STAGE, RANK, number('calls', 'calls'), us('total_us', 'total'), us('mean_us', 'mean'), us('min_us', 'least'), us('max_us', 'most'), pct('pct', 'share')];
const SPOT_COLUMNS = [word('name', 'function'), word('file', 'file'), id('line', 'line'), STAGE, RANK, word('thread', 'thread'), word('waits_in', 'waits in'), number('samples', 'samples'), us('wall_us', 'time'),
  us('cpu_us', 'processor'), us('waiting_us', 'waiting'), us('device_idle_us', 'device idle'), pct('pct', 'share')];
const ROOF_COLUMNS = [word('name', 'operator'), STAGE, RANK, number('calls', 'calls'), us('device_us', 'device'), real('flops', 'FLOP'), bytes('bytes', 'bytes'), real('achieved_tflops', 'achieved', 'tflops'),
  real('achieved_gbs', 'achieved', 'gbs'), word('bound', 'bound'), us('headroom_us', 'headroom'), pct('pct', 'share'), word('shapes', 'shapes'), word('types', 'types')];
const DEVICE_COLUMNS = [RANK, us('total_us', 'span'), us('busy_us', 'busy'), pct('busy_pct', 'busy'), us('idle_us', 'idle'), us('computation_us', 'computing'), us('communication_us', 'communicating'),
  us('exposed_communication_us', 'not hidden'), us('memcpy_us', 'copying'), us('exposed_memcpy_us', 'not hidden')];
const COMM_COLUMNS = [word('name', 'collective'), word('group', 'group'), id('seq', 'number'), number('ranks', 'ranks'), bytes('bytes', 'bytes'), us('duration_us', 'time'), us('start_skew_us', 'skew of starts'), us('transfer_us', 'transfer'),
  real('algbw_gbs', 'algorithm', 'gbs'), real('busbw_gbs', 'bus', 'gbs'), id('last_rank', 'last rank')];
const LATE_COLUMNS = [RANK, STAGE, id('step', 'step'), real('score', 'score'), number('collectives', 'collectives'), us('late_us', 'late')];
const FILE_COLUMNS = [word('path', 'path'), word('function', 'function'), RANK, number('calls', 'calls'), number('errors', 'errors'), bytes('bytes', 'bytes'), us('total_us', 'time'), us('unoverlapped_us', 'alone'), us('idle_us', 'device idle'), real('bandwidth_mbs', 'MB/s')];
const START_COLUMNS = [RANK, word('what', 'what'), word('name', 'name'), us('start_us', 'start'), us('total_us', 'with inner'), us('own_us', 'own'), pct('pct', 'share'), word('reason', 'reason')];
const CLOCK_COLUMNS = [RANK, id('device', 'device'), word('name', 'name'), number('samples', 'samples'), number('sm_clock_mhz', 'SM MHz'), number('sm_clock_min_mhz', 'least'), number('power_w', 'W'), number('temperature_c', '\u00b0C'), pct('limited_pct', 'limited')];
const INFO_COLUMNS = [word('path', 'trace'), word('kind', 'kind'), RANK, id('pid', 'pid'), word('host', 'host'), us('duration_us', 'time'), word('complete', 'complete'), word('lost', 'lost'), word('health', 'doubts'), us('own_cost_us', 'cost of recording'),
  number('threads', 'threads'), word('devices', 'devices'), word('machine', 'machine'), word('recording', 'recording'), word('messages', 'messages')];

/* Returns the innermost frame that is a line of a file. */
const lineOf = (stack) => (stack || []).find((frame) => /\(\d+\): /.test(frame)) || null;

/* Adds to the rows of `ops` their shares, and the types that `roofline` knows of the operators with these inputs. */
function operatorsOf(ops, roofline) {
  const types = new Map(), key = (row) => JSON.stringify([row.name, row.shapes]);
  for (const row of roofline.rows) if (row.types) types.set(key(row), new Set([...(types.get(key(row)) || []), row.types]));
  const share = (value, all) => (isNumber(value) && all > 0 ? (100 * value) / all : null);
  return ops.rows.map((row) => ({ ...row, types: [...(types.get(key(row)) || [])].join(' | ') || null, stack: lineOf(row.stack),
    host_share_pct: share(row.self_cpu_us, ops.totals.self_cpu_us), device_share_pct: share(row.self_device_us, ops.totals.self_device_us) }));
}

/* Returns columns for the keys that the rows have and nobody named. */
function columnsOf(rows, named = []) {
  const keys = new Set(rows.flatMap((row) => Object.keys(row)));
  const kind = (key) => (key.endsWith('_us') ? 'us' : key.endsWith('_bytes') ? 'bytes' : key.endsWith('_pct') || key === 'pct' ? 'pct' : ['rank', 'pid', 'thread', 'device'].includes(key) ? 'id' : rows.every((row) => row[key] === null || isNumber(row[key])) ? 'count' : 'text');
  const known = named.filter((column) => keys.has(column.key));
  return [...known, ...[...keys].filter((key) => !known.some((column) => column.key === key)).map((key) => ({ key, label: key.replace(/_(us|bytes|pct)$/, '').replaceAll('_', ' '), kind: kind(key) }))];
}

/* Draws what is read first, lets the browser show it, and draws the rest. */
async function drawRun(data) {
  const parts = partsById(data.runs[0].parts), leaves = leavesOfAll(leavesByRank(parts.budget.rows));
  drawHead(first(parts.info.rows, 'command') || first(parts.info.rows, 'path') || 'a run', factsOf(parts.info), startAgainstWork(leaves));
  section('verdict', 'Where the time went', budgetOf(parts.budget));
  section('findings', 'What to change', findingsOf(parts.advise, true));
  await new Promise((shown) => { requestAnimationFrame(() => setTimeout(shown)); });
  section('stages', 'Stages', tableOf(parts.stages, 'stage-table', STAGE_COLUMNS, treeOf(parts.stages.rows)));
  section('slowest', 'Slowest calls', tableOf(parts.slowest, 'slowest-table', columnsOf(parts.slowest.rows, SLOWEST_COLUMNS)));
  section('timeline', 'Timeline', timelineOf(data.runs[0].timeline, parts.advise.rows));
  section('operators', 'Operators and kernels', tableOf(parts.ops, 'ops', OP_COLUMNS, operatorsOf(parts.ops, parts.roofline)), el('h3', {}, 'Device work'), tableOf(parts.breakdown, 'kernels', KERNEL_COLUMNS));
  section('flames', 'Flame graph', flameOf(data.runs[0].flames, parts.hotspots));
  section('lines', 'Lines of code', tableOf(parts.hotspots, 'hotspots', SPOT_COLUMNS));
  section('devices', 'Devices', tableOf(parts.timeline, 'device-table', DEVICE_COLUMNS), el('h3', {}, 'Clocks'), tableOf(parts.clocks, 'clocks', CLOCK_COLUMNS));
  section('memory', 'Memory', memoryOf(data.runs[0].memory, 'tfanalyze memory --layout html --rank N'), el('h3', {}, 'Peaks by stage'), tableOf(parts.memory, 'memory-table', columnsOf(parts.memory.rows)));
  section('collectives', 'Collectives', tableOf(parts.comm, 'comm', COMM_COLUMNS), el('h3', {}, 'Late ranks'), tableOf(parts.stragglers, 'stragglers', LATE_COLUMNS));
  section('files', 'Files', tableOf(parts.io, 'io', FILE_COLUMNS));
  section('roofline', 'Roofline', rooflineChart(parts.roofline.rows, parts.roofline.totals.peaks), tableOf(parts.roofline, 'roof-table', ROOF_COLUMNS));
  section('startup', 'Start-up', tableOf(parts.startup, 'startup-table', START_COLUMNS));
  section('recording', 'How it was recorded', tableOf(parts.info, 'info', INFO_COLUMNS), el('p', { class: 'soft' }, `tfanalyze ${data.version}`));
}
