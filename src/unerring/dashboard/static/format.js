// How figures and times are written, everywhere the same.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const EVENT_TIME_MAX = 9e15; // beyond it a time is a sign for "always" or "never"

export const count = (value) => (value === null || value === undefined ? '–' : whole.format(value));

export function short(value) {
  if (value === null || value === undefined) return '–';
  if (value < 10_000) return whole.format(value);
  if (value < 1e6) return `${(value / 1e3).toFixed(value < 1e5 ? 1 : 0)} k`;
  return `${(value / 1e6).toFixed(value < 1e7 ? 2 : 1)} M`;
}

export function rate(value) {
  if (value === null || value === undefined) return '–';
  return value > 0 && value < 10 ? value.toFixed(1) : whole.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at && value < 100 ? value.toFixed(1) : whole.format(value)} ${units[at]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0 s';
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${(value / 60).toFixed(0)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

const known = (us) => us !== null && us !== undefined && Math.abs(us) < EVENT_TIME_MAX;

// Event time is the world's, not this reader's: UTC.
export function eventTime(us) {
  if (!known(us)) return '–';
  return new Date(us / 1000).toISOString().replace('T', ' ').slice(0, 19);
}

export function eventClock(us) {
  if (!known(us)) return '–';
  const text = new Date(Math.floor(us / 1000)).toISOString();
  return `${text.slice(11, 23)}`;
}

export function wallClock(us) {
  if (!known(us)) return '–';
  return new Date(us / 1000).toLocaleTimeString('en-GB');
}

export function wallTime(us) {
  if (!known(us)) return '–';
  return new Date(us / 1000).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

export function span(us) {
  return seconds(Math.abs(us) / 1e6);
}

export function value(given, isTime) {
  if (given === null || given === undefined) return 'null';
  if (isTime && typeof given === 'number') return eventTime(given);
  if (typeof given === 'string') return given;
  if (typeof given === 'number' && !Number.isInteger(given)) return String(Math.round(given * 1e6) / 1e6);
  return typeof given === 'object' ? JSON.stringify(given) : String(given);
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
