const search = document.getElementById("search");
const count = document.getElementById("count");
const groups = [...document.querySelectorAll("section")].map((section) => ({
  section,
  items: [...section.querySelectorAll("details")].map((item) => ({
    item,
    text: item.textContent.toLowerCase(),
  })),
}));
function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { section, items } of groups) {
    let here = 0;
    for (const { item, text } of items) {
      item.hidden = !words.every((word) => text.includes(word));
      here += item.hidden ? 0 : 1;
    }
    section.hidden = here === 0;
    shown += here;
  }
  count.textContent = `${shown} shown`;
}
function open() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named instanceof HTMLDetailsElement) named.open = true;
}
search.addEventListener("input", show);
addEventListener("hashchange", open);
show();
open();
