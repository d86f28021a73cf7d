// The verdict: what an audit said, promise by promise.

import { h, patch } from './dom.js';
import { count, eventTime, plural, wallTime } from './format.js';
import { empty, notices, panel } from './parts.js';
import { state } from './state.js';

const NAMES = { 'false positive': 'false positives', 'false negative': 'false negatives' };

export function word(judged) {
  if (!judged) return { tone: 'calm', text: 'not judged yet' };
  return judged.wrong ? { tone: 'bad', text: `${plural(judged.wrong, 'violation')}` } : { tone: 'good', text: 'nothing is wrong' };
}

function situations(told) {
  const promises = [...new Set(told.rules.flatMap((rule) => Object.keys(rule.counts)))];
  return [
    h('p', { class: `verdict ${told.wrong ? 'bad' : 'good'}` }, told.wrong ? `${plural(told.wrong, 'violation')} found.` : 'Every situation was delivered exactly once, as in a run without failures.'),
    h('p', { class: 'soft' }, `The perfect run was recomputed from ${plural(Object.values(told.events).reduce((all, one) => all + one, 0), 'event')} through ${eventTime(told.through_us)}, judged ${wallTime(told.at_us)}.`),
    h('div', { class: 'table-scroll' }, h('table', {},
      h('thead', {}, h('tr', {}, ['situation', 'gear', 'delivered', 'perfect run', ...promises.map((one) => NAMES[one] || one), 'verdict'].map((name, at) => h('th', { scope: 'col', class: at > 1 && name !== 'verdict' ? 'right' : '' }, name)))),
      h('tbody', {}, told.rules.map((rule) => {
        const wrong = Object.values(rule.counts).reduce((all, one) => all + one, 0);
        return h('tr', { key: `${rule.stream} ${rule.gear}` }, h('th', { scope: 'row' }, rule.stream), h('td', {}, rule.gear), h('td', { class: 'right' }, count(rule.delivered)), h('td', { class: 'right' }, count(rule.perfect)),
          promises.map((name) => h('td', { class: 'right' }, count(rule.counts[name] || 0))), h('td', {}, h('span', { class: `chip ${wrong ? 'bad' : 'good'}` }, wrong ? '✗ wrong' : '✓ perfect')));
      })))),
    told.rules.flatMap((rule) => rule.findings.map((text, at) => h('p', { class: 'bad-text', key: `${rule.stream} ${at}` }, `${rule.stream}: ${text}`))),
    told.intake_violations.map((one, at) => h('p', { class: 'bad-text', key: at }, typeof one === 'string' ? one : Object.values(one).join(': '))),
    told.notes.map((note) => h('p', { class: 'soft', key: note }, note)),
  ];
}

function processes(told) {
  return [
    h('p', { class: `verdict ${told.wrong ? 'bad' : 'good'}` }, told.wrong ? `${plural(told.wrong, 'violation')} found.` : 'Every settled instance had the effects of exactly one execution.'),
    h('p', { class: 'soft' }, `${Object.entries(told.instances).map(([status, number]) => `${count(number)} ${status}`).join(', ')}; ${plural(told.interactions, 'interaction')} in the services’ journals; judged ${wallTime(told.at_us)}.`),
    told.unsettled.length ? h('p', { class: 'soft' }, `${plural(told.unsettled.length, 'instance')} not settled yet`) : null,
    told.violations.slice(0, 20).map((one, at) => h('p', { class: 'bad-text', key: at }, typeof one === 'string' ? one : Object.values(one).join(': '))),
  ];
}

export const audit = {
  draw(main) {
    const told = state.document.audit;
    const run = state.document.run;
    patch(main, [
      ...notices(),
      panel('Promises 1 and 2: channels and situations', told.page ? h('a', { href: '/audit', target: '_blank', rel: 'noopener' }, 'the audit’s page, with witnesses') : null,
        told.situations ? situations(told.situations) : empty('No audit was made of this run yet. ', h('code', {}, `unerring audit ${run.data}`), ' recomputes the perfect run on Spark and compares.')),
      panel('Promise 3: processes', null,
        told.processes ? processes(told.processes) : empty('Processes are judged by their services’ journals: ', h('code', {}, `unerring audit ${run.data}/processes --journal FILE`))),
    ]);
  },
};
