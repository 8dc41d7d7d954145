// Names in side bars and titles break after a dot, a hyphen or an underscore, not within a word.
for (const label of document.querySelectorAll(".md-nav__link .md-ellipsis, .md-content h1")) {
  const texts = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode);
  for (const text of found) {
    const parts = text.data.split(/(?<=[._-])(?=\w)/);
    text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  }
}
