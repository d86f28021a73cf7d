import { h, patch } from './dom.js';
import { count, eventTime, plural, wallClock } from './format.js';
import { connect, onChange, state } from './state.js';
import { audit } from './audit.js';
import { channels } from './channels.js';
import { overview } from './overview.js';
import { past } from './past.js';
import { processes } from './processes.js';
import { situations } from './situations.js';
import { spark } from './spark.js';
import { timeline } from './timeline.js';
import { tree } from './tree.js';

// name, title, what the badge says, the view: `draw(main)` whenever something changed, `leave()` when another one comes;
// `keeps`: its elements stay for the next time.
const VIEWS = [
  ['overview', 'Overview', () => '', overview],
  ['tree', 'Query tree', (d) => d.tree && count(d.tree.nodes.length), tree],
  ['situations', 'Situations', (d) => d.situations && count(d.situations.total), situations],
  ['processes', 'Processes', (d) => d.processes && count(d.processes.instances), processes],
  ['channels', 'Channels', (d) => d.channels && count(d.channels.accounts.length), channels],
  ['spark', 'Spark', (d) => (d.spark?.levels.length ? count(d.spark.levels.length) : ''), spark],
  ['timeline', 'Timeline', (d) => d.timeline && count(d.timeline.count), timeline],
  ['past', 'Past', () => '', past],
  ['audit', 'Audit', (d) => verdictWord(d), audit],
];

function verdictWord(d) {
  const judged = [d.audit?.situations, d.audit?.processes].filter(Boolean);
  if (!judged.length) return '';
  return judged.every((one) => !one.wrong) ? '✓' : '✗';
}

const THEMES = ['auto', 'light', 'dark'];
const MEANING = { auto: 'as the system', light: 'light', dark: 'dark' };

function theme(next) {
  const now = localStorage.getItem('theme') || 'auto';
  const wanted = next ? THEMES[(THEMES.indexOf(now) + 1) % THEMES.length] : now;
  localStorage.setItem('theme', wanted);
  document.documentElement.dataset.theme = wanted;
  draw();
}

let current = null;
const kept = new Map(); // the elements of views that are gone; when one comes again, only what differs is made

function wanted() {
  const name = location.hash.slice(1).split('/')[0];
  return VIEWS.find((view) => view[0] === name) || VIEWS[0];
}

function header() {
  const run = state.document.run;
  const streams = Object.values(state.document.streams || {}).filter((one) => one.kind === 'primary' && one.through_us);
  const reached = streams.length ? Math.min(...streams.map((one) => one.through_us)) : null;
  const running = run?.state === 'running';
  const word = !run ? 'reading' : running ? `running, ${plural(run.alive, 'process', 'processes')}` : `ended ${wallClock(run.at_us)}`;
  const link = state.connected ? word : state.everConnected ? 'connection lost; trying again' : 'connecting';
  const tone = !state.connected ? 'warn' : running ? 'good' : 'calm';
  return [
    h('div', { class: 'brand' },
      h('img', { src: '/static/mark.svg', alt: '', width: 30, height: 30 }),
      h('div', {}, h('h1', {}, run?.name || 'Unerring'), h('p', { class: 'soft path', title: run?.data }, run?.data || ''))),
    h('div', { class: 'facts' },
      reached && h('span', { class: 'fact' }, h('span', { class: 'soft' }, 'event time '), h('b', {}, eventTime(reached))),
      h('span', { class: `chip ${tone}`, id: 'state' }, link),
      h('button', { class: 'quiet', onClick: () => theme(true), title: 'Light, dark, or as the system says' },
        `${{ auto: '◐', light: '☀', dark: '☾' }[document.documentElement.dataset.theme || 'auto']}`,
        h('span', { class: 'unseen' }, `Colours: ${MEANING[document.documentElement.dataset.theme || 'auto']}. Change`))),
  ];
}

function tabs() {
  const here = wanted()[0];
  return VIEWS.map(([name, title, badge]) =>
    h('a', { href: `#${name}`, key: name, class: 'tab', 'aria-current': name === here ? 'page' : null },
      title, h('span', { class: 'badge' }, badge(state.document) || '')));
}

function draw() {
  const view = wanted();
  patch(document.getElementById('top'), header());
  patch(document.getElementById('tabs'), tabs());
  document.title = `${view[1]} · ${state.document.run?.name || 'Unerring'}`;
  if (!state.look) return; // the document comes in sections: nothing is drawn before it is whole
  const main = document.getElementById('main');
  if (current !== view) {
    current?.[3].leave?.();
    if (current?.[3].keeps) kept.set(current, [...main.childNodes]);
    main.replaceChildren(...(kept.get(view) || []));
    main.className = `view-${view[0]}`;
    current = view;
    // Later: it asks where things are, and the page would be laid out for that before anything is in it.
    requestAnimationFrame(() => document.querySelector('#tabs [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }));
  }
  main.dataset.looked = state.document.run.at_us;
  main.dataset.look = state.look;
  view[3].draw(main);
}

theme(false);
onChange(draw);
addEventListener('hashchange', () => {
  draw();
  document.getElementById('main').focus({ preventScroll: true });
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
connect();
