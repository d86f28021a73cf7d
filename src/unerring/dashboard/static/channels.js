// Promise 1 in figures, and the event log behind the channels.

import { h, patch } from './dom.js';
import { count, eventTime } from './format.js';
import { bar, empty, notices, panel } from './parts.js';
import { state } from './state.js';

export const balance = (told) => h('span', { class: `chip ${told.balanced ? 'good' : 'bad'}` }, told.balanced ? '✓ balanced' : '✗ does not balance');

// A sign stays with the term that follows it, wherever the line breaks.
export function equation(told) {
  const part = (sign, name, number, tone = '') => h('span', { class: 'signed', key: name }, sign && h('span', { class: 'sign' }, sign),
    h('span', { class: `term ${tone}` }, h('b', {}, count(number)), h('span', { class: 'soft' }, name)));
  return h('div', { class: 'equation', 'data-balanced': String(told.balanced) },
    part('', 'published', told.published), part('=', 'delivered', told.delivered, 'delivered'),
    part('+', 'declared lost', told.declared_lost, told.declared_lost ? 'lost' : ''), part('+', 'pending', told.pending, told.pending ? 'pending' : ''));
}

function account(one) {
  const lost = one.lost.map((range) => `${range.first}–${range.last ?? '?'} (${range.cause})`).join('; ');
  return h('tr', { key: `${one.stream} ${one.id} ${one.epoch}`, 'data-stream': one.stream },
    h('th', { scope: 'row' }, one.stream, h('span', { class: 'soft block' }, `${one.producer}, epoch ${one.epoch}${one.cut > 1 ? `, from no. ${count(one.cut)}` : ''}`)),
    h('td', { class: 'wide' }, bar([['delivered', one.delivered], ['lost', one.declared_lost], ['pending', one.pending]], `${count(one.delivered)} delivered, ${count(one.declared_lost)} lost, ${count(one.pending)} pending`)),
    [one.published, one.delivered, one.declared_lost, one.pending, one.duplicates].map((number) => h('td', { class: 'right' }, count(number))),
    h('td', {}, balance(one), lost && h('span', { class: 'soft block' }, `lost: ${lost}`)));
}

function log() {
  const streams = Object.entries(state.document.streams || {});
  return h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Streams of the log' }, h('table', {},
    h('thead', {}, h('tr', {}, ['stream', 'events', 'segments', 'known through', 'in quarantine', 'readers'].map((name, at) => h('th', { scope: 'col', class: at === 1 || at === 2 ? 'right' : '' }, name)))),
    h('tbody', {}, streams.map(([name, one]) => h('tr', { key: name, 'data-stream': name },
      h('th', { scope: 'row' }, name, h('span', { class: 'soft' }, one.kind === 'situation' ? ' situations' : '')),
      h('td', { class: 'right' }, count(one.events)), h('td', { class: 'right' }, count(one.segments)),
      h('td', { class: 'nowrap' }, one.complete ? 'complete' : eventTime(one.through_us)),
      h('td', {}, Object.entries(one.quarantined).map(([reason, number]) => `${count(number)} ${reason}`).join(', ') || '–'),
      h('td', {}, Object.entries(one.readers).map(([reader, [us]]) => h('span', { class: 'block', key: reader }, `${reader} `, h('span', { class: 'soft' }, eventTime(us)))), Object.keys(one.readers).length ? '' : '–'))))));
}

const tones = { delivering: 'good', stopped: 'bad' };

// Where situations go: how far each target is behind, and why.
function sinks(told) {
  return h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Sinks' }, h('table', { class: 'sinks' },
    h('thead', {}, h('tr', {}, ['sink', 'state', 'delivered', 'waiting', 'behind', 'target'].map((name, at) => h('th', { scope: 'col', class: at > 1 && at < 5 ? 'right' : '' }, name)))),
    h('tbody', {}, told.map((one) => h('tr', { key: one.name, 'data-sink': one.name },
      h('th', { scope: 'row' }, one.name, h('span', { class: 'soft' }, ` ${one.stream}`)),
      h('td', {}, h('span', { class: `chip ${tones[one.state] || ''}` }, one.state), one.why && h('span', { class: 'soft block' }, one.why)),
      h('td', { class: 'right' }, count(one.delivered)), h('td', { class: 'right' }, count(one.waiting)),
      h('td', { class: 'right' }, `${(one.lag_us / 1e6).toFixed(1)} s`), h('td', { class: 'soft' }, one.to))))));
}

export const channels = {
  draw(main) {
    const told = state.document.channels;
    patch(main, [
      ...notices(),
      panel('Channels', h('span', { class: 'tools' }, h('span', { class: 'soft' }, 'since this consumer began, or began again: its cut'), told.accounts.length ? balance(told) : null),
        told.accounts.length ? [equation(told), h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Ledgers of the channels' }, h('table', { class: 'accounts' },
          h('thead', {}, h('tr', {}, ['channel', '', 'published', 'delivered', 'declared lost', 'pending', 'duplicates discarded', 'ledger'].map((name, at) => h('th', { scope: 'col', class: at > 1 && at < 7 ? 'right' : '' }, name)))),
          h('tbody', {}, told.accounts.map(account))))]
          : empty('No channel feeds this run; its log was written by other means (', h('code', {}, 'unerring ingest'), ', for example).')),
      ...((state.document.sinks || []).length ? [panel('Sinks', h('span', { class: 'soft' }, 'what is sealed, delivered once'), sinks(state.document.sinks))] : []),
      panel('The event log', null, Object.keys(state.document.streams || {}).length ? log() : empty('There is no log in this folder.')),
    ]);
  },
};
