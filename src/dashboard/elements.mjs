// The page's elements: made, filled and updated in place. All that the broker says goes in as text, never as HTML.

/** Makes an element with properties and children; strings become text. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Sets a text only when it is another: selections and screen readers are left alone otherwise. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Says something in a line of news. */
export function tell(target, text, state = '') {
  setText(target, text);
  target.dataset.state = state;
}

/** An empty state: sentences and the commands that change it. */
export function fillEmpty(target, sentence, ...commands) {
  const key = [sentence, ...commands].join('\n');
  if (target.dataset.key !== key) {
    target.dataset.key = key;
    const words = element('p', {}, sentence);
    target.replaceChildren(words, ...(commands.length > 0 ? [element('pre', {}, commands.join('\n'))] : []));
  }
  target.hidden = false;
}

/** A command line for this broker. */
export function curl(path, rest = '') {
  return `curl '${new URL(path, document.baseURI).href}'${rest}`;
}

/**
 * A table whose rows are updated in place, so that focus and selection stay. A column is `{head, text(row), href?(row), isNumber,
 * isName}`; the first one names the row.
 */
export class Table {
  constructor(table, caption, columns) {
    this.columns = columns;
    const heads = columns.map(({ head, isNumber }) => element('th', { scope: 'col', className: isNumber ? 'number' : '' }, head));
    this.body = element('tbody');
    table.setAttribute('aria-label', caption);
    table.replaceChildren(element('thead', {}, element('tr', {}, ...heads)), this.body);
  }

  show(rows) {
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((row, at) => {
      const line = this.body.rows[at] ?? this.addLine();
      this.columns.forEach((column, index) => fill(line.cells[index], column, row));
    });
  }

  addLine() {
    const cells = this.columns.map(({ isNumber, isName, href }, index) => {
      const cell = element(index === 0 ? 'th' : 'td', { className: isNumber ? 'number' : '' });
      if (index === 0) cell.scope = 'row';
      if (isName) cell.append(element(href ? 'a' : 'span', { className: 'name' }));
      return cell;
    });
    return this.body.appendChild(element('tr', {}, ...cells));
  }
}

function fill(cell, { text, href, isName }, row) {
  const target = isName ? cell.firstChild : cell;
  const wanted = text(row);
  setText(target, wanted);
  if (isName) target.title = wanted;
  if (href && target.getAttribute('href') !== href(row)) target.setAttribute('href', href(row));
}
