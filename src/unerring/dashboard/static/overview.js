// The three promises at a glance, and the parts that keep them.

import { h, patch } from './dom.js';
import { count, eventTime, plural, rate, wallClock } from './format.js';
import { word } from './audit.js';
import { balance, equation } from './channels.js';
import { bar, chip, empty, notices, panel, spark } from './parts.js';
import { colour, summary } from './situations.js';
import { ask, changed, state } from './state.js';
import { picture as timelinePicture } from './timeline.js';
import { legend, picture as tree } from './tree.js';
import { health } from './health.js';

let latest = null;
let asking = false;
const rates = [];

const verdict = (judged) => {
  const { tone, text } = word(judged);
  return h('a', { class: `chip ${tone}`, href: '#audit' }, judged ? `${judged.wrong ? '✗' : '✓'} audit: ${text}` : 'not audited yet');
};

const promise = (number, title, href, side, ...children) =>
  h('section', { class: 'panel promise', 'aria-label': title }, h('div', { class: 'panel-head' }, h('h2', {}, h('span', { class: 'number' }, number), h('a', { href }, title)), side), children);

function channels(d) {
  const told = d.channels;
  return promise(1, 'Channels', '#channels', told.accounts.length ? balance(told) : null, h('p', { class: 'soft' }, 'Every event arrives in order and once, or is declared lost.'),
    told.accounts.length ? [equation(told), bar([['delivered', told.delivered], ['lost', told.declared_lost], ['pending', told.pending]], 'delivered, lost, pending'),
      h('p', { class: 'soft' }, `${count(told.duplicates)} duplicates discarded on ${plural(told.accounts.length, 'channel')}`)]
      : h('p', { class: 'soft' }, `No channel; the log holds ${count(Object.values(d.streams).filter((one) => one.kind === 'primary').reduce((all, one) => all + one.events, 0))} events.`));
}

function correlation(d) {
  const replicas = d.live.processes.filter((one) => one.leads !== undefined);
  const up = replicas.filter((one) => !['dead', 'silent', 'ended'].includes(one.state));
  const over = d.run.state === 'ended';
  const all = d.tree.nodes.filter((one) => one.role === 'rule');
  const leading = new Set(up.filter((one) => one.leads).map((one) => one.shard_of || one.name.split('/')[0]));
  const rules = all.length, led = all.filter((one) => leading.has(one.runs_on)).length;
  return promise(2, 'Correlation', '#situations', verdict(d.audit.situations), h('p', { class: 'soft' }, 'Every situation is delivered exactly once.'),
    h('div', { class: 'big-row' }, h('div', { class: 'big' }, h('b', { id: 'situations-total' }, count(d.situations.total)), h('span', { class: 'soft' }, 'situations')),
      !over && h('div', { class: 'big' }, h('b', {}, rate(d.situations.per_s)), h('span', { class: 'soft' }, 'a second')), !over && spark(rates, { width: 132, height: 40, label: 'situations a second' })),
    byStream(d.situations.by_stream),
    h('p', {}, replicas.length && over ? [chip('ended', `${plural(rules, 'rule')}, ${plural(replicas.length, 'replica')}`), ' '] : replicas.length ? [chip(up.length === replicas.length ? 'running' : up.length ? 'starting' : 'ended', `${up.length} of ${replicas.length} replicas`), ' ', chip(led === rules ? 'leads' : up.length ? 'starting' : 'ended', `${led} of ${rules} rules led`), ' '] : null,
      d.spark.levels.length ? [chip(d.spark.drivers.some((one) => one.state === 'running') ? 'running' : 'ended', plural(d.spark.levels.length, 'level on Spark', 'levels on Spark')), ' '] : null));
}

const STREAMS_SHOWN = 5;

function byStream(counts) {
  const all = Object.entries(counts).filter(([, number]) => number).sort(([, one], [, other]) => other - one);
  if (!all.length) return null;
  const total = all.reduce((sum, [, number]) => sum + number, 0);
  const rest = all.slice(STREAMS_SHOWN);
  return [
    h('div', { class: 'bar', role: 'img', 'aria-label': `Situations by stream: ${all.slice(0, STREAMS_SHOWN).map(([name, number]) => `${number} ${name}`).join(', ')}` },
      all.map(([name, number]) => h('span', { key: name, class: `share toned ${colour(name)}`, style: { 'flex-grow': Math.max(number / total, 0.012) }, title: `${name}: ${count(number)}` }))),
    h('p', { class: 'soft kinds' }, all.slice(0, STREAMS_SHOWN).map(([name, number]) => h('span', { key: name }, h('i', { class: `dot toned ${colour(name)}` }), `${name} ${count(number)}`)), rest.length ? h('span', {}, `${rest.length} more`) : null),
  ];
}

