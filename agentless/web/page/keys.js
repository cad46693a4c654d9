// Keys that are for the page and not for the app, and buttons for keys that a phone lacks.
const KEYS = {
  escape: "\x1b",
  tab: "\t",
  enter: "\r",
  up: "\x1b[A",
  down: "\x1b[B",
  right: "\x1b[C",
  left: "\x1b[D",
  commands: ":",
};
const OF_BROWSER = new Set(["F5", "F11", "F12"]);
const ZOOM = { "+": 1, "=": 1, "-": -1, 0: 0 };

export function addKeys(terminal) {
  // False leaves a key to the browser.
  terminal.xterm.attachCustomKeyEventHandler((event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    const command = (ctrlKey || metaKey) && !altKey;
    if (OF_BROWSER.has(key) || (altKey && (key === "ArrowLeft" || key === "ArrowRight"))) return false; // back, forward
    if (command && key.toLowerCase() === "c" && terminal.selected) return false; // copies what is marked
    if (!command || !(key in ZOOM)) return true;
    event.preventDefault();
    if (event.type === "keydown") terminal.zoomBy(ZOOM[key]);
    return false;
  });
  const zoom = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    terminal.zoomBy(event.deltaY < 0 ? 1 : -1);
  };
  terminal.element.addEventListener("wheel", zoom, { capture: true, passive: false });
}

export function addButtons(terminal) {
  const does = {
    smaller: () => terminal.zoomBy(-1),
    larger: () => terminal.zoomBy(1),
    select: (button) => {
      button.setAttribute("aria-pressed", Boolean(terminal.isSelecting)); // a new connection ends it
      terminal.selecting = pressed(button);
    },
    type: (button) => {
      terminal.input.inputMode = pressed(button) ? "text" : "none";
      terminal.input.blur(); // the keyboard opens or closes when the focus comes
      terminal.focus();
    },
  };
  // A tap on the terminal opens no keyboard: most of it is read.
  if (matchMedia("(any-pointer: coarse)").matches) terminal.input.inputMode = "none";
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("mousedown", (event) => event.preventDefault()); // the terminal keeps the focus
    button.addEventListener("click", () => {
      if (button.dataset.keys) terminal.type(KEYS[button.dataset.keys]);
      else does[button.dataset.does](button);
    });
  }
}

function pressed(button) {
  const on = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", on);
  return on;
}
