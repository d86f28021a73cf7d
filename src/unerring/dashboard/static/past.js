// Questions about the past: the run at a moment, why a rule did not find a situation, what would be with one thing
// different. Each question is the page's address, so that it can be sent to somebody else, and the way back is "back".

import { h, patch } from './dom.js';
import { count, eventTime, plural, wallClock, wallTime } from './format.js';
import { chip, empty, notices, panel } from './parts.js';
import { colour, summary } from './situations.js';
import { ask, changed, state } from './state.js';

const TASKS = [['at', 'A moment'], ['why-not', 'Why not?'], ['what-if', 'What if?']];
const PLACE = { at: '/api/at', 'why-not': '/api/why-not', 'what-if': '/api/what-if' };
const ITEMS_SHOWN = 30;
let rules = null; // what can be asked about
let asked = null; // the address that `answer` is of
let answer = null;
let draft = new URLSearchParams(); // what the forms say and nobody has asked yet

const here = () => new URLSearchParams(location.hash.split('/').slice(1).join('/'));
const task = () => here().get('do') || 'at';
export const address = (given) => `#past/${new URLSearchParams(given)}`;
const go = (given) => { location.hash = address(given); };

// A time as people write it (UTC), or microseconds.
function microseconds(text) {
  if (/^-?\d{10,}$/.test(text.trim())) return text.trim();
  const time = text.trim().replace(' ', 'T');
  const finer = /\.\d{3}(\d{1,3})/.exec(time)?.[1] || ''; // a Date has milliseconds only
  const ms = Date.parse(/[Zz]|[+-]\d\d:?\d\d$/.test(time) ? time : `${time}Z`);
  return Number.isNaN(ms) ? '' : String(ms * 1000 + Number(finer.padEnd(3, '0')));
}

function written(us) {
  if (!us) return '';
  const finer = ((Number(us) % 1000) + 1000) % 1000;
  const text = new Date((Number(us) - finer) / 1000).toISOString();
  return finer ? text.replace('Z', `${String(finer).padStart(3, '0')}Z`) : text;
}

async function load() {
  if (rules === null) {
    rules = { rules: [] };
    const told = await ask('/api/rules');
    rules = told.error ? { rules: [], error: told.error } : told;
    changed();
  }
  const query = here();
  const now = query.toString();
  if (asked === now) return;
  asked = now;
  draft = new URLSearchParams(query);
  answer = null;
  const what = task();
  const waits = (what === 'why-not' && !query.get('rule')) || (what === 'what-if' && !query.get('number') && !query.get('stream'));
  if (waits) {
    changed();
    return;
  }
  query.delete('do');
  if (query.get('verb')) query.set('do', query.get('verb'));
  query.delete('verb');
  const told = await ask(`${PLACE[what]}?${query}`);
  if (asked === now) answer = told;
  changed();
}

// ---- pieces of the forms ----

const field = (label, name, value, more = {}) => h('label', { key: name, class: 'field' }, h('span', { class: 'soft' }, label),
  h('input', { type: 'text', name, 'aria-label': label, value: value ?? '', autocomplete: 'off', spellcheck: 'false', ...more }));

const select = (label, name, options, chosen, act) => h('label', { key: name, class: 'field' }, h('span', { class: 'soft' }, label),
  h('select', { name, 'aria-label': label, onChange: (event) => act(event.target.value) }, options.map(([value, words]) => h('option', { key: value, value, selected: value === chosen ? true : null }, words))));

function submit(event, more) {
  event.preventDefault();
  const given = [...new FormData(event.target)].filter(([name, value]) => value !== '' && name !== 'shown');
  const fields = given.map(([name, value]) => [name, name.endsWith('_us') ? microseconds(value) : value]);
  const wrong = fields.find(([, value]) => value === '');
  if (wrong) {
    answer = { error: `${wrong[0].replace('_us', '')}: write a time as 2026-01-01T00:20:00Z, or microseconds` };
    changed();
    return;
  }
  asked = null; // the same question again is asked again
  go([['do', task()], ...more, ...fields.filter(([name]) => !more.some(([other]) => other === name))]);
  load();
}

const ruleOptions = (none) => [...(none ? [['', none]] : []), ...rules.rules.map((one) => [one.rule, one.rule])];
const ruleNamed = (name) => rules.rules.find((one) => one.rule === name);

function redraft(name, value, without = []) {
  draft.set(name, value);
  for (const other of without) draft.delete(other);
  changed();
}

const event = (one) => [h('span', { class: 'when mono' }, eventTime(one.time_us)), h('span', { class: `tag ${colour(one.stream)}` }, one.stream), h('span', { class: 'pairs' }, summary(one))];