function processes(d) {
  const told = d.processes;
  const counts = {};
  for (const one of Object.values(told.by_process)) for (const [status, number] of Object.entries(one)) counts[status] = (counts[status] || 0) + number;
  const here = told.nodes.filter((one) => one.state !== 'elsewhere');
  const up = here.filter((one) => one.state === 'running').length;
  const idea = h('p', { class: 'soft' }, 'A replicated execution has the effects of exactly one.');
  if (!told.nodes.length && !told.instances) return promise(3, 'Processes', '#processes', null, idea, h('p', { class: 'soft' }, 'This run has no process nodes.'));
  return promise(3, 'Processes', '#processes', verdict(d.audit.processes), idea,
    h('div', { class: 'big-row' }, h('div', { class: 'big' }, h('b', {}, count(told.instances)), h('span', { class: 'soft' }, 'instances')), h('div', { class: 'big' }, h('b', {}, count(told.open)), h('span', { class: 'soft' }, 'open')),
      h('div', { class: 'big' }, h('b', {}, count(told.later_views)), h('span', { class: 'soft' }, 'in a later view'))),
    bar(Object.entries(counts), Object.entries(counts).map(([status, number]) => `${number} ${status}`).join(', ')),
    h('p', {}, told.nodes.length && d.run.state === 'ended' ? [chip('ended', plural(told.nodes.length, 'node')), ' '] : here.length ? [chip(up === here.length ? 'running' : up ? 'starting' : 'ended', `${up} of ${here.length} nodes`), ' '] : null, Object.entries(counts).map(([status, number]) => [chip(status, `${count(number)} ${status}`), ' '])));
}

async function ensureLatest() {
  if (latest || asking) return;
  asking = true;
  latest = (await ask('/api/situations?count=8')).events || [];
  asking = false;
  changed();
}

// The last ones in words.
function failures() {
  const last = state.timeline.filter((one) => ['died', 'killed', 'evicted'].includes(one.what)).slice(-4).reverse();
  return last.length ? h('ol', { class: 'latest' }, last.map((one) => h('li', { key: `${one.at_us} ${one.who}` }, h('span', { class: 'when mono' }, wallClock(one.at_us)), h('b', {}, one.who), h('span', { class: 'bad-text' }, one.what), h('span', { class: 'soft said' }, one.said)))) : null;
}

let lookedAt = 0;

export const overview = {
  keeps: true,
  draw(main) {
    const d = state.document;
    if (d.run.at_us !== lookedAt) {
      lookedAt = d.run.at_us;
      rates.push(d.situations.per_s || 0);
      rates.splice(0, rates.length - 60);
    }
    ensureLatest();
    const shown = [...state.tail.slice(-8).reverse(), ...(latest || [])].slice(0, 8);
    patch(main, [
      ...notices(),
      health(d),
      h('div', { class: 'promises' }, channels(d), correlation(d), processes(d)),
      panel('Query tree', legend(), tree((name) => { location.hash = `#tree/${encodeURIComponent(name)}`; })),
      h('div', { class: 'pair-of-panels' },
        panel('Failures', h('a', { href: '#timeline' }, 'the whole timeline'), timelinePicture({ quiet: true, only: 'failure', tall: 22 }), failures()),
        panel('Latest situations', h('a', { href: '#situations' }, 'all, and why'),
          shown.length ? h('ol', { class: 'latest' }, shown.map((event) => h('li', { key: `${event.stream} ${event.time_us} ${event.ordinal}` }, h('span', { class: 'when mono' }, eventTime(event.time_us).slice(11)), h('span', { class: `tag ${colour(event.stream)}` }, event.stream), h('span', { class: 'pairs' }, summary(event))))) : empty(latest ? 'No situation yet.' : 'Reading the log…'))),
    ]);
  },
  leave() {
    latest = null;
  },
};
