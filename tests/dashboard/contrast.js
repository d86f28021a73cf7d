// Text that is hard to read on its ground: less than 4.5 to 1, or 3 to 1 where it is large (WCAG 2.2, 1.4.3).
() => {
  const parts = (text) => {
    const found = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    const scale = text.startsWith('color(') ? 255 : 1;
    return [found[0] * scale, found[1] * scale, found[2] * scale, found[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((one, at) => one * top[3] + below[at] * (1 - top[3]));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim());
    const box = element.getBoundingClientRect();
    if (!own || !box.width || !box.height || element.closest('.unseen, .skip, noscript, title, .off, option')) continue;
    const style = getComputedStyle(element);
    const drawn = element.namespaceURI.endsWith('svg');
    let below = ground(drawn ? element.closest('svg') : element);
    if (drawn) {
      // A text in a group is on the shape before it.
      let shape = element.previousElementSibling;
      while (shape && !(['circle', 'rect', 'polygon'].includes(shape.tagName) && !shape.classList.contains('stripe'))) shape = shape.previousElementSibling;
      const fill = shape && element.parentNode.tagName === 'g' ? parts(getComputedStyle(shape).fill) : null;
      const inside = shape && shape.getBBox().x <= element.getBBox().x + element.getBBox().width / 2;
      if (fill && inside && getComputedStyle(shape).fill !== 'none') below = over(fill, below);
    }
    const ink = over(parts(drawn ? style.fill : style.color), below);
    const [one, other] = [light(ink), light(below)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 600) ? 3 : 4.5;
    const is = (one + 0.05) / (other + 0.05);
    if (is < needed) bad.push(`${is.toFixed(2)} ${element.tagName}.${element.getAttribute('class')} "${element.textContent.trim().slice(0, 30)}"`);
  }
  return [...new Set(bad)].slice(0, 20);
}
