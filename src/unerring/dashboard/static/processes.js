// Instances of processes: found among many, and each on its drawn graph.

import { draw, forget } from './diagram.js';
import { h, patch } from './dom.js';
import { count, seconds, value, wallClock, wallTime } from './format.js';
import { chip, empty, figure, notices, orders, panel, withToken } from './parts.js';
import { Rows } from './rows.js';
import { ask, calmly, changed, state, steer } from './state.js';

const PAGE = 200;
let rows = null;
let find = '', status = '', process = '';
let pages = new Map();
let matching = 0, total = 0;
let asked = 0;
let chosen = null; // {id, told, graph, error}
let timer = null;
let opened = '';

async function load(first) {
  const page = Math.floor(first / PAGE);
  if (pages.get(page) === 'asked') return;
  if (!pages.has(page)) pages.set(page, 'asked');
  const turn = (asked += 1);
  const what = `${find}|${status}|${process}`;
  const query = new URLSearchParams({ first: page * PAGE, count: PAGE, find, status, process });
  const answer = await ask(`/api/instances?${query}`);
  if (what !== `${find}|${status}|${process}`) return;
  if (answer.error) {
    pages.delete(page);
    return;
  }
  pages.set(page, answer.items);
  matching = answer.matching;
  total = answer.total;
  if (turn) changed();
}

function afresh() {
  pages = new Map();
  matching = 0;
  if (rows) rows.body.scrollTop = 0;
  load(0);
}

const search = calmly(afresh);

function again() {
  // What is on the screen is asked for once more; what is not is forgotten.
  const at = rows ? Math.floor(rows.body.scrollTop / rows.height / PAGE) : 0;
  for (const page of [...pages.keys()]) if (page !== at) pages.delete(page);
  load(at * PAGE);
  if (chosen && !chosen.final) look(chosen.id);
}

const FINAL = new Set(['completed', 'cancelled', 'failed', 'parked']);

async function look(id) {
  const told = await ask(`/api/instances/${encodeURIComponent(id)}`);
  if (chosen?.id !== id) return;
  chosen.told = told.error ? chosen.told : told;
  chosen.error = told.error || null;
  chosen.final = FINAL.has(told.now?.status);
  if (told.now && !chosen.graph) {
    const graph = await ask(`/api/graphs/${encodeURIComponent(told.now.process)}?version=${encodeURIComponent(told.now.version || '')}`);
    if (chosen?.id === id) chosen.graph = graph;
  }
  changed();
}

function open(id) {
  chosen = { id, told: null, graph: null, error: null, final: false };
  look(id);
  changed();
}

// ---- the drawn graph ----

const WIDE = 138, TALL = 54, GAP_X = 40, GAP_Y = 20;

function places(graph) {
  const before = new Map(graph.vertices.map((vertex) => [vertex.name, []]));
  for (const edge of graph.edges) if (edge.target && edge.source) before.get(edge.target).push(edge.source);
  const layer = new Map();
  const depth = (name) => {
    if (!layer.has(name)) layer.set(name, Math.max(0, ...before.get(name).map((one) => depth(one) + 1)));
    return layer.get(name);
  };
  const columns = [];
  for (const vertex of graph.vertices) (columns[depth(vertex.name)] ||= []).push(vertex);
  const high = Math.max(...columns.map((column) => column.length));
  const found = new Map();
  let x = 34;
  columns.forEach((column) => {
    const wide = column.some((vertex) => isAction(vertex)) ? WIDE : 40;
    column.forEach((vertex, row) => found.set(vertex.name, { x, wide, y: 10 + ((high - column.length) / 2 + row) * (TALL + GAP_Y) }));
    x += wide + GAP_X;
  });
  return { found, width: x + 6, height: high * (TALL + GAP_Y) + 10 };
}

const isAction = (vertex) => !/split|join/.test(vertex.kind);

// Ids of interactions that were undone: those of the process itself, and those of executions that did not count, because
// another view went on without them.
function undoneOf(told) {
  const own = new Map((told.history?.undone || []).map((one) => [one.iid, one]));
  const aside = new Map();
  for (const one of told.timeline || []) {
    const said = one.what === 'undoes' && /: group (\d+) of view (\d+): (.+)$/.exec(one.said);
    for (const iid of said ? said[3].split(', ') : []) aside.set(iid, { iid, vertex: iid.slice(told.now.instance.length + 1).split('/')[0], group: said[1], view: said[2], who: one.who, at_us: one.at_us });
  }
  return { own, aside };
}

