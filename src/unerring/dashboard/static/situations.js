// Situations as they come, older ones on demand, and why each of them arose.

import { h, patch } from './dom.js';
import { count, eventClock, eventTime, plural, rate, span, value } from './format.js';
import { empty, notices, panel } from './parts.js';
import { Rows } from './rows.js';
import { ask, calmly, changed, state } from './state.js';

const PAGE = 200;
const COLOURS = 8;
let streams = new Set(); // those that are left out
let find = '';
let paused = false;
let held = []; // newest first: what the list shows
let taken = 0; // of the tail
let ended = false;
let loading = false;
let lookedAt = null;
let trail = []; // situations asked about, each a constituent of the one before
let addressed = ''; // the address that was opened last
let rows = null;

const id = (event) => `${event.stream} ${event.time_us} ${event.ordinal}`;
const names = () => Object.keys(state.document.situations?.by_stream || {});
const wanted = () => names().filter((name) => !streams.has(name));
const allStreams = () => Object.keys(state.document.streams || {});
export const colour = (stream) => `c${allStreams().indexOf(stream) % COLOURS}`;

export function summary(event) {
  const told = state.document.streams?.[event.stream];
  return Object.entries(event.payload).map(([name, given]) => h('span', { class: 'pair' }, h('span', { class: 'soft' }, `${name} `), value(given, told?.times.includes(name))));
}

function fits(event) {
  if (streams.has(event.stream)) return false;
  if (!find) return true;
  return `${event.stream} ${Object.values(event.payload).join(' ')}`.toLowerCase().includes(find.toLowerCase());
}

async function older() {
  if (loading || ended) return;
  loading = true;
  const last = held.at(-1);
  const query = new URLSearchParams({ count: PAGE, streams: wanted().join(','), find });
  if (last) {
    query.set('time_us', last.time_us);
    query.set('ordinal', last.ordinal);
    query.set('stream', last.stream);
  }
  const asked = `${find} ${wanted()}`;
  const answer = await ask(`/api/situations?${query}`);
  loading = false;
  if (asked !== `${find} ${wanted()}`) return older();
  if (answer.events) {
    held.push(...answer.events);
    ended = answer.events.length < PAGE;
    lookedAt = answer.looked_at ?? null;
    changed();
  }
}

function afresh() {
  held = [];
  ended = false;
  taken = state.tail.length ? id(state.tail.at(-1)) : 0;
  if (rows) rows.body.scrollTop = 0;
  older();
}

const search = calmly(() => {
  afresh();
  changed();
});

function takeTail() {
  if (paused) return 0;
  const from = taken ? state.tail.findLastIndex((event) => id(event) === taken) + 1 : 0;
  const added = state.tail.slice(from).filter(fits).reverse();
  if (state.tail.length) taken = id(state.tail.at(-1));
  if (!added.length) return 0;
  const top = rows.body.scrollTop;
  held.unshift(...added);
  if (held.length > 20_000) {
    held.length = 20_000;
    ended = false;
  }
  // Who reads further down is not carried away by what comes on top.
  if (top > rows.height) rows.body.scrollTop = top + added.length * rows.height;
  return added.length;
}

function list() {
  rows = new Rows({
    label: 'Situations, the latest first',
    height: 36,
    choose: (event) => why(event, []),
    need: older,
    render: (event) => [
      h('span', { class: 'when mono' }, eventTime(event.time_us).slice(5)),
      h('span', { class: `tag ${colour(event.stream)}` }, event.stream),
      h('span', { class: 'pairs' }, summary(event)),
    ],
  });
  return rows;
}

export async function why(event, before) {
  trail = [...before, { event, answer: null }];
  if (location.hash.startsWith('#situations')) {
    history.replaceState(null, '', `#situations/${encodeURIComponent(event.stream)}/${event.time_us}/${event.ordinal}`);
    addressed = location.hash;
  }
  changed();
  const query = new URLSearchParams({ stream: event.stream, time_us: event.time_us, ordinal: event.ordinal });
  const step = trail.at(-1);
  step.answer = await ask(`/api/why?${query}`);
  if (step.answer.situation) step.event = step.answer.situation; // an address says which one, and no more
  changed();
}

