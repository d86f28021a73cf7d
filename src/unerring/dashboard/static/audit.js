// The verdict: what an audit said, promise by promise.

import { h, patch } from './dom.js';
import { count, eventTime, plural, wallTime } from './format.js';
import { empty, notices, panel } from './parts.js';
import { state } from './state.js';

// A promise is a sentence; what stands before its colon names it.
const NAMES = { 'no false positives': 'false positives', 'no false negatives': 'false negatives', 'no duplication': 'duplicates', 'no false ordering': 'false order', completeness: 'still to come' };
const FEW = 20;

export function word(judged) {
  if (!judged) return { tone: 'calm', text: 'not checked yet' };
  return judged.wrong ? { tone: 'bad', text: `${plural(judged.wrong, 'violation')}` } : { tone: 'good', text: 'nothing is wrong' };
}

const sum = (values) => Object.values(values).reduce((all, one) => all + one, 0);
const said = (wrong, well) => h('p', { class: `verdict ${wrong ? 'bad' : 'good'}` }, wrong ? `✗ ${plural(wrong, 'violation')} found.` : `✓ ${well}`);
const text = (one) => (typeof one === 'string' ? one : Object.values(one).flat().join(': '));
const found = (all) => [all.slice(0, FEW).map((one, at) => h('p', { class: 'bad-text', key: at }, text(one))), all.length > FEW ? h('p', { class: 'soft' }, `and ${count(all.length - FEW)} more`) : null];
const number = (value, bad) => h('td', { class: `right${bad && value ? ' bad-text' : ''}` }, count(value));
const judgement = (wrong) => h('td', {}, h('span', { class: `chip ${wrong ? 'bad' : 'good'}` }, wrong ? '✗ wrong' : '✓ perfect'));

// The first so many columns are words, the last is the verdict, between them are figures.
function table(words, names, rows) {
  return h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'The rules, judged' }, h('table', {},
    h('thead', {}, h('tr', {}, names.map((name, at) => h('th', { scope: 'col', class: at >= words && at < names.length - 1 ? 'right' : '' }, name)))),
    h('tbody', {}, rows)));
}

function channels(told) {
  const total = { in_stream: 0, lost: 0, quarantined: 0 };
  for (const one of told.intake) {
    total.in_stream += one.in_stream;
    total.lost += one.lost;
    total.quarantined += sum(one.quarantined);
  }
  if (!told.intake.length) return [said(told.intake_violations.length, 'No channel fed the log; nothing is missing from it.'), found(told.intake_violations)];
  return [
    said(told.intake_violations.length, 'Every number of every producer is in the log once, or is declared lost.'),
    h('p', { class: 'soft' }, `${plural(total.in_stream, 'event')} in the log, ${count(total.quarantined)} in quarantine, ${count(total.lost)} declared lost.`),
    table(1, ['channel', 'numbers', 'in the log', 'in quarantine', 'declared lost', 'missing', 'doubled', 'verdict'], told.intake.map((one) => h('tr', { key: `${one.stream} ${one.producer} ${one.epoch}`, 'data-intake': one.stream },
      h('th', { scope: 'row' }, one.stream, h('span', { class: 'soft' }, ` epoch ${one.epoch}`)), h('td', { class: 'right' }, `${count(one.first)}–${count(one.last)}`),
      number(one.in_stream), number(sum(one.quarantined)), number(one.lost), number(one.missing, true), number(one.doubled, true), judgement(one.missing + one.doubled)))),
    found(told.intake_violations),
  ];
}

function situations(told) {
  const broken = (rule, name) => sum(Object.fromEntries(Object.entries(rule.counts).filter(([promise]) => promise.startsWith(name))));
  const wrong = told.wrong - told.intake_violations.length;
  return [
    said(wrong, 'Every situation was delivered exactly once, as in a run without failures.'),
    h('p', { class: 'soft' }, `The perfect run was recomputed from ${plural(sum(told.events), 'event')}${eventTime(told.through_us) === '–' ? '' : ` through ${eventTime(told.through_us)}`}; judged ${wallTime(told.at_us)}.`),
    table(2, ['situation', 'engine', 'delivered', 'perfect run', ...Object.values(NAMES), 'verdict'], told.rules.map((rule) => h('tr', { key: `${rule.stream} ${rule.engine}`, 'data-rule': rule.stream },
      h('th', { scope: 'row' }, rule.stream), h('td', {}, rule.engine), number(rule.delivered), number(rule.perfect), Object.keys(NAMES).map((name) => number(broken(rule, name), true)), judgement(sum(rule.counts))))),
    found(told.rules.flatMap((rule) => rule.findings.map((one) => `${rule.stream}: ${one}`))),
    [...told.notes, ...new Set(told.rules.flatMap((rule) => rule.notes))].map((note) => h('p', { class: 'soft', key: note }, note)),
  ];
}

function processes(told) {
  return [
    said(told.violations.length, 'Every settled instance had the effects of exactly one execution.'),
    h('p', { class: 'soft' }, `${Object.entries(told.instances).map(([status, many]) => `${count(many)} ${status}`).join(', ') || 'No instance'}; ${plural(told.interactions, 'interaction')} in the services’ journals; checked ${wallTime(told.at_us)}.`),
    told.unsettled.length ? h('p', { class: 'soft' }, `${plural(told.unsettled.length, 'instance')} not settled yet`) : null,
    told.unseen?.length ? h('p', { class: 'soft' }, `${plural(told.unseen.length, 'action')} not compared: no journal has ${told.unseen.join(', ')}`) : null,
    told.unjudged?.length ? h('p', { class: 'soft' }, `${plural(told.unjudged.length, 'instance')} not checked: the audit was not given the process`) : null,
    found(told.violations),
  ];
}

const title = (which, name) => ({ label: name, ...h('span', {}, h('span', { class: 'number' }, which), name) });

export const audit = {
  draw(main) {
    const told = state.document.audit;
    const run = state.document.run;
    const none = empty('This run has not been audited yet. ', h('code', {}, `unerring audit ${run.data}`), ' recomputes the perfect run on Spark and compares.');
    patch(main, [
      ...notices(),
      told.situations && panel(title(1, 'Channels'), null, channels(told.situations)),
      panel(title(2, 'Correlation'), told.page ? h('a', { href: '/audit', target: '_blank', rel: 'noopener' }, 'the audit’s page, with witnesses') : null, told.situations ? situations(told.situations) : none),
      panel(title(3, 'Processes'), null,
        told.processes ? processes(told.processes)
          : state.document.processes.nodes.length || state.document.processes.instances ? empty('Processes are checked with their services’ journals: ', h('code', {}, `unerring process audit MODULE:PROCESS --journal FILE --data ${run.data}/processes`))
          : empty('This run has no process nodes.')),
    ]);
  },
};
