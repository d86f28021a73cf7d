// A list of any length: only the rows that can be seen are in the page. For keyboards and screen readers it is a listbox,
// or a plain list where there is nothing to choose.

import { h, patch } from './dom.js';

let made = 0;

export class Rows {
  // `render(item, index)` gives a row's children. `need(first, count)` is called when rows are wanted that are not there.
  constructor({ label, height = 34, render, choose = () => {}, need = () => {}, head = null, role = 'listbox' }) {
    Object.assign(this, { height, render, choose, need, role });
    this.id = `rows${(made += 1)}`;
    this.count = 0;
    this.item = () => undefined;
    this.active = -1;
    this.chosen = null;
    this.element = document.createElement('div');
    this.element.className = 'rows';
    this.body = document.createElement('div');
    this.body.className = 'rows-body';
    this.body.tabIndex = 0;
    this.body.setAttribute('role', role);
    this.body.setAttribute('aria-label', label);
    this.space = document.createElement('div');
    this.space.className = 'rows-space';
    this.space.setAttribute('role', 'presentation');
    this.body.append(this.space);
    if (head) {
      this.head = document.createElement('div');
      this.head.className = 'rows-head';
      this.head.setAttribute('aria-hidden', 'true');
      patch(this.head, head);
      this.element.append(this.head);
    }
    this.element.append(this.body);
    this.body.addEventListener('scroll', () => this.draw(), { passive: true });
    this.body.addEventListener('keydown', (event) => this.key(event));
    this.body.addEventListener('click', (event) => {
      const row = event.target.closest('[data-index]');
      if (row) this.pick(Number(row.dataset.index));
    });
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  // `item(index)`: what is at a place, or undefined while it is not known. `name(item)`: what it is known by.
  show(count, item, name) {
    this.count = count;
    this.item = item;
    this.name = name;
    this.draw();
  }

  draw() {
    const tall = this.body.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.body.scrollTop / this.height) - 6);
    const last = Math.min(this.count, Math.ceil((this.body.scrollTop + tall) / this.height) + 6);
    const rows = [];
    let missing = -1;
    for (let index = first; index < last; index += 1) {
      const item = this.item(index);
      if (item === undefined && missing < 0) missing = index;
      const chosen = item !== undefined && this.chosen !== null && this.name(item) === this.chosen;
      rows.push(
        h('div', {
          key: index, id: `${this.id}-${index}`, role: this.role === 'list' ? 'listitem' : 'option', class: `row${chosen ? ' chosen' : ''}${index === this.active ? ' active' : ''}`,
          'data-index': index, 'aria-selected': this.role === 'list' ? null : chosen ? 'true' : 'false', 'aria-posinset': index + 1, 'aria-setsize': this.count,
          style: { top: `${index * this.height}px`, height: `${this.height}px` },
        }, item === undefined ? h('span', { class: 'soft' }, '…') : this.render(item, index)),
      );
    }
    this.space.style.height = `${this.count * this.height}px`;
    patch(this.space, rows);
    if (this.role === 'listbox' && this.active >= first && this.active < last) this.body.setAttribute('aria-activedescendant', `${this.id}-${this.active}`);
    else this.body.removeAttribute('aria-activedescendant');
    if (missing >= 0) this.need(missing, last - missing);
  }

  pick(index) {
    const item = this.item(index);
    if (item === undefined) return;
    this.active = index;
    this.chosen = this.name(item);
    this.choose(item);
    this.draw();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.active = Math.max(0, Math.min(this.count - 1, this.active + steps[event.key]));
      const top = this.active * this.height;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      if (top + this.height > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + this.height - this.body.clientHeight;
      this.draw();
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      if (this.active >= 0) this.pick(this.active);
    }
  }
}
