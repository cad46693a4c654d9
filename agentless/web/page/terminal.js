// The terminal: its size, its text, the clipboard.
import { say } from "./status.js";

const COLUMNS = 50; // the least, on a phone
const LINES = 24;
const WIDTH = 0.6; // of a letter, in its height
const HEIGHT = 1.32; // of a line
const SIZES = [6, 40];
const CLIPBOARD = 1 << 20; // characters that an app may copy at once
const NO_MOUSE = "\x1b[?1000l\x1b[?1003l\x1b[?1006l";
const MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1006h";

export class Terminal {
  // `start` is what textual.js does when the page is loaded, `url` where it connects to.
  constructor(element, start, url) {
    this.element = element;
    this.zoom = Number(sessionStorage.getItem("zoom")) || 0;
    element.dataset.sessionWebsocketUrl = url;
    element.dataset.fontSize = this.fontSize();
    this.view = caught(start);
    this.xterm = this.view.terminal;
    // textual.js does not ask whether it is connected already.
    this.view.sendSize = () => this.view.size && this.send("resize", this.view.size);
    this.view.onFocus = () => this.send("focus");
    this.view.onBlur = () => this.send("blur");
    this.columns = this.xterm.cols;
    this.xterm.onResize(({ cols }) => this.forget(cols));
    this.xterm.options.macOptionClickForcesSelection = true;
    // An app may write to the clipboard, never read it: what runs in a container is not trusted with it.
    this.xterm.parser.registerOscHandler(52, (data) => this.copyFrom(data));
    window.onresize = null; // of textual.js: a resize may ask for another font size, too
    new ResizeObserver(() => this.fit()).observe(element);
  }

  get screen() {
    return this.xterm.element.querySelector(".xterm-screen");
  }

  get input() {
    return this.xterm.textarea;
  }

  get socket() {
    return this.view.socket;
  }

  // Connect to an app at this URL; returns the new socket.
  connect(url) {
    this.xterm.reset();
    this.isSelecting = false; // the new app asks for the mouse
    this.view.websocket_url = url;
    this.view.connect();
    return this.view.socket;
  }

  send(...message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  type(text) {
    this.send("stdin", text);
  }

  focus() {
    this.xterm.focus();
  }

  // The size at which a phone has enough columns, and a window enough lines.
  fontSize() {
    const { clientWidth, clientHeight } = this.element;
    const fits = Math.min(16, clientWidth / COLUMNS / WIDTH, clientHeight / LINES / HEIGHT);
    return clamped(Math.max(9, Math.floor(fits)) + this.zoom);
  }

  fit() {
    this.xterm.options.fontSize = this.fontSize();
    this.view.fit();
  }

  // xterm.js keeps what is right of the last column, and would copy it. The app draws all again after a resize.
  forget(columns) {
    const fewer = columns < this.columns;
    this.columns = columns;
    if (fewer && this.xterm.buffer.active.type === "alternate") this.xterm.write("\x1b[2J");
  }

  zoomBy(by) {
    this.zoom = by ? clamped(this.fontSize() + by) - (this.fontSize() - this.zoom) : 0;
    sessionStorage.setItem("zoom", this.zoom);
    this.fit();
  }

  // Whether a drag marks text, instead of being a drag for the app. Shift does the same for one drag.
  set selecting(on) {
    this.isSelecting = on;
    this.xterm.write(on ? NO_MOUSE : MOUSE);
    if (!on) this.xterm.clearSelection();
  }

  get selected() {
    return this.xterm.getSelection();
  }

  copy(text) {
    const failed = () => say("This browser did not allow copying. Mark the text with Shift held, then copy it.", 8);
    if (!navigator.clipboard) failed();
    else navigator.clipboard.writeText(text).then(() => say("Copied", 2), failed);
  }

  copyFrom(data) {
    const text = data.slice(data.indexOf(";") + 1);
    if (text !== "?" && text.length < CLIPBOARD) {
      try {
        this.copy(new TextDecoder().decode(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))));
      } catch {
        // not in base64
      }
    }
    return true;
  }
}

// textual.js keeps its terminal to itself: it is caught where the first attribute of it is set.
function caught(start) {
  let view;
  Object.defineProperty(Object.prototype, "websocket_url", {
    configurable: true,
    set(url) {
      delete Object.prototype.websocket_url;
      this.websocket_url = url;
      view = this;
    },
  });
  start();
  return view;
}

function clamped(size) {
  return Math.min(Math.max(size, SIZES[0]), SIZES[1]);
}
