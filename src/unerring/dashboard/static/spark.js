// The gear for volume: its drivers, and each level's micro-batches.

import { h, patch } from './dom.js';
import { bytes, count, eventTime, rate, seconds } from './format.js';
import { chip, empty, figure, notices, orders, panel, spark as line } from './parts.js';
import { state } from './state.js';

function chart(title, now, values, tone) {
  return h('div', { class: 'chart' }, h('div', { class: 'chart-head' }, h('span', { class: 'soft' }, title), h('b', {}, now)), line(values, { width: 300, height: 64, label: title, tone, stretch: true }));
}

function level(one) {
  const recent = one.recent;
  return panel(`Level ${one.number}`, h('span', { class: 'soft' }, one.rules.join(', ')),
    h('div', { class: 'figures plain', 'data-level': one.number },
      figure('micro-batches', count(one.batches)), figure('events', count(one.events)), figure('last batch took', seconds(one.took_s)),
      figure('sealed through', one.complete ? 'complete' : eventTime(one.through_us)), figure('driver', one.driver)),
    h('div', { class: 'charts' },
      chart('events a second', rate(one.events_per_s), recent.map((point) => (point.took_s > 0 ? point.events / point.took_s : 0)), 'line'),
      chart('lag, event time', seconds(one.lag_s), recent.map((point) => point.lag_s), 'amber'),
      chart(recent.some((point) => point.state_bytes !== null) ? `state, ${count(one.keys)} keys` : 'state, keys', one.state_bytes === null ? count(one.keys) : bytes(one.state_bytes), recent.map((point) => point.state_bytes ?? point.keys), 'green')));
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