function lanes(answer) {
  const events = [...answer.made_of, answer.situation];
  const order = [...new Set(events.map((event) => event.stream))];
  const first = Math.min(...events.map((event) => event.time_us)), last = Math.max(...events.map((event) => event.time_us));
  const wide = 640, left = 130, tall = 34, right = 30;
  const x = (us) => (last === first ? (wide + left - right) / 2 : left + ((us - first) / (last - first)) * (wide - left - right));
  const y = (stream) => 24 + order.indexOf(stream) * tall;
  const height = 24 + order.length * tall + 22;
  const target = answer.situation;
  return h('svg', { class: 'lanes', viewBox: `0 0 ${wide} ${height}`, role: 'img', 'aria-label': `Timeline: ${plural(answer.made_of.length, 'event')} over ${span(last - first)} made ${target.stream}` },
    order.map((stream) => [
      h('line', { key: `l${stream}`, class: 'lane', x1: left - 10, x2: wide - 8, y1: y(stream), y2: y(stream) }),
      h('text', { key: `t${stream}`, class: 'lane-name', x: left - 18, y: y(stream) + 4, 'text-anchor': 'end' }, stream.length > 17 ? `${stream.slice(0, 16)}…` : stream),
    ]),
    answer.made_of.map((event) => h('path', { key: `p${id(event)}`, class: 'leads-to', d: `M${x(event.time_us)} ${y(event.stream)}L${x(target.time_us)} ${y(target.stream)}` })),
    answer.made_of.map((event) => h('circle', { key: id(event), class: `mark ${colour(event.stream)}`, cx: x(event.time_us), cy: y(event.stream), r: 6 }, h('title', {}, `${event.stream} ${eventClock(event.time_us)}`))),
    h('polygon', { class: 'mark target', points: diamond(x(target.time_us), y(target.stream), 9) }, h('title', {}, `${target.stream} ${eventClock(target.time_us)}`)),
    h('text', { class: 'soft-text', x: x(first), y: height - 4, 'text-anchor': last === first ? 'middle' : 'start' }, eventClock(first)),
    last !== first && h('text', { class: 'soft-text', x: x(last), y: height - 4, 'text-anchor': 'end' }, `${eventClock(last)}  (+${span(last - first)})`));
}

const diamond = (x, y, r) => `${x},${y - r} ${x + r},${y} ${x},${y + r} ${x - r},${y}`;

function constituent(event, before) {
  const inner = [h('span', { class: 'when mono' }, eventClock(event.time_us)), h('span', { class: `tag ${colour(event.stream)}` }, event.stream), h('span', { class: 'pairs' }, summary(event))];
  return h('li', { key: id(event) }, event.is_situation
    ? h('button', { class: 'constituent', onClick: () => why(event, before), title: 'Why did this one arise?' }, inner, h('span', { class: 'go' }, 'why?'))
    : h('div', { class: 'constituent' }, inner));
}

export function answerPanel(close) {
  const step = trail.at(-1);
  if (!step) return panel('Why?', null, empty('Choose a situation to see the events that it is made of.'));
  const { event, answer } = step;
  const crumbs = trail.length > 1 && h('p', { class: 'crumbs' }, trail.slice(0, -1).map((one, at) => [
    h('button', { class: 'link', onClick: () => { trail = trail.slice(0, at + 1); changed(); } }, one.event.stream), ' ‹ ']), event.stream);
  const body = !answer ? h('p', { class: 'soft' }, 'Running the rule again on the log…')
    : answer.error ? h('p', { class: 'bad-text' }, answer.error)
    : [
      h('p', {}, 'Rule ', h('b', {}, answer.rule), ` (${answer.kind}, level ${answer.level}) `, answer.complete
        ? answer.kind === 'window' && !answer.count ? 'closed a window that held no event: the last of its key had left it.'
          : answer.kind === 'window' ? `looked at ${answer.count === 1 ? 'this event' : `these ${count(answer.count)} events`}: all that its window held.${answer.count > answer.made_of.length ? ` ${count(answer.made_of.length)} of them are shown.` : ''}`
          : `needs ${answer.count === 1 ? 'exactly this event' : `exactly these ${count(answer.count)} events`}: take ${answer.count === 1 ? 'it' : 'one'} away, and the situation is gone.`
        : `builds on more than can be taken apart. These are the last ${count(answer.count)} events that it took before; the last of them decided.`),
      answer.starts.length ? h('p', { class: 'starts' }, 'It starts ', answer.starts.map((one, at) => [at ? ', ' : '', h('a', { key: one.instance, href: `#processes/${encodeURIComponent(one.instance)}` }, one.instance)])) : null,
      lanes(answer),
      h('ol', { class: 'constituents' }, answer.made_of.map((one) => constituent(one, trail)), h('li', { key: 'it', class: 'it' }, h('div', { class: 'constituent' },
        h('span', { class: 'when mono' }, eventClock(event.time_us)), h('span', { class: 'tag target' }, event.stream), h('span', { class: 'pairs' }, summary(event))))),
    ];
  return panel(h('span', {}, `Why ${event.stream}?`), h('button', { class: 'quiet', onClick: close }, 'close'), crumbs || null, h('p', { class: 'soft' }, `${eventTime(event.time_us)} #${event.ordinal} `, h('a', { href: `#past/do=at&at_us=${event.time_us}` }, 'the run at that moment')), body);
}