// An event that came from outside could be left out, to see what comes of it.
const without = (one) => (state.document.streams?.[one.stream]?.kind === 'primary'
  ? h('a', { href: address({ do: 'what-if', verb: 'drop', stream: one.stream, time_us: one.time_us, ordinal: one.ordinal }) }, 'without it?') : null);

// ---- a moment ----

function momentForm() {
  const steps = answer?.steps;
  const step = (words, label, one, given) => h('button', { key: label, type: 'button', class: 'quiet', 'aria-label': label, title: one ? `${one.stream || one.who} ${one.what || ''}` : 'there is none', disabled: !one, onClick: () => go(given(one)) }, words);
  const rule = draft.get('rule');
  const of = (one) => ({ do: 'at', at_us: one.time_us, ...(rule ? { rule } : {}) });
  const when = (one) => ({ do: 'at', wall_us: one.at_us, ...(rule ? { rule } : {}) });
  return h('form', { key: 'at', class: 'tools asking', onSubmit: (event) => submit(event, []) },
    field('Event time', 'at_us', written(draft.get('at_us') || (draft.get('wall_us') ? '' : answer?.at_us)), { placeholder: 'the newest' }),
    field('Wall time', 'wall_us', written(draft.get('wall_us')), { placeholder: 'as the log says' }),
    select('Rule', 'rule', ruleOptions('all rules'), rule || '', (value) => redraft('rule', value)),
    h('button', { type: 'submit', class: 'main' }, 'Go there'),
    h('span', { class: 'choice', role: 'group', 'aria-label': 'Step' },
      step('◀ event', 'Previous event', steps?.previous_event, of), step('event ▶', 'Next event', steps?.next_event, of),
      step('◀ decision', 'Previous decision', steps?.previous_decision, when), step('decision ▶', 'Next decision', steps?.next_decision, when)));
}

function openMatch(rule, one, number) {
  const key = one.key.map(String);
  return h('li', { key: `${key} ${number}` }, h('b', {}, key.join(', ') || 'all events'), ' ', h('span', { class: 'soft' }, one.matches[0]?.text || ''), ' ',
    h('a', { href: address([['do', 'why-not'], ['rule', rule], ...key.map((value) => ['key', value]), ['at_us', answer.at_us]]) }, 'why not?'),
    h('ol', { class: 'constituents' }, (one.matches[0]?.bound || []).map((bound, at) => h('li', { key: at }, h('div', { class: 'constituent' }, h('span', { class: 'soft' }, bound.step || '·'), event(bound))))));
}

const ruleThen = (one) => h('section', { key: one.rule, class: 'then-rule', 'data-rule': one.rule },
  h('h3', {}, `${one.rule} `, h('span', { class: 'soft' }, `(${one.kind}, level ${one.level})`), ' ', chip(one.open ? 'starting' : 'ended', one.told ? plural(one.open, 'open match', 'open matches') : 'a class of the application')),
  one.keys_looked_at < one.keys && h('p', { class: 'soft' }, `of the ${count(one.keys_looked_at)} keys with the latest events, of ${count(one.keys)}`),
  one.by_key.length ? h('ol', { class: 'open-matches' }, one.by_key.slice(0, ITEMS_SHOWN).map((match, at) => openMatch(one.rule, match, at))) : null,
  one.last && h('div', { class: 'constituent' }, h('span', { class: 'soft' }, 'last found:'), event(one.last)));

