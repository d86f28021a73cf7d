// A page as a function of its state: `h` describes elements, `patch` changes only what differs, so that focus,
// selection and scroll positions stay where they are while figures change twice a second.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'g', 'path', 'rect', 'circle', 'line', 'text', 'tspan', 'polygon', 'polyline', 'title', 'defs', 'marker', 'ellipse']);

export function h(tag, props, ...children) {
  const flat = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== '');
  return { tag, props: props || {}, children: flat.map((child) => (typeof child === 'object' ? child : String(child))) };
}

export function patch(parent, wanted) {
  reconcile(parent, Array.isArray(wanted) ? wanted.flat(Infinity).filter(Boolean) : [wanted]);
}

function create(node, inSvg) {
  if (typeof node === 'string') return document.createTextNode(node);
  const svg = SVG_TAGS.has(node.tag) && (node.tag !== 'title' || inSvg);
  const element = svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  element.vprops = {};
  element.vtag = node.tag;
  update(element, node, svg);
  return element;
}

function update(element, node, svg = element.namespaceURI === SVG) {
  const before = element.vprops;
  for (const name of Object.keys(before)) if (!(name in node.props)) set(element, name, undefined, before[name]);
  for (const [name, value] of Object.entries(node.props)) if (before[name] !== value) set(element, name, value, before[name]);
  element.vprops = node.props;
  if (!('html' in node.props) && !node.props.own) reconcile(element, node.children, svg);
}

function set(element, name, value, before) {
  if (name === 'key' || name === 'own') return;
  if (name.startsWith('on')) {
    const type = name.slice(2).toLowerCase();
    if (before) element.removeEventListener(type, before);
    if (value) element.addEventListener(type, value);
  } else if (name === 'style') {
    for (const [property, is] of Object.entries(value || {})) element.style.setProperty(property, is);
  } else if ((name === 'value' && element.tagName !== 'OPTION') || name === 'checked' || name === 'disabled' || name === 'open' || name === 'hidden') {
    if (element[name] !== value && !(name === 'value' && element === document.activeElement)) element[name] = value ?? '';
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? '' : value);
  }
}

function reconcile(parent, wanted, inSvg = parent.namespaceURI === SVG) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.vprops?.key !== undefined) keyed.set(child.vprops.key, child);
  let at = parent.firstChild;
  for (const node of wanted) {
    const key = typeof node === 'string' ? undefined : node.props.key;
    let found = key === undefined ? at : keyed.get(key);
    if (found && key === undefined && found.vprops?.key !== undefined) found = null;
    if (found && !same(found, node)) found = null;
    if (!found) {
      parent.insertBefore(create(node, inSvg), at);
      continue;
    }
    if (found !== at) parent.insertBefore(found, at);
    else at = at.nextSibling;
    if (typeof node === 'string') {
      if (found.nodeValue !== node) found.nodeValue = node;
    } else {
      update(found, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function same(found, node) {
  if (typeof node === 'string') return found.nodeType === Node.TEXT_NODE;
  return found.vtag === node.tag;
}
