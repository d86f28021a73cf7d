// Pieces that several views use.

import { h } from './dom.js';
import { count } from './format.js';
import { command, keepToken, say, state } from './state.js';

export function notices() {
  const all = [...(state.document.run?.notes || [])];
  if (state.trouble) all.unshift(state.trouble);
  return all.map((text) => h('p', { class: 'notice', role: 'alert' }, text));
}

export const panel = (title, side, ...children) =>
  h('section', { class: 'panel', 'aria-label': typeof title === 'string' ? title : title.label },
    h('div', { class: 'panel-head' }, h('h2', {}, title), side), children);

export const empty = (...words) => h('p', { class: 'soft empty' }, words);

export const figure = (label, number, tone = '') =>
  h('div', { class: `figure ${tone}` }, h('b', {}, number), h('span', { class: 'soft' }, label));

const TONES = {
  running: 'good', member: 'good', caught_up: 'good', completed: 'good', leads: 'lead',
  starting: 'warn', joining: 'warn', undoing: 'warn', silent: 'warn', elsewhere: 'calm',
  dead: 'bad', failed: 'bad', parked: 'bad', cancelled: 'calm', ended: 'calm',
};

export const chip = (word, text = word) => h('span', { class: `chip ${TONES[word] || 'calm'}` }, text);

// A small line of the last values, the newest at the right.
export function spark(values, { width = 150, height = 34, label = '', tone = 'line', stretch = false } = {}) {
  if (values.length === 1) values = [values[0], values[0]];
  if (!values.length) return h('svg', { class: 'sparkline', width, height, role: 'img', 'aria-label': `${label}: nothing yet` });
  const top = Math.max(...values, 1e-9);
  const x = (at) => (at / (values.length - 1)) * (width - 4) + 2;
  const y = (value) => height - 3 - (value / top) * (height - 8);
  const points = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
  return h('svg', { class: `sparkline ${tone}`, viewBox: `0 0 ${width} ${height}`, width, height, preserveAspectRatio: stretch ? 'none' : null, role: 'img', 'aria-label': `${label}: now ${count(values.at(-1))}, at most ${count(top)}` },
    h('polygon', { points: `2,${height - 2} ${points.join(' ')} ${width - 2},${height - 2}` }),
    h('polyline', { points: points.join(' ') }),
    !stretch && h('circle', { cx: x(values.length - 1), cy: y(values.at(-1)), r: 2.4 }));
}

// Shares of one bar; a share that is there stays visible, however small.
export function bar(parts, label) {
  const all = parts.reduce((sum, [, value]) => sum + value, 0) || 1;
  return h('div', { class: 'bar', role: 'img', 'aria-label': label },
    parts.filter(([, value]) => value > 0).map(([name, value]) =>
      h('span', { key: name, class: `share ${name}`, style: { 'flex-grow': Math.max(value / all, 0.012) }, title: `${name}: ${count(value)}` })));
}

// ---- kill and restart ----

export function orders(who, alive) {
  if (!alive) return h('span', { class: 'soft' }, '');
  const button = (verb) =>
    h('button', { class: `small ${verb}`, onClick: () => order(verb, who), 'aria-label': `${verb} ${who}` }, verb);
  return h('span', { class: 'orders' }, button('kill'), button('restart'));
}

const order = (verb, who) => withToken(verb, who, () => command(verb, who));

// What changes the run needs a login or a token: it is asked for once, and again if it was refused.
export async function withToken(verb, who, act) {
  if (!state.token && !state.who && !(await askForToken(verb, who))) return;
  const answer = await act();
  if (answer.error && (answer.status === 401 || answer.status === 403)) {
    keepToken('');
    if (await askForToken(verb, who, answer.error)) await withToken(verb, who, act);
    return;
  }
  toast(answer.error || answer.said, Boolean(answer.error));
}

export function toast(text, bad) {
  const old = document.querySelector('.toast');
  old?.remove();
  const box = document.createElement('div');
  box.className = `toast${bad ? ' bad' : ''}`;
  box.textContent = text;
  document.body.append(box);
  say(text);
  setTimeout(() => box.remove(), 6000);
}

function askForToken(verb, who, why = '') {
  return new Promise((resolve) => {
    const dialog = document.createElement('dialog');
    dialog.setAttribute('aria-labelledby', 'token-title');
    const form = document.createElement('form');
    form.method = 'dialog';
    const title = Object.assign(document.createElement('h2'), { id: 'token-title', textContent: `To ${verb} ${who}` });
    const text = document.createElement('p');
    text.textContent = why || 'This changes the run. It needs the token that `unerring dashboard` printed when it started.';
    if (why) text.className = 'bad-text';
    const label = Object.assign(document.createElement('label'), { textContent: 'Token ' });
    const input = Object.assign(document.createElement('input'), { type: 'password', name: 'token', required: true, autocomplete: 'off' });
    label.append(input);
    const row = document.createElement('div');
    row.className = 'dialog-row';
    const no = Object.assign(document.createElement('button'), { type: 'button', textContent: 'Cancel', className: 'quiet' });
    const yes = Object.assign(document.createElement('button'), { type: 'submit', textContent: `${verb[0].toUpperCase()}${verb.slice(1)} it`, className: 'main' });
    row.append(no, yes);
    form.append(title, text, label, row);
    dialog.append(form);
    document.getElementById('dialogs').append(dialog);
    const end = (done) => {
      dialog.close();
      dialog.remove();
      resolve(done);
    };
    no.addEventListener('click', () => end(false));
    dialog.addEventListener('cancel', () => end(false));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      keepToken(input.value.trim());
      end(Boolean(state.token));
    });
    dialog.showModal();
    input.focus();
  });
}