function moment() {
  const instances = answer.instances;
  const clock = { given: 'as you asked', sealed: 'when the log had these events', same: 'both clocks are one', '': 'not known: give a wall time' }[answer.clock];
  return [
    h('p', { class: 'moment', id: 'moment' }, h('b', {}, eventTime(answer.at_us)), h('span', { class: 'soft' }, ' in event time; wall time '), h('b', {}, answer.wall_us ? wallTime(answer.wall_us) : '–'), h('span', { class: 'soft' }, ` (${clock})`)),
    h('div', { class: 'pair-of-panels' },
      panel('Rules then', null, answer.rules.map(ruleThen)),
      h('div', { class: 'column' },
        panel('Streams then', null, h('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Streams then' }, h('table', {}, h('thead', {}, h('tr', {}, ['stream', 'events', 'taken of each producer'].map((name) => h('th', { key: name, scope: 'col' }, name)))),
          h('tbody', {}, answer.streams.map((one) => h('tr', { key: one.stream }, h('td', {}, one.stream), h('td', { class: 'right' }, count(one.events)), h('td', { class: 'soft' }, Object.entries(one.producers).map(([name, mark]) => `${name}: ${mark.epoch}/${mark.sequence}`).join(', ')))))))),
        panel('Processes then', null, answer.timeline_from_us && h('p', { class: 'soft', id: 'timeline-from' }, `The timeline that is held begins at ${wallTime(answer.timeline_from_us)}: of who was there before it only failures are known.`), answer.replicas.length ? h('p', { class: 'replica-line' }, answer.replicas.map((one) => h('span', { key: one.who }, chip(one.up ? (one.leads ? 'leads' : 'running') : 'dead', `${one.who} ${one.up ? (one.leads ? 'leads' : 'is there') : 'is gone'}`), ' '))) : empty('Nothing is known of that wall time.')),
        panel('Instances then', instances && h('span', { class: 'soft' }, Object.entries(instances.by_status).map(([status, number]) => `${count(number)} ${status}`).join(', ')),
          instances?.items.length ? h('ol', { class: 'latest' }, instances.items.slice(0, ITEMS_SHOWN).map((one) => h('li', { key: one.instance }, h('span', { class: 'when mono' }, wallClock(one.at_us)), chip(one.status), h('a', { href: `#processes/${encodeURIComponent(one.instance)}` }, one.instance), h('span', { class: 'soft said' }, one.done.join(', '))))) : empty('No instance had decided anything.')))),
  ];
}

// ---- why not ----

function whyNotForm() {
  const rule = ruleNamed(draft.get('rule')) || rules.rules[0];
  const keys = draft.getAll('key');
  return h('form', { key: 'why-not', class: 'tools asking', onSubmit: (event) => submit(event, []) },
    select('Rule', 'rule', ruleOptions(), rule?.rule, (value) => redraft('rule', value, ['key'])),
    (rule?.key || []).map((name, at) => h('label', { key: `${rule.rule} ${name}`, class: 'field' }, h('span', { class: 'soft' }, name), h('input', { type: 'text', name: 'key', required: true, value: keys[at] ?? '', 'aria-label': `key ${name}` }))),
    field('By the event time', 'at_us', written(draft.get('at_us')), { placeholder: 'the newest' }),
    h('button', { type: 'submit', class: 'main' }, 'Why not?'));
}

function reason(one, at) {
  return h('li', { key: at }, chip(one.decides ? 'failed' : 'ended', one.kind), ' ', one.text,
    one.ask && h('span', {}, ' ', h('a', { href: address([['do', 'why-not'], ['rule', one.ask], ...here().getAll('key').map((value) => ['key', value]), ['at_us', answer.at_us]]) }, `why no ${one.ask}?`)));
}

const attempt = (one, at) => h('li', { key: at, class: 'attempt' },
  h('p', {}, chip(one.outcome === 'found' ? 'completed' : one.outcome === 'open' ? 'starting' : 'failed', one.outcome), ' ', h('b', {}, one.text)),
  one.bound.length ? h('ol', { class: 'constituents' }, one.bound.map((bound, place) => h('li', { key: place }, h('div', { class: 'constituent' }, h('span', { class: 'soft' }, bound.step || '·'), event(bound), without(bound))))) : null,
  h('ul', { class: 'reasons' }, one.reasons.map(reason)));

function whyNot() {
  const missed = answer.attempts.filter((one) => one.outcome !== 'found');
  return panel(`Why no ${answer.rule} for ${answer.key.join(', ') || 'all events'}?`, h('a', { href: address({ do: 'at', at_us: answer.at_us, rule: answer.rule }) }, 'the run at that moment'),
    h('p', { class: 'soft' }, `By ${eventTime(answer.at_us)}: ${plural(answer.events, 'event')} after ${eventTime(answer.after_us)}${answer.complete ? '' : '; what was before them may matter too'}.`),
    answer.note && h('p', {}, answer.note),
    answer.found.length ? h('p', {}, `It was found ${plural(answer.found.length, 'time')}, last at ${eventTime(answer.found[0].time_us)}.`) : null,
    missed.length ? h('ol', { class: 'attempts' }, missed.map(attempt)) : answer.note ? null : empty('No attempt was missed.'),
    answer.count > answer.attempts.length && h('p', { class: 'soft' }, `${count(answer.attempts.length)} of ${count(answer.count)} attempts, the nearest miss first`));
}

// ---- what if ----

const primary = () => Object.entries(state.document.streams || {}).filter(([, one]) => one.kind === 'primary');

