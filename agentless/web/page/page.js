// Puts the page together: the terminal of textual.js, the connection, the address, the keys, touch.
import { Address } from "./address.js";
import { Connection } from "./connection.js";
import { addButtons, addKeys } from "./keys.js";
import { Terminal } from "./terminal.js";
import { addTouch } from "./touch.js";

const start = window.onload; // of textual.js: it begins once the font is here, or the cells get the width of another
window.onload = null;
const element = document.querySelector("#terminal");
const websocket = element.dataset.sessionWebsocketUrl;
const address = new Address(new URL(websocket).pathname.replace(/ws$/, ""));
await Promise.allSettled(
  ["", "bold ", "italic ", "italic bold "].map((style) => document.fonts.load(`${style}16px "Roboto Mono"`)),
);
const terminal = new Terminal(element, start, websocket + address.path);
new Connection(terminal, address, websocket);
addKeys(terminal);
addButtons(terminal);
addTouch(terminal);
terminal.focus();
