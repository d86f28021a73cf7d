// The query tree: what flows from where to where, who leads, how much waits.

import { h, patch } from './dom.js';
import { count, plural, seconds, short } from './format.js';
import { chip, empty, notices, orders, panel } from './parts.js';
import { changed, state } from './state.js';

const ALIVE = new Set(['running', 'member', 'joining', 'starting', 'elsewhere']);
const sum = (streams, what) => Object.values(streams || {}).reduce((all, one) => all + (one.part ? 0 : one[what]), 0);

export function nodesOf(document) {
  const byNode = new Map();
  for (const told of document.live?.processes || []) {
    const name = told.shard_of || told.name.split('/')[0];
    if (!byNode.has(name)) byNode.set(name, []);
    byNode.get(name).push(told);
  }
  const levels = new Map();
  for (const level of document.spark?.levels || []) for (const rule of level.rules) levels.set(rule, level);
  const nodes = (document.tree?.nodes || []).filter((node) => node.role !== 'application').map((node) => {
    const replicas = byNode.get(node.runs_on) || [];
    const leaders = replicas.filter((one) => one.leads && ALIVE.has(one.state));
    const best = leaders[0] || replicas.find((one) => ALIVE.has(one.state)) || replicas[0];
    const onSpark = levels.get(node.name);
    return {
      ...node,
      place: node.level,
      title: node.role === 'source' ? node.outputs[0] : node.name,
      replicas,
      leaders: leaders.length,
      made: node.outputs.reduce((all, stream) => all + (document.streams?.[stream]?.events || 0), 0),
      queued: best ? sum(best.outputs, 'queued') : null,
      waiting: best ? sum(best.inputs, 'waiting') : null,
      lag: best ? best.lag_s : onSpark ? onSpark.lag_s : null,
      onSpark,
    };
  });
  const started = new Map((document.tree?.reactions || []).map((one) => [one.process, []]));
  for (const one of document.tree?.reactions || []) started.get(one.process).push(one.situation);
  const top = Math.max(0, ...nodes.map((node) => node.place));
  const acts = [...started].map(([process, situations]) => ({ name: `process ${process}`, title: process, role: 'process', place: top + 1, inputs: situations, outputs: [], replicas: [], counts: document.processes?.by_process?.[process] || {} }));
  return [...nodes, ...acts];
}

const WIDE = 210, GAP_X = 46;

// Columns by level. An edge that passes a column gets a lane of its own there, so that it runs between nodes, not behind
// them; everything then stands near the middle of what it is joined to, which keeps crossings few.
function layout(nodes) {
  const places = [...new Set(nodes.map((node) => node.place))].sort((one, other) => one - other);
  const columns = places.map(() => []);
  const makers = new Map(nodes.flatMap((node) => node.outputs.map((stream) => [stream, node])));
  for (const node of nodes) {
    node.column = places.indexOf(node.place);
    node.near = [];
    columns[node.column].push(node);
  }
  const crowded = Math.max(0, ...columns.map((column) => column.length)) > 14;
  const tall = crowded ? 28 : 64, gap = crowded ? 5 : 12;
  const lanes = new Map();
  const routes = nodes.flatMap((node) => node.inputs.filter((stream) => makers.has(stream)).map((stream) => {
    const from = makers.get(stream), via = [];
    let before = from;
    for (let at = from.column + 1; at < node.column; at += 1) {
      const name = `${stream} ${at}`; // one lane for all that read the stream further on
      if (!lanes.has(name)) {
        lanes.set(name, { name, column: at, lane: true, near: [] });
        columns[at].push(lanes.get(name));
      }
      const lane = lanes.get(name);
      lane.near.push(before);
      before.near.push(lane);
      via.push(lane);
      before = lane;
    }
    before.near.push(node);
    node.near.push(before);
    return { stream, from, to: node, via };
  }));
  const sizeOf = (item) => (item.lane ? (crowded ? 4 : 8) : tall);
  const stack = (column) => {
    let y = 0;
    for (const item of column) {
      item.y = y;
      y += sizeOf(item) + gap;
    }
    return y - gap;
  };
  for (const column of columns) stack(column);
  const middle = (item) => item.y + sizeOf(item) / 2;
  for (let turn = 0; turn < 6; turn += 1) {
    for (const column of turn % 2 ? [...columns].reverse() : columns) {
      const wanted = new Map(column.map((item) => [item, item.near.length ? item.near.reduce((all, one) => all + middle(one), 0) / item.near.length : middle(item)]));
      column.sort((one, other) => wanted.get(one) - wanted.get(other));
      const used = stack(column);
      const shift = [...wanted.values()].reduce((all, one) => all + one, 0) / column.length - used / 2;
      for (const item of column) item.y += shift;
    }
  }
  const top = Math.min(...columns.flat().map((item) => item.y));
  for (const item of columns.flat()) item.y -= top;
  const height = Math.max(...columns.flat().map((item) => item.y + sizeOf(item)));
  for (const item of columns.flat()) item.x = item.column * (WIDE + GAP_X);
  return { width: columns.length * (WIDE + GAP_X) - GAP_X, height, tall, crowded, routes, middle };
}

