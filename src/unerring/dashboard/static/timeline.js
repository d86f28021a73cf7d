// Failures and elections on one time line: who was there, who led, what broke, and how long it took to recover.

import { h, patch } from './dom.js';
import { count, plural, wallClock } from './format.js';
import { empty, notices, panel } from './parts.js';
import { address } from './past.js';
import { Rows } from './rows.js';
import { changed, state } from './state.js';

const KINDS = {
  died: ['failure', '✕', 'died'], killed: ['failure', '✕', 'killed by an operator'], evicted: ['failure', '⊘', 'evicted'],
  started: ['failure', '▲', 'started'], ended: ['failure', '■', 'ended'], restarted: ['failure', '▲', 'restarted'],
  joins: ['failure', '◇', 'joins again'], 'caught up': ['failure', '◆', 'caught up'],
  vote: ['election', '·', 'vote'], leads: ['election', '●', 'leads'], 'stepped down': ['election', '○', 'stepped down'],
  view: ['view', '◐', 'asks for a view'], undoes: ['view', '↺', 'compensates'],
};
const WINDOWS = [[60, '1 min'], [300, '5 min'], [1800, '30 min'], [0, 'all']];
const MARKS_MAX = 2500;
let seconds = 0;
let only = '';
let rows = null;

const kindOf = (one) => KINDS[one.what]?.[0] || 'failure';
const ends = new Set(['died', 'ended']);
const LOUD = new Set(['died', 'killed', 'evicted']);
const COUNTED = { vote: 'votes', leads: 'elected', view: 'views asked for', undoes: 'undone' };

// From what happened to one part: when it was there, and when it led.
function spans(all, until) {
  const alive = [], leads = [];
  let up = null, lead = null;
  for (const one of all) {
    if (one.what === 'started') up ??= one.at_us;
    if (one.what === 'leads') lead ??= one.at_us;
    if (one.what === 'stepped down' || ends.has(one.what)) {
      if (lead !== null) leads.push([lead, one.at_us]);
      lead = null;
    }
    if (ends.has(one.what)) {
      if (up !== null) alive.push([up, one.at_us]);
      up = null;
    }
  }
  if (up !== null) alive.push([up, until]);
  if (lead !== null) leads.push([lead, until]);
  return { alive, leads };
}

function lanesOf(all) {
  const lanes = new Map();
  for (const one of all) {
    if (!lanes.has(one.who)) lanes.set(one.who, []);
    lanes.get(one.who).push(one);
  }
  const order = new Map([...(state.document.live?.processes || []), ...(state.document.spark?.drivers || []), ...(state.document.processes?.nodes || [])].map((one, at) => [one.name, at]));
  return [...lanes].sort(([one], [other]) => (order.get(one) ?? 999) - (order.get(other) ?? 999));
}