function done(told) {
  const found = new Map();
  for (const group of told.history?.groups || []) {
    for (const action of group.actions) found.set(action.vertex, { ...action, group: group.group, view: group.view, master: group.master });
  }
  return found;
}

function drawing(graph, told) {
  const { found, width, height } = places(graph);
  const taken = done(told);
  const undone = undoneOf(told);
  const undoneAside = (name) => [...undone.aside.values()].filter((one) => one.vertex === name);
  const middle = height / 2 - 5;
  const at = (name, side) => {
    if (!name) return side === 'out' ? [8, middle] : [width - 8, middle];
    const { x, y, wide } = found.get(name);
    return [side === 'out' ? x + wide : x, y + TALL / 2];
  };
  const passed = (edge) => (edge.source ? reached(edge.source) : true) && (edge.target ? reached(edge.target) : told.now.status === 'completed');
  const control = new Map();
  const isXor = (name) => graph.vertices.find((one) => one.name === name)?.kind === 'xor-split';
  const reached = (name) => {
    if (taken.has(name)) return true;
    const vertex = graph.vertices.find((one) => one.name === name);
    if (isAction(vertex)) return false;
    if (!control.has(name)) {
      control.set(name, false);
      const before = graph.edges.filter((edge) => edge.target === name);
      control.set(name, before.some((edge) => !edge.source || reached(edge.source)));
    }
    return control.get(name);
  };
  return h('div', { class: 'graph-scroll', tabindex: 0, role: 'region', 'aria-label': 'Graph of the process' }, h('svg', { class: 'graph', viewBox: `0 0 ${width} ${height}`, style: { 'max-width': `${width}px` }, role: 'img', 'aria-label': `Process ${told.now.process}; done: ${[...taken.keys()].join(', ') || 'nothing yet'}` },
    h('circle', { class: 'end', cx: 8, cy: middle, r: 5 }),
    h('circle', { class: `end${told.now.status === 'completed' ? ' done' : ''}`, cx: width - 8, cy: middle, r: 5 }),
    graph.edges.map((edge, number) => {
      const [x1, y1] = at(edge.source, 'out'), [x2, y2] = at(edge.target, 'in'), bend = (x1 + x2) / 2;
      return [
        h('path', { key: `e${number}`, class: `flow${passed(edge) ? ' done' : ''}`, d: `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}` }),
        edge.label && isXor(edge.source) && h('text', { key: `l${number}`, class: 'edge-label', x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, 'text-anchor': 'middle' }, edge.label),
      ];
    }),
    graph.vertices.map((vertex) => {
      const { x, y, wide } = found.get(vertex.name), action = taken.get(vertex.name);
      if (!isAction(vertex)) {
        const cx = x + wide / 2, cy = y + TALL / 2, r = 19;
        return h('g', { key: vertex.name, class: `control${reached(vertex.name) ? ' done' : ''}` }, h('polygon', { points: `${cx},${cy - r} ${cx + r},${cy} ${cx},${cy + r} ${cx - r},${cy}` }),
          h('text', { x: cx, y: cy + 5, 'text-anchor': 'middle' }, vertex.kind.startsWith('xor') ? '×' : '+'), h('title', {}, `${vertex.kind} ${vertex.condition || ''}`));
      }
      const final = vertex.write && !vertex.compensable;
      const gone = action && undone.own.has(action.iid), aside = undoneAside(vertex.name);
      const kind = vertex.write ? (final ? 'cannot be undone' : 'can be undone') : vertex.service === 'local' ? vertex.kind : 'reads';
      return h('g', { key: vertex.name, class: `action ${vertex.write ? (final ? 'final' : 'write') : 'read'}${action ? ' done' : ''}${gone ? ' undone' : ''}` },
        h('rect', { x, y, width: wide, height: TALL, rx: 8 }),
        h('text', { class: 'name', x: x + wide / 2, y: y + 21, 'text-anchor': 'middle' }, vertex.name.length > 18 ? `${vertex.name.slice(0, 17)}…` : vertex.name),
        h('text', { class: 'facts', x: x + wide / 2, y: y + 39, 'text-anchor': 'middle' }, action ? `group ${action.group} · view ${action.view} · ${action.master}` : vertex.service === 'local' ? vertex.kind : vertex.service),
        action && h('circle', { class: 'tick', cx: x + wide - 2, cy: y + 2, r: 8 }),
        action && h('text', { class: 'tick-text', x: x + wide - 2, y: y + 5.6, 'text-anchor': 'middle' }, gone ? '↺' : '✓'),
        aside.length ? [h('circle', { class: 'tick aside', cx: x + 2, cy: y + 2, r: 8 }), h('text', { class: 'tick-text', x: x + 2, y: y + 5.6, 'text-anchor': 'middle' }, '↺')] : null,
        h('title', {}, `${vertex.name} at ${vertex.service}: ${kind}${action ? `; ${action.iid}` : ''}${gone ? '; undone' : ''}${aside.map((one) => `; undone in view ${one.view}: ${one.iid}`).join('')}`));
    })));
}