let focused = null;
let reached = null; // the node that Tab comes to; arrow keys go on from there

// The nearest node in a direction: along its column, or in the next one that has nodes.
function neighbour(nodes, from, key) {
  const column = nodes.filter((node) => node.column === from.column).sort((one, other) => one.y - other.y);
  const at = column.indexOf(from);
  if (key === 'ArrowUp' || key === 'ArrowDown') return column[at + (key === 'ArrowUp' ? -1 : 1)];
  const aside = nodes.filter((node) => (key === 'ArrowRight' ? node.column > from.column : node.column < from.column));
  const next = key === 'ArrowRight' ? Math.min(...aside.map((node) => node.column)) : Math.max(...aside.map((node) => node.column));
  return aside.filter((node) => node.column === next).sort((one, other) => Math.abs(one.y - from.y) - Math.abs(other.y - from.y))[0];
}

function keys(nodes, choose) {
  return (event) => {
    const from = nodes.find((node) => node.name === event.target.dataset?.node);
    if (!from) return;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      choose(from.name);
    } else if (event.key.startsWith('Arrow')) {
      event.preventDefault();
      const to = neighbour(nodes, from, event.key);
      if (!to) return;
      reached = to.name;
      document.querySelector(`.tree [data-node="${CSS.escape(to.name)}"]`)?.focus();
      changed();
    }
  };
}

function edges({ routes, middle }) {
  return routes.map(({ stream, from, to, via }) => {
    let x = from.x + WIDE, y = middle(from), path = `M${x} ${y}`;
    for (const stop of [...via, to]) {
      const bend = (stop.x - x) / 2, next = middle(stop);
      path += `C${x + bend} ${y} ${stop.x - bend} ${next} ${stop.x} ${next}`;
      x = stop.x;
      y = next;
      if (stop.lane) path += `L${(x += WIDE)} ${y}`;
    }
    const lit = focused && (focused === from.name || focused === to.name);
    return h('path', { key: `${stream}>${to.name}`, class: `edge${lit ? ' lit' : ''}${focused && !lit ? ' dim' : ''}`, d: path }, h('title', {}, `${stream}: ${from.title} to ${to.title}`));
  });
}

// A dot for each replica, and their marks as one text: texts are laid out one by one, which is much of what a tree costs.
function pills(node, y) {
  const shown = node.replicas.slice(0, 5).map((one, at) => {
    const ended = one.state === 'ended', silent = one.state === 'silent', dead = !ended && !silent && !ALIVE.has(one.state);
    const tone = dead ? 'dead' : ended ? 'ended' : silent ? 'warn' : one.leads ? 'lead' : one.state === 'member' || one.state === 'running' ? 'up' : 'warn';
    const mark = dead ? '✕' : silent ? '?' : one.name.split('/')[1];
    return { name: one.name, tone, mark, x: node.x + WIDE - 14 - (Math.min(node.replicas.length, 5) - 1 - at) * 21 };
  });
  return [
    shown.map(({ name, tone, x }) => h('circle', { key: name, class: `pill ${tone}`, cx: x, cy: y, r: 8.5 })),
    h('text', { key: 'marks', class: 'marks', 'aria-hidden': 'true', y: y + 3.6 }, shown.map(({ name, tone, mark, x }) => mark && h('tspan', { key: name, class: tone, x }, mark))),
  ];
}

const acted = () => Boolean(state.document.processes?.nodes.length);