function sampling() {
  const last = state.tailCounts.filter(([at]) => at > Date.now() - 5000);
  const came = last.reduce((all, one) => all + one[1], 0), shown = last.reduce((all, one) => all + one[2], 0);
  const per = rate(state.document.situations?.per_s);
  if (paused) return 'paused; the counts continue';
  if (came > shown) return `${per} a second; of the last ${count(came)}, ${count(shown)} are listed (a sample of each stream)`;
  return state.document.run?.state === 'running' ? `${per} a second` : '';
}

// The address of a situation opens it, as pressing on it does.
function openAddressed() {
  const [, stream, time, ordinal] = location.hash.slice(1).split('/').map(decodeURIComponent);
  if (!ordinal || addressed === location.hash) return;
  addressed = location.hash;
  if (trail.length && id(trail.at(-1).event) === `${stream} ${time} ${ordinal}`) return;
  why({ stream, time_us: Number(time), ordinal: Number(ordinal), payload: {} }, []);
}

export const situations = {
  draw(main) {
    if (!rows) list();
    if (!held.length && !ended && !loading) afresh();
    takeTail();
    openAddressed();
    const counts = state.document.situations;
    const shown = held.filter((event) => !streams.has(event.stream));
    const all = find ? shown.length : Math.max(shown.length, wanted().reduce((sum, name) => sum + counts.by_stream[name], 0));
    patch(main, [
      ...notices(),
      h('div', { class: `split${trail.length ? ' open' : ''}` },
        panel('Situations', h('span', { class: 'soft', id: 'sampling' }, sampling()),
          h('div', { class: 'tools filters' },
            h('input', { type: 'search', placeholder: 'Find in payloads', 'aria-label': 'Find in payloads', value: find, onInput: (event) => { find = event.target.value; search(); } }),
            h('button', { class: 'quiet', 'aria-pressed': paused ? 'true' : 'false', onClick: () => { paused = !paused; if (!paused) afresh(); changed(); } }, paused ? '▶ go on' : '❚❚ pause'),
            h('div', { class: 'streams', role: 'group', 'aria-label': 'Streams' }, names().map((name) =>
              h('button', { key: name, class: `tag ${colour(name)}${streams.has(name) ? ' off' : ''}`, 'data-stream': name, 'aria-pressed': streams.has(name) ? 'false' : 'true', onClick: () => { if (streams.has(name)) streams.delete(name); else streams.add(name); afresh(); changed(); } },
                name, ' ', h('b', {}, count(counts.by_stream[name])))))),
          h('div', { own: true, class: 'rows-here', id: 'situation-rows' }),
          h('p', { class: 'soft foot' }, find
            ? `${plural(shown.length, 'situation')} found${lookedAt ? ` in the last ${count(lookedAt)}` : ''}`
            : `${count(shown.length)} in the list of ${count(all)} delivered; scroll down for older ones`)),
        answerPanel(() => { trail = []; rows.chosen = null; history.replaceState(null, '', '#situations'); changed(); })),
    ]);
    const here = document.getElementById('situation-rows');
    if (rows.element.parentNode !== here) here.append(rows.element);
    rows.show(find || ended ? shown.length : Math.max(shown.length, Math.min(all, shown.length + 1)), (index) => shown[index], id);
  },
  leave() {
    addressed = '';
    rows = null;
    held = [];
    ended = false;
  },
};
