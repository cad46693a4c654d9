// The line on top of the page that says what happened to it.
const line = document.querySelector("#status");
let timer;

// Say this, for so many seconds if they are given; `link` opens the dashboard again.
export function say(text, seconds, link) {
  clearTimeout(timer);
  line.textContent = text;
  if (link) {
    const again = document.createElement("a");
    again.href = "";
    again.textContent = link;
    line.append(" ", again);
  }
  if (seconds) timer = setTimeout(() => say(""), seconds * 1000);
}