function card(node, tall, crowded, choose) {
  const hurt = node.replicas.some((one) => !ALIVE.has(one.state) && one.state !== 'ended' && one.state !== 'silent');
  const told = node.role === 'process'
    ? [Object.entries(node.counts).map(([status, number]) => `${count(number)} ${status}`).join(', ') || (acted() ? 'none yet' : 'not in this run')]
    : [`${short(node.made)}`, node.onSpark ? `level ${node.onSpark.number} on Spark` : '', node.queued ? `${short(node.queued)} queued` : '', node.waiting ? `${short(node.waiting)} waiting` : '', node.lag ? `lag ${seconds(node.lag)}` : ''].filter(Boolean);
  const facts = told.join(' · ');
  const what = node.role === 'source' ? 'stream' : node.role === 'process' ? 'process' : node.onSpark ? `rule on Spark, level ${node.onSpark.number}` : 'rule';
  const label = `${what} ${node.title}: ${facts}; ${node.replicas.map((one) => `${one.name} ${one.state}${one.leads ? ' leads' : ''}`).join(', ')}`;
  const cut = node.replicas.length ? WIDE - 30 - 21 * Math.min(node.replicas.length, 5) : WIDE - 24;
  const fit = (text, px, size) => (text.length * size * 0.545 > px ? `${text.slice(0, Math.max(3, Math.floor(px / (size * 0.545)) - 1))}…` : text);
  const shown = told.filter((_, at) => !at || told.slice(0, at + 1).join(' · ').length * 11.5 * 0.545 <= WIDE - 24).join(' · '); // whole facts
  return h('g', {
    key: node.name, class: `node ${node.role}${hurt ? ' hurt' : ''}${focused === node.name ? ' chosen' : ''}`, tabindex: node.name === reached ? 0 : -1, role: 'button',
    'aria-pressed': focused === node.name ? 'true' : 'false', 'data-node': node.name, onClick: () => { reached = node.name; choose(node.name); },
  },
    h('title', {}, label),
    h('rect', { x: node.x, y: node.y, width: WIDE, height: tall, rx: crowded ? 6 : 9 }),
    h('rect', { class: 'stripe', x: node.x, y: node.y + 8, width: 3.5, height: tall - 16, rx: 1.75 }),
    h('text', { class: 'name', 'aria-hidden': 'true', x: node.x + 14, y: node.y + (crowded ? 19.5 : 25) }, fit(node.title, crowded ? cut : cut, 14)),
    !crowded && h('text', { class: 'facts', 'aria-hidden': 'true', x: node.x + 14, y: node.y + 46 }, fit(shown, WIDE - 24, 11.5)),
    pills(node, node.y + (crowded ? 15 : 20)));
}

export function picture(choose) {
  const nodes = nodesOf(state.document);
  if (!nodes.length) return empty('The tree is not known: this folder’s app cannot be loaded here, and no live run was in it.');
  if (!nodes.some((node) => node.name === reached)) reached = nodes[0].name;
  const laid = layout(nodes);
  const { width, height, tall, crowded } = laid;
  return h('div', { class: 'tree-scroll', tabindex: -1 },
    h('svg', { class: 'tree', viewBox: `-4 -4 ${width + 8} ${height + 8}`, width: width + 8, height: height + 8, role: 'group', 'aria-label': 'Query tree, from streams on the left to processes on the right. Arrow keys go from node to node.', onKeydown: keys(nodes, choose) },
      edges(laid), nodes.map((node) => card(node, tall, crowded, choose))));
}

export const legend = () => h('p', { class: 'legend soft' },
  h('span', {}, h('i', { class: 'dot lead' }), 'leads'), h('span', {}, h('i', { class: 'dot up' }), 'follows'),
  h('span', {}, h('i', { class: 'dot warn' }), 'joins, or is silent'), h('span', {}, h('i', { class: 'dot dead' }), 'down'));

const COLUMNS = [['process'], ['state'], ['leads'], ['incarnation', 1], ['elections', 1], ['in', 1], ['waiting', 1], ['made', 1], ['queued', 1], ['behind', 1], ['lag', 1], ['process id', 1], ['']];

const ROW = 34, SPARE = 8;
let scrolled = 0;

