// The document, touched as little as possible: what has not changed is not written again.

export const byId = (id) => document.getElementById(id);

/** make("li", {class: "wait"}, child, "text") */
export function make(tag, facts = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function write(element, text) {
  if (element.firstChild?.nodeType === 3 && element.childNodes.length === 1) {
    if (element.firstChild.data !== text) element.firstChild.data = text;
  } else if (element.textContent !== text || element.childNodes.length !== 0) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function show(element, whether) {
  if (element.hidden === whether) element.hidden = !whether;
}

export function setWidth(element, share) {
  const width = `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;
  if (element.style.width !== width) element.style.width = width;
}

const END_SEEN = 10;

/** A name that is cut, where there is no room, so that its end is seen: keys of one host differ there. See .cut in style.css. */
export function writeName(element, name) {
  if (element.named === name) return;
  element.named = name;
  const path = name.indexOf("/");
  const cut = path > 0 ? path : Math.max(0, name.length - END_SEEN);
  element.replaceChildren(make("span", {}, name.slice(0, cut)), make("span", {}, make("bdi", { dir: "ltr" }, name.slice(cut))));
}

/** Make a list's children the items, in this order, and keep the elements of those that were there before. */
export function updateList(parent, items, nameOf, create, update) {
  const known = parent.known ?? (parent.known = new Map());
  const wanted = new Set(items.map(nameOf));
  for (const [name, element] of known) {
    if (!wanted.has(name)) {
      element.remove();
      known.delete(name);
    }
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = nameOf(item);
    let element = known.get(name);
    if (!element) known.set(name, (element = create(item)));
    if (element !== place) parent.insertBefore(element, place);
    else place = place.nextElementSibling;
    update(element, item);
  }
}

/** The items, each with an `id` that no other has, also where several have the same name. */
export function numbered(items, nameOf) {
  const seen = new Map();
  return items.map((item) => {
    const name = nameOf(item);
    const nth = (seen.get(name) ?? 0) + 1;
    seen.set(name, nth);
    return { ...item, id: `${name} ${nth}` };
  });
}

const spoken = byId("spoken");
/** Announce it to screen readers. */
export const speak = (sentence) => write(spoken, sentence);

/** Whether keys that are pressed there are text or an answer. A dialog that was just closed may still have the focus. */
export function isTyping(element) {
  const dialog = element?.closest?.("dialog");
  return dialog ? dialog.open : /^(INPUT|SELECT|TEXTAREA)$/.test(element?.tagName ?? "");
}