// Ids begin with the instance's own, which stands above.
const own = (text, told) => text.replaceAll(told.now.instance, '…');

function history(told) {
  const groups = told.history?.groups || [];
  if (!groups.length) return empty('No group is decided yet.');
  return h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Actions of the instance' }, h('table', { class: 'dense' },
    h('thead', {}, h('tr', {}, ['group', 'view', 'master', 'when', 'action', 'interaction id', 'took', 'reply'].map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, groups.flatMap((group) => (group.actions.length ? group.actions : [null]).map((action, at) => h('tr', { key: `${group.group}.${at}` },
      h('td', {}, at ? '' : group.group), h('td', {}, at ? '' : group.view), h('td', {}, at ? '' : group.master), h('td', { class: 'nowrap' }, at ? '' : wallTime(group.at_us).split(', ').at(-1)),
      h('td', {}, action ? action.vertex : h('span', { class: 'soft' }, 'agreed')), h('td', { class: 'mono iid', title: action?.iid }, action ? own(action.iid, told) : ''),
      h('td', { class: 'right nowrap' }, action && action.took_us ? seconds(action.took_us / 1e6) : ''), h('td', { class: 'reply', title: action ? value(action.reply) : '' }, action ? own(value(action.reply), told) : '')))),
    compensations(told))));
}

// Each compensation names the interaction that it undoes, by its id.
function compensations(told) {
  const { own: ownUndone, aside } = undoneOf(told);
  const row = (one, group, view, who, when, why) => h('tr', { key: `undo ${one.iid}`, class: 'undo' }, h('td', {}, group), h('td', {}, view), h('td', {}, who), h('td', { class: 'nowrap' }, when),
    h('td', { class: 'nowrap' }, '↺ undoes ', one.vertex), h('td', { class: 'mono iid', title: one.iid }, own(one.iid, told)), h('td', { class: 'right nowrap' }, one.took_us ? seconds(one.took_us / 1e6) : ''), h('td', { class: 'reply', title: why }, why));
  const was = new Map((told.history?.groups || []).flatMap((group) => group.actions.map((action) => [action.iid, group])));
  return [
    [...ownUndone.values()].map((one) => row(one, was.get(one.iid)?.group ?? '', was.get(one.iid)?.view ?? '', '', '', told.now.reason || 'the process was undone')),
    [...aside.values()].map((one) => row(one, one.group, one.view, one.who, wallClock(one.at_us), 'another view continued without it')),
  ];
}

// Views that were asked for, by whom and why.
function views(told) {
  const asked = (told.timeline || []).filter((one) => one.what === 'view');
  return asked.length ? [h('h3', {}, 'Views'), h('ol', { class: 'latest' }, asked.map((one) => h('li', { key: `${one.at_us} ${one.who}` },
    h('span', { class: 'when mono' }, wallClock(one.at_us)), h('span', { class: 'said' }, one.said.slice(told.now.instance.length + 2).replaceAll('/processes', '')))))] : null;
}

// What an open instance waits for: "signal approved, patience, 14 s left".
export function waiting(item) {
  const left = (until_us) => seconds(Math.max(0, until_us / 1e6 - Date.now() / 1000));
  const words = (item.waits_for || []).map((one) => one.kind === 'signal' ? `signal ${one.channel}` : one.kind === 'time' ? `${one.wait}, ${left(one.until_us)} left` : `${one.kind} ${one.wait}`);
  return [words.join(', '), item.waits].filter(Boolean).join('; ');
}

const keys = (item) => Object.entries(item.attributes || {}).filter(([, given]) => given !== null && given !== '').map(([name, given]) => `${name} ${value(given)}`).join(', ');

