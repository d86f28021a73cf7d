// The engine for volume: its drivers, and each level's micro-batches.

import { h, patch } from './dom.js';
import { bytes, count, eventTime, plural, rate, seconds, wallClock } from './format.js';
import { chip, empty, figure, notices, orders, panel, spark as line } from './parts.js';
import { state } from './state.js';

// The last values of one figure; below it, from when to when, and the most there was.
function chart(title, now, points, valueOf, written, tone) {
  const values = points.map(valueOf);
  return h('div', { class: 'chart' }, h('div', { class: 'chart-head' }, h('span', { class: 'soft' }, title), h('b', {}, now)), line(values, { width: 300, height: 64, label: title, tone, stretch: true }),
    h('div', { class: 'chart-foot soft' }, h('span', {}, wallClock(points[0].at_us)), h('span', {}, `at most ${written(Math.max(...values))}`), h('span', {}, wallClock(points.at(-1).at_us))));
}

function level(one) {
  const recent = one.recent, sized = one.state_bytes !== null;
  return panel(`Level ${one.number}${one.unkeyed ? ', rules without a key' : ''}`, h('span', { class: 'soft' }, one.rules.join(', ')),
    h('div', { class: 'figures plain', 'data-level': one.number },
      figure('micro-batches', count(one.batches)), figure('events', count(one.events)), figure('since the one before', seconds(one.took_s)),
      figure('sealed through', one.complete ? 'complete' : eventTime(one.through_us)), figure('driver', one.driver)),
    h('div', { class: 'charts' },
      chart('events a second', rate(one.events_per_s), recent, (point) => (point.took_s > 0 ? point.events / point.took_s : 0), rate, 'line'),
      chart('lag, in event time', seconds(one.lag_s), recent, (point) => point.lag_s, seconds, 'amber'),
      sized ? chart(`state of ${plural(one.keys, 'key')}`, bytes(one.state_bytes), recent, (point) => point.state_bytes ?? 0, bytes, 'green')
        : chart('keys that have state', count(one.keys), recent, (point) => point.keys, count, 'green')));
}

export const spark = {
  draw(main) {
    const told = state.document.spark;
    const drivers = told.drivers.length
      ? panel('Drivers', null, h('p', { class: 'replica-line' }, told.drivers.map((one) => h('span', { key: one.name, 'data-name': one.name }, chip(one.state, `${one.name} ${one.state}`), one.pid ? h('span', { class: 'soft' }, ` process ${one.pid} `) : '', one.supervised ? orders(one.name, one.state === 'running') : ''))))
      : null;
    patch(main, [
      ...notices(),
      drivers,
      told.levels.length ? told.levels.map(level)
        : panel('Spark', null, empty('No level of this run has sealed a micro-batch on Spark. ', h('code', {}, 'unerring run APP --engine spark'), ' runs the same rules there, and gives the same situations.')),
    ]);
  },
};
