// Health in a minute: what is wrong and since when, which service fails, how slow the disk is, how late situations are.

import { h } from './dom.js';
import { count, plural, seconds, wallClock } from './format.js';
import { chip, panel } from './parts.js';

const WAYS_SHOWN = 6;
const quantiles = (of) => `half ≤ ${seconds(of.half_s)}, 99 % ≤ ${seconds(of.most_s)}`;

const problem = (one) =>
  h('li', { key: `${one.kind} ${one.name} ${one.says}` }, h('span', { class: 'when mono' }, one.since_us ? wallClock(one.since_us) : ''), chip('failed', one.kind), h('span', { class: 'said' }, one.says));

const service = (one) =>
  h('span', { key: one.name, class: 'fact', title: one.address }, chip(one.failing_since_us ? 'failed' : 'running', `${one.name} ${one.failing_since_us ? `fails since ${wallClock(one.failing_since_us)}` : 'answers'}`), ' ',
    h('span', { class: 'soft' }, `${one.address} · ${count(one.asked)} asked, ${count(one.failed)} without an answer`));

export function health(d) {
  const told = d.health;
  if (!told) return null;
  const ways = [...told.latency].sort((one, other) => other.most_s - one.most_s);
  const facts = [
    told.disk.count ? h('span', { class: 'fact', key: 'disk' }, h('span', { class: 'soft' }, 'disk, a sync: '), quantiles(told.disk)) : null,
    ...ways.slice(0, WAYS_SHOWN).map((way) => h('span', { class: 'fact', key: `${way.since} ${way.to} ${way.of}` }, h('span', { class: 'soft' }, `${way.since} → ${way.to} ${way.of}: `), quantiles(way))),
    ...told.services.map(service),
  ].filter(Boolean);
  if (!facts.length && !told.problems.length) return null;
  const word = { well: 'nothing is wrong', ended: 'ended', trouble: plural(told.problems.length, 'problem') }[told.state];
  return panel('Health', chip({ well: 'running', ended: 'ended', trouble: 'failed' }[told.state], word),
    told.problems.length ? h('ol', { class: 'latest problems' }, told.problems.map(problem)) : null,
    facts.length ? h('p', { class: 'health-facts' }, facts) : null);
}