// What an operator may do with an open instance; each needs the token.
function steering(now) {
  if (FINAL.has(now.status)) return null;
  const send = (verb, fields = {}) => withToken(verb, now.instance, async () => {
    const answer = await steer(verb, { instance: now.instance, ...fields });
    look(now.instance);
    return answer;
  });
  const button = (verb, does = () => send(verb)) => h('button', { class: 'small', onClick: does, 'aria-label': `${verb} ${now.instance}` }, verb);
  const channels = [...new Set((now.waits_for || []).filter((one) => one.kind === 'signal').map((one) => one.channel))];
  return h('p', { class: 'orders steering' },
    button('cancel'), button('retry'), now.status === 'held' ? button('resume') : button('hold'),
    channels.map((channel) => h('form', { key: channel, class: 'signal', onSubmit: (event) => {
      event.preventDefault();
      const text = event.target.elements.payload.value.trim();
      let payload = text;
      try { payload = text ? JSON.parse(text) : null; } catch { /* text that is no JSON is sent as text */ }
      send('signal', { channel, payload });
    } }, h('input', { name: 'payload', placeholder: `JSON for ${channel}`, 'aria-label': `payload for signal ${channel}` }), h('button', { class: 'small', type: 'submit', 'aria-label': `signal ${channel} to ${now.instance}` }, `signal ${channel}`))));
}

function detail() {
  if (!chosen) return panel('Instance', null, empty('Choose an instance to see it on its graph.'));
  const close = h('button', { class: 'quiet', onClick: () => { chosen = null; rows.chosen = null; history_.replace(''); changed(); } }, 'close');
  if (!chosen.told) return panel(chosen.id, close, chosen.error ? h('p', { class: 'bad-text' }, chosen.error) : h('p', { class: 'soft' }, 'asking its nodes…'));
  const { now, replicas } = chosen.told;
  const lists = [['asks', 'asks now'], ['compensating', 'compensates'], ['stuck', 'does not undo']].filter(([name]) => now[name]?.length);
  return panel(h('span', { class: 'mono' }, chosen.id), close,
    h('p', { class: 'facts-line' }, chip(now.status), ' ', h('b', {}, now.process), h('span', { class: 'soft' }, ` version ${now.version?.slice(0, 8)}`),
      now.view !== undefined && h('span', {}, `view ${now.view}`), now.group !== undefined && h('span', {}, `group ${now.group}`), now.reason && h('span', { class: 'bad-text' }, now.reason)),
    h('p', { class: 'replica-line' },
      waiting(now) && h('span', { class: 'waits' }, 'waits for ', waiting(now)), keys(chosen.told) && h('span', { class: 'keys' }, keys(chosen.told)),
      now.parent && h('span', {}, 'child of ', h('a', { href: `#processes/${encodeURIComponent(now.parent)}` }, now.parent)),
      chosen.told.situation && h('span', { class: 'cause' }, 'started by ', h('a', { href: `#situations/${encodeURIComponent(chosen.told.situation.stream)}/${chosen.told.situation.time}/${chosen.told.situation.ordinal}` }, chosen.told.situation.stream), ` at ${wallTime(chosen.told.situation.time)}`)),
    steering(now),
    chosen.graph?.drawn ? [h('div', { own: true, key: `drawn ${chosen.graph.version}`, class: 'bpmn', id: 'bpmn-here', role: 'img', 'aria-label': `Drawn process ${now.process}` })] : chosen.graph?.vertices ? drawing(chosen.graph, chosen.told) : chosen.graph?.error ? h('p', { class: 'soft' }, chosen.graph.error) : null,
    chosen.graph?.drawn ? h('p', { class: 'legend soft' }, ['done', 'running', 'waiting', 'failed', 'undone'].map((name) => h('span', { key: name }, h('i', { class: `bpmn-box is-${name}` }), name))) : h('p', { class: 'legend soft' }, h('span', {}, h('i', { class: 'box read' }), 'reads'), h('span', {}, h('i', { class: 'box write' }), 'writes, can be undone'), h('span', {}, h('i', { class: 'box final' }), 'cannot be undone'), h('span', {}, h('i', { class: 'glyph good' }, '✓'), 'done'), h('span', {}, h('i', { class: 'glyph warn' }, '↺'), 'undone')),
    replicas.length ? h('p', { class: 'replica-line' }, replicas.map((one) => h('span', { key: one.node }, h('b', {}, one.node), ` ${one.role}${one.view === null || one.view === undefined ? '' : `, view ${one.view}`}`))) : null,
    lists.map(([name, words]) => h('p', { class: 'bad-text', key: name }, `${words}: ${now[name].join('; ')}`)),
    h('h3', {}, 'Groups and interactions'), history(chosen.told), views(chosen.told),
    h('h3', {}, 'State'), h('dl', { class: 'variables' }, Object.entries(now.variables || {}).map(([name, given]) => h('div', { key: name }, h('dt', {}, name), h('dd', { title: value(given) }, own(value(given), chosen.told))))));
}