function numberForm() {
  const able = rules.rules.filter((one) => one.numbers.length);
  const rule = able.find((one) => one.rule === draft.get('rule')) || able[0];
  if (!rule) return h('p', { key: 'none', class: 'soft' }, 'No rule has a number that could be changed.');
  const number = rule.numbers.find((one) => one.name === draft.get('number')) || rule.numbers[0];
  return h('form', { key: 'number', class: 'tools asking', onSubmit: (event) => submit(event, []) },
    select('Rule', 'rule', able.map((one) => [one.rule, one.rule]), rule.rule, (value) => redraft('rule', value, ['number', 'value'])),
    select('Number', 'number', rule.numbers.map((one) => [one.name, `${one.name} (${one.duration ? `${one.value / 1e6} s` : one.value})`]), number.name, (value) => redraft('number', value, ['value'])),
    field('would be', 'value', draft.get('number') === number.name ? draft.get('value') : '', { required: true, placeholder: number.duration ? '30s' : String(number.value) }),
    h('button', { type: 'submit', class: 'main' }, 'What if?'));
}

function eventForm(streams) {
  const stream = streams.find(([name]) => name === draft.get('stream')) || streams[0];
  if (!stream) return null;
  const [name, told] = stream;
  const verb = draft.get('verb') || 'drop';
  const columns = verb === 'drop' ? [] : told.columns;
  return h('form', { key: 'event', class: 'tools asking', onSubmit: (given) => askEvent(given, verb) },
    select('An event of', 'stream', streams.map(([other]) => [other, other]), name, (value) => redraft('stream', value)),
    field('at', 'time_us', written(draft.get('time_us')), { required: true, placeholder: '2026-01-01T00:20:00Z' }),
    select('would be', 'verb', [['drop', 'not there'], ['change', 'different'], ['add', 'there']], verb, (value) => redraft('verb', value)),
    draft.get('ordinal') && h('input', { type: 'hidden', name: 'ordinal', value: draft.get('ordinal') }),
    columns.map((column) => field(column, `column.${column}`, draft.get(`column.${column}`))),
    h('button', { type: 'submit', class: 'main' }, 'What if?'));
}

// The server's word for what is done with the event is `do`, which in the address is the question.
function askEvent(given, verb) {
  submit(given, [['verb', verb]]);
}

function whatIf() {
  if (!answer.rules.length) return panel('Nothing changes', null, empty('No rule reads what you changed.'));
  const side = (title, tone, events, all) => events.length ? h('div', {}, h('h3', {}, title), h('ol', { class: `latest ${tone}` }, events.map((one) => h('li', { key: `${one.time_us} ${one.ordinal}` }, event(one)))), all > events.length && h('p', { class: 'soft' }, `and ${count(all - events.length)} more`)) : null;
  return panel('What would be', h('span', { id: 'difference' }, `${count(answer.come)} come, ${count(answer.gone)} go`),
    h('p', { class: 'soft' }, 'Computed from the log; the run is not touched.'), answer.notes.map((note) => h('p', { key: note }, note)),
    answer.rules.map((one) => h('section', { key: one.stream, class: 'then-rule', 'data-rule': one.rule }, h('h3', {}, `${one.stream} `, h('span', { class: 'soft' }, `level ${one.level}, ${count(one.before)} looked at: `), chip(one.come ? 'completed' : 'ended', `${count(one.come)} come`), ' ', chip(one.gone ? 'failed' : 'ended', `${count(one.gone)} go`)),
      side('would come', 'come', one.come_events, one.come), side('would go', 'gone', one.gone_events, one.gone))));
}

export const past = {
  draw(main) {
    load();
    const what = task();
    const error = answer?.error || rules?.error;
    patch(main, [
      ...notices(),
      panel('The past', h('span', { class: 'choice', role: 'group', 'aria-label': 'Question' }, TASKS.map(([name, title]) =>
        h('button', { key: name, class: name === what ? 'on' : '', 'aria-pressed': name === what ? 'true' : 'false', onClick: () => go({ do: name }) }, title))),
      what === 'at' ? momentForm() : what === 'why-not' ? whyNotForm() : [numberForm(), eventForm(primary())],
      h('p', { class: 'soft' }, 'Computed from the log; the address of this page is the question, so that you can send it.')),
      error ? h('p', { class: 'notice', role: 'alert' }, error) : answer === null && asked !== null && (what === 'at' || here().size > 1) ? h('p', { class: 'soft pad', key: 'reading' }, 'Reading the log…') : null,
      ...(answer && !answer.error ? [what === 'at' ? moment() : what === 'why-not' ? whyNot() : whatIf()].flat() : []),
    ]);
  },
  leave() {
    asked = null;
    answer = null;
  },
};
