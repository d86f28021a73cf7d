// A process as its author drew it in BPMN, by bpmn-js, with the state of an instance on it.

const SCRIPT = '/static/bpmn-js/bpmn-navigated-viewer.production.min.js';
const STYLES = ['/static/bpmn-js/diagram-js.css', '/static/bpmn-js/bpmn-js.css'];
const SIGNS = { done: '✓', undone: '↺', waiting: '…', running: '▸', failed: '✕' };
let loading = null;

function load() {
  loading ||= new Promise((resolve, reject) => {
    for (const href of STYLES) document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
    document.head.append(Object.assign(document.createElement('script'), { src: SCRIPT, onload: () => resolve(window.BpmnJS), onerror: () => reject(new Error('bpmn-js is missing')) }));
  });
  return loading;
}

// One viewer for the element on the page; another instance of the same version keeps it.
let shown = null; // {element, key, viewer, marked}

export async function draw(element, key, address, marks) {
  if (shown?.element !== element || shown.key !== key) {
    forget();
    const mine = (shown = { element, key, viewer: null, marked: new Map() });
    try {
      const Viewer = await load();
      const xml = await (await fetch(address)).text();
      if (shown !== mine) return;
      const viewer = new Viewer({ container: element });
      const { warnings } = await viewer.importXML(xml);
      mine.viewer = viewer;
      viewer.get('canvas').zoom('fit-viewport', 'auto');
      element.dataset.drawn = warnings.length ? `with ${warnings.length} warnings` : 'all';
    } catch (error) {
      element.dataset.drawn = 'not';
      element.textContent = `This drawing cannot be shown: ${error.message}`;
      return;
    }
  }
  if (shown.viewer) mark(shown, marks);
}

function mark({ viewer, marked, element }, marks) {
  const canvas = viewer.get('canvas'), overlays = viewer.get('overlays'), known = viewer.get('elementRegistry');
  for (const [id, was] of marked) {
    if (marks[id] === was) continue;
    canvas.removeMarker(id, `is-${was}`);
    overlays.remove({ element: id });
    marked.delete(id);
  }
  for (const [id, is] of Object.entries(marks)) {
    if (marked.has(id) || !known.get(id)) continue;
    canvas.addMarker(id, `is-${is}`);
    overlays.add(id, { position: { top: -11, right: 11 }, html: `<span class="bpmn-mark ${is}" title="${is}">${SIGNS[is]}</span>` });
    marked.set(id, is);
  }
  element.setAttribute('aria-label', `Drawn process; ${[...marked].map(([id, is]) => `${known.get(id).businessObject.name || id} ${is}`).join(', ') || 'nothing done yet'}`);
}

export function forget() {
  shown?.viewer?.destroy();
  shown = null;
}