const history_ = { replace: (id) => { opened = id; history_.set(id); }, set: (id) => window.history.replaceState(null, '', `#processes${id ? `/${encodeURIComponent(id)}` : ''}`) };

function list() {
  rows = new Rows({
    label: 'Instances', height: 36,
    choose: (item) => { open(item.instance); history_.replace(item.instance); },
    need: load,
    render: (item) => [
      chip(item.status), h('span', { class: 'instance mono', title: keys(item) }, item.instance),
      h('span', { class: 'soft view' }, item.view === undefined ? '' : `view ${item.view}`), h('span', { class: 'soft ended' }, item.ended_us ? wallTime(item.ended_us).split(', ').at(-1) : waiting(item) || item.role || ''),
    ],
  });
  timer = setInterval(() => state.document.run?.state === 'running' && !document.hidden && again(), 2000);
}

// An address may name an instance, also one that is changed while this view is open.
function follow() {
  const wanted = decodeURIComponent(location.hash.split('/').slice(1).join('/'));
  if (!wanted || wanted === opened) return;
  opened = wanted;
  open(wanted);
  rows.chosen = wanted;
}

const pick = (label, now, options, set) => h('select', { 'aria-label': label, value: now, onChange: (event) => { set(event.target.value); afresh(); changed(); } },
  h('option', { value: '' }, label), options.map((option) => h('option', { key: option, value: option, selected: option === now }, option)));

export const processes = {
  draw(main) {
    const told = state.document.processes;
    if (!rows) {
      list();
      afresh();
    }
    follow();
    const statuses = [...new Set(Object.values(told.by_process).flatMap((counts) => Object.keys(counts)))].sort();
    patch(main, [
      ...notices(),
      h('section', { class: 'panel figures' },
        figure('instances', count(told.instances)), figure('open', count(told.open)),
        statuses.map((name) => figure(name, count(Object.values(told.by_process).reduce((all, counts) => all + (counts[name] || 0), 0)), ['failed', 'held', 'parked'].includes(name) ? 'bad' : '')),
        Object.entries(told.waiting).map(([service, number]) => figure(`wait for ${service}`, count(number), 'bad')),
        figure('in a later view', count(told.later_views)), figure('do not undo', count(told.stuck), told.stuck ? 'bad' : ''),
        h('div', { class: 'nodes' }, told.nodes.map((node) => h('span', { key: node.name, class: 'node-line', 'data-name': node.name }, chip(node.state, `${node.name} ${node.state}`), node.why ? h('span', { class: 'soft' }, ` ${node.why}`) : '', orders(node.name, node.state === 'running' || node.state === 'joining'))))),
      h('div', { class: `split${chosen ? ' open' : ''}` },
        panel('Instances', h('span', { class: 'soft' }, `${count(matching)} of ${count(told.instances)}`),
          h('div', { class: 'tools filters' },
            h('input', { type: 'search', placeholder: 'Find by id or key', 'aria-label': 'Find by id or key', value: find, onInput: (event) => { find = event.target.value; search(); } }),
            pick('every process', process, Object.keys(told.by_process), (is) => { process = is; }), pick('every status', status, statuses, (is) => { status = is; })),
          h('div', { own: true, class: 'rows-here', id: 'instance-rows' })),
        detail()),
    ]);
    const drawn = document.getElementById('bpmn-here');
    if (drawn) {
      const { process: name, version } = chosen.told.now;
      draw(drawn, chosen.graph.version, `/api/drawings/${encodeURIComponent(name)}?version=${encodeURIComponent(version || '')}`, chosen.told.marks || {});
    } else forget();
    const here = document.getElementById('instance-rows');
    if (rows.element.parentNode !== here) here.append(rows.element);
    rows.show(matching, (index) => { const page = pages.get(Math.floor(index / PAGE)); return Array.isArray(page) ? page[index % PAGE] : undefined; }, (item) => item.instance);
  },
  leave() {
    clearInterval(timer);
    forget();
    rows = null;
    chosen = null;
    opened = '';
    pages = new Map();
  },
};