// Only the rows that can be seen are in the page; what stands for the others is as tall as they are.
function table(rows) {
  const visible = Math.ceil((innerHeight * 0.64) / ROW);
  const top = Math.min(Math.floor(scrolled / ROW), rows.length - visible), first = Math.max(0, top - SPARE);
  const shown = rows.slice(first, Math.max(0, top) + visible + SPARE), after = rows.length - first - shown.length;
  const gap = (name, many) => many > 0 && h('tr', { key: name, class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: COLUMNS.length, style: { height: `${many * ROW}px` } }));
  return h('div', { class: 'table-scroll tall', tabindex: 0, role: 'region', 'aria-label': 'Processes of the run', onScroll: (event) => { scrolled = event.target.scrollTop; changed(); } }, h('table', { class: 'replicas', 'aria-rowcount': rows.length + 1 },
    h('thead', {}, h('tr', {}, COLUMNS.map(([name, right]) => h('th', { scope: 'col', class: right ? 'right' : '' }, name || h('span', { class: 'unseen' }, 'commands'))))),
    h('tbody', {}, gap('before', first), shown.map((one, at) => h('tr', { key: one.name, 'data-name': one.name, 'aria-rowindex': first + at + 2, class: ALIVE.has(one.state) ? '' : 'down' },
      h('th', { scope: 'row' }, one.name, one.host ? h('span', { class: 'soft' }, ` on ${one.host}`) : ''),
      h('td', {}, chip(one.state, one.standing && one.standing !== 'caught_up' ? `${one.state}, ${one.standing}` : one.state)),
      h('td', {}, one.leads && ALIVE.has(one.state) ? chip('leads') : ''),
      [one.incarnation, one.elections, one.inputs && sum(one.inputs, 'events'), one.inputs && sum(one.inputs, 'waiting'), one.outputs && sum(one.outputs, 'events'), one.outputs && sum(one.outputs, 'queued'), one.behind]
        .map((value) => h('td', { class: 'right' }, value === undefined ? '' : count(value))),
      h('td', { class: 'right' }, one.lag_s ? seconds(one.lag_s) : ''),
      h('td', { class: 'right mono' }, one.pid && ALIVE.has(one.state) ? one.pid : ''),
      h('td', { class: 'right' }, orders(one.name, ALIVE.has(one.state) && one.state !== 'elsewhere' && one.supervised !== false)))), gap('after', after))));
}

// Who runs a node of the tree: its replicas, the process nodes, or Spark's only driver.
function runs(one, name) {
  if (name.startsWith('process ')) return state.document.processes.nodes.includes(one);
  const host = state.document.tree.nodes.find((node) => node.name === name)?.runs_on;
  return host ? (one.shard_of || one.name.split('/')[0]) === host : one.supervised === false;
}

let find = '';
let entered = false;

function everybody() {
  const nodes = state.document.processes?.nodes || [];
  const drivers = (state.document.spark?.drivers || []).filter((one) => !one.supervised);
  return [...(state.document.live?.processes || []), ...drivers, ...nodes];
}

export const tree = {
  keeps: true,
  draw(main) {
    const choose = (name) => {
      focused = focused === name ? null : name;
      tree.draw(main);
    };
    if (!entered) {
      entered = true;
      focused = nodesOf(state.document).find((node) => node.name === decodeURIComponent(location.hash.split('/').slice(1).join('/')))?.name || null;
    }
    const all = everybody();
    const rows = all.filter((one) => (!focused || runs(one, focused)) && one.name.toLowerCase().includes(find.toLowerCase()));
    const record = state.document.live?.record;
    patch(main, [
      ...notices(),
      panel('Query tree', legend(), picture(choose)),
      panel(focused ? `Who runs ${focused.replace(/^source_/, 'source ')}` : 'Processes of the run',
        h('span', { class: 'tools' },
          h('span', { class: 'soft', id: 'processes-shown' }, rows.length === all.length ? plural(all.length, 'process', 'processes') : `${count(rows.length)} of ${plural(all.length, 'process', 'processes')}`),
          record && h('span', { class: 'soft' }, `membership record, version ${record.version}`),
          focused && h('button', { class: 'quiet', onClick: () => choose(focused) }, 'show all'),
          h('input', { type: 'search', placeholder: 'Find a process', 'aria-label': 'Find a process', value: find, onInput: (event) => { find = event.target.value; scrolled = 0; tree.draw(main); } })),
        rows.length ? table(rows) : empty(focused ? 'No known process runs it.' : 'Nothing runs here.')),
    ]);
  },
  leave() {
    focused = null;
    entered = false;
    scrolled = 0;
  },
};
