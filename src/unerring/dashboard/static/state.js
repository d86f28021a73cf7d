// What the page knows: the status document, section by section, as the server pushes it. Views ask here, nowhere else.

export const state = {
  document: {}, // the status document
  look: 0, // how often the server has looked
  connected: false,
  everConnected: false,
  trouble: null,
  tail: [], // situations that came while we watched, newest last; a sample when there are many
  tailCounts: [], // [moment, how many] for the last looks, sampled or not
  timeline: [],
  token: sessionStorage.getItem('token') || '',
  who: null, // who has logged in, in this browser
};

const TAIL_MAX = 5000;
const AGAIN_MS = 5000;
const listeners = new Set();
let waiting = false;

export function onChange(listener) {
  listeners.add(listener);
}

export function changed() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const listener of listeners) listener();
  });
}

const SECTIONS = ['run', 'health', 'tree', 'live', 'spark', 'streams', 'situations', 'processes', 'channels', 'audit'];

export function connect() {
  const source = new EventSource('/api/stream');
  source.onopen = () => {
    state.connected = state.everConnected = true;
    readWho();
    readTimeline();
    changed();
  };
  source.onerror = () => {
    state.connected = false;
    changed();
    if (source.readyState === EventSource.CLOSED) setTimeout(connectAgain, AGAIN_MS); // it was refused
  };
  for (const name of SECTIONS) {
    source.addEventListener(name, (event) => {
      state.document[name] = JSON.parse(event.data);
      changed();
    });
  }
  source.addEventListener('look', (event) => {
    state.look = Number(event.data);
    changed();
  });
  source.addEventListener('trouble', (event) => {
    state.trouble = JSON.parse(event.data);
    changed();
  });
  source.addEventListener('timeline', (event) => {
    state.document.timeline = JSON.parse(event.data);
    addToTimeline(state.document.timeline.last);
    changed();
  });
  source.addEventListener('tail', (event) => {
    const { counts, events } = JSON.parse(event.data);
    const all = Object.values(counts).reduce((sum, one) => sum + one, 0);
    for (const one of events) one.seen = true;
    state.tail.push(...events);
    state.tail.splice(0, state.tail.length - TAIL_MAX);
    state.tailCounts.push([Date.now(), all, events.length]);
    while (state.tailCounts.length && state.tailCounts[0][0] < Date.now() - 60_000) state.tailCounts.shift();
    changed();
  });
}

async function connectAgain() {
  const answer = await ask('/api/status');
  if (answer.status === 401) location.replace('/login');
  else connect();
}

async function readWho() {
  state.who = (await ask('/api/who')).who || null;
}

const name = (one) => `${one.at_us} ${one.who} ${one.what}`;

let held = new Set(); // of what the timeline has

function addToTimeline(more) {
  const last = state.timeline.at(-1);
  const added = more.filter((one) => !held.has(name(one)));
  if (!added.length) return;
  for (const one of added) held.add(name(one));
  state.timeline.push(...added);
  if (last && added[0].at_us < last.at_us) state.timeline.sort((one, other) => one.at_us - other.at_us);
  announce(added);
}

async function readTimeline() {
  const answer = await ask('/api/timeline');
  if (answer.last) {
    state.timeline = answer.last;
    held = new Set(answer.last.map(name));
    addToTimeline(state.document.timeline?.last || []); // what came while the answer was on its way
    changed();
  }
}

const LOUD = new Set(['died', 'killed', 'evicted']);
const began = Date.now() * 1000;

function announce(added) {
  const loud = added.filter((one) => LOUD.has(one.what) && one.at_us > began).slice(-2);
  if (loud.length) say(loud.map((one) => `${one.who} ${one.what}`).join('; '));
}

export function say(text) {
  document.getElementById('said').textContent = text;
}

export async function ask(path, options) {
  try {
    const answer = await fetch(path, options);
    const body = await answer.json();
    return answer.ok ? body : { error: body.error || `the server answered ${answer.status}`, status: answer.status };
  } catch (error) {
    return { error: `the dashboard’s server does not answer (${error.message}); is it still running?` };
  }
}

// What is called often while somebody types is done once, when they pause.
export function calmly(action, pause = 200) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, pause);
  };
}

export function keepToken(token) {
  state.token = token;
  if (token) sessionStorage.setItem('token', token);
  else sessionStorage.removeItem('token');
}

const post = (path, body) => ask(path, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', ...(state.token && { Authorization: `Bearer ${state.token}` }) },
  body: JSON.stringify(body),
});

export const command = (verb, who) => post(`/api/commands/${verb}`, { who });

// A command to the process nodes, as `unerring process` has it.
export async function steer(verb, fields) {
  const answer = await post(`/api/processes/${verb}`, fields);
  return answer.error ? answer : { said: `${fields.instance}: ${verb} was taken` };
}