export function picture({ tall = 20, windowS = seconds, only: kind = only, quiet = false } = {}) {
  const all = state.timeline;
  if (!all.length) return empty('Nothing has happened yet.');
  const until = state.document.run?.at_us || all.at(-1).at_us;
  const from = windowS ? until - windowS * 1e6 : all[0].at_us;
  const long = Math.max(until - from, 1e6);
  let lanes = lanesOf(all);
  if (quiet) {
    // For a glance: only those to whom something happened beside starting and ending.
    const told = lanes.filter(([, list]) => list.some((one) => one.at_us >= from && ['died', 'killed', 'evicted', 'joins', 'restarted'].includes(one.what)));
    lanes = told.length ? told.slice(0, 8) : [];
    if (!lanes.length) return empty('No process has failed', windowS ? ' lately' : '', '. Elections and restarts would be seen here.');
  }
  const left = quiet ? 132 : 148, wide = quiet ? 620 : 1100, right = 16, height = lanes.length * tall + 30;
  const x = (us) => left + ((Math.max(us, from) - from) / long) * (wide - left - right);
  const seen = lanes.flatMap(([, list], lane) => list.filter((one) => one.at_us >= from && (!kind || kindOf(one) === kind) && one.what !== 'vote').map((one) => [one, lane]));
  const every = Math.ceil(seen.length / MARKS_MAX);
  const drawn = every > 1 ? seen.filter(([one], at) => kindOf(one) === 'failure' || at % every === 0) : seen;
  const loud = (one) => LOUD.has(one.what);
  const marks = [...drawn.filter(([one]) => !loud(one)), ...drawn.filter(([one]) => loud(one))]; // failures are drawn on top of recoveries
  const ticks = (quiet ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => from + part * long);
  return h('div', { class: 'table-scroll lanes-scroll', tabindex: quiet ? null : 0, role: quiet ? null : 'region', 'aria-label': quiet ? null : 'Timeline' },
    h('svg', { class: 'timeline', viewBox: `0 0 ${wide} ${height}`, role: 'img', 'aria-label': `Timeline of ${plural(seen.length, 'happening')}; the list below says the same` },
      ticks.map((us, at) => [
        h('line', { key: `g${at}`, class: 'grid', x1: x(us), x2: x(us), y1: 4, y2: height - 22 }),
        h('text', { key: `t${at}`, class: 'soft-text', x: x(us), y: height - 6, 'text-anchor': at === 0 ? 'start' : at === ticks.length - 1 ? 'end' : 'middle' }, wallClock(us)),
      ]),
      lanes.map(([who, list], lane) => {
        const y = 6 + lane * tall + tall / 2;
        const { alive, leads } = spans(list, until);
        const visible = ([, end]) => end >= from;
        return h('g', { key: who },
          h('text', { class: 'lane-name', x: left - 12, y: y + 4, 'text-anchor': 'end' }, who.length > 20 ? `${who.slice(0, 19)}…` : who),
          alive.filter(visible).map(([start, end], at) => h('rect', { key: `a${at}`, class: 'alive', x: x(start), y: y - 3, width: Math.max(1, x(end) - x(start)), height: 6, rx: 3 })),
          kind !== 'failure' && leads.filter(visible).map(([start, end], at) => h('rect', { key: `l${at}`, class: 'leading', x: x(start), y: y - 3, width: Math.max(1, x(end) - x(start)), height: 6, rx: 3 })));
      }),
      marks.map(([one, lane], at) => {
        const y = 6 + lane * tall + tall / 2;
        const [, sign, words] = KINDS[one.what] || ['failure', '?', one.what];
        return h('text', { key: `m${at}`, class: `sign ${one.what.replace(' ', '-')}${loud(one) ? ' loud' : ''}`, x: x(one.at_us) - (loud(one) ? 4 : 0), y: y + (loud(one) ? 5 : 4), 'text-anchor': 'middle' }, sign, h('title', {}, `${wallClock(one.at_us)} ${one.who} ${words}. ${one.said}`));
      })),
    marks.length < seen.length && h('p', { class: 'soft' }, `${count(marks.length)} of ${count(seen.length)} marks are drawn: all failures, a sample of the rest`));
}

const choice = (label, now, options, set) => h('span', { class: 'choice', role: 'group', 'aria-label': label },
  options.map(([is, words]) => h('button', { key: words, class: is === now ? 'on' : '', 'aria-pressed': is === now ? 'true' : 'false', onClick: () => { set(is); changed(); } }, words)));

export const timeline = {
  draw(main) {
    rows ??= new Rows({
      label: 'What happened, the latest first', height: 30, role: 'list',
      render: (one) => [h('span', { class: 'when mono' }, wallClock(one.at_us)), h('span', { class: `sign ${one.what.replace(' ', '-')}` }, KINDS[one.what]?.[1] || '?'), h('b', { class: 'who' }, one.who), h('span', {}, KINDS[one.what]?.[2] || one.what), h('span', { class: 'soft said' }, one.said), h('a', { class: 'then', href: address({ do: 'at', wall_us: one.at_us }) }, 'then', h('span', { class: 'unseen' }, `: the run at ${wallClock(one.at_us)}`))],
    });
    const told = state.document.timeline;
    const listed = state.timeline.filter((one) => !only || kindOf(one) === only);
    patch(main, [
      ...notices(),
      panel('Failures and elections', h('span', { class: 'tools' },
        choice('What', only, [['', 'everything'], ['failure', 'failures'], ['election', 'elections'], ['view', 'views']], (is) => { only = is; }),
        choice('How much', seconds, WINDOWS, (is) => { seconds = is; })),
        picture(),
        h('p', { class: 'legend soft' }, h('span', {}, h('i', { class: 'box alive' }), 'there'), h('span', {}, h('i', { class: 'box leading' }), 'leads'), h('span', {}, h('i', { class: 'glyph bad' }, '✕'), 'died'), h('span', {}, h('i', { class: 'glyph good' }, '▲'), 'started'), h('span', {}, h('i', { class: 'glyph' }, '◆'), 'caught up'), h('span', {}, h('i', { class: 'glyph lead' }, '●'), 'elected'), h('span', {}, h('i', { class: 'glyph' }, '◐'), 'new view'), h('span', {}, h('i', { class: 'glyph' }, '↺'), 'undone'))),
      panel('What happened', h('span', { class: 'soft' }, Object.entries(told.counts).map(([what, number]) => `${count(number)} ${COUNTED[what] || what}`).join(', ')), h('div', { own: true, class: 'rows-here', id: 'timeline-rows' })),
    ]);
    const here = document.getElementById('timeline-rows');
    if (rows.element.parentNode !== here) here.append(rows.element);
    rows.show(listed.length, (index) => listed[listed.length - 1 - index], (one) => `${one.at_us} ${one.who} ${one.what}`);
  },
  leave() {
    rows = null;
  },
};
