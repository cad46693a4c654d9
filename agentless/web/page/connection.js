// The connection to the app: lost after a sleep or with the network, it comes back by itself, at the same place.
import { say } from "./status.js";

const CLOSED = 1000; // the code when the app has ended by itself
const QUIET = 20e3; // ms without a word, after which the connection is tried
const PATIENCE = 5e3; // ms for an answer
const PAUSES = [0.5, 1, 2, 4, 8, 15]; // seconds between attempts

export class Connection {
  constructor(terminal, address, url) {
    Object.assign(this, { terminal, address, url, attempts: 0, lost: false });
    this.follow(terminal.socket);
    addEventListener("popstate", () => terminal.send("place", address.path));
    addEventListener("online", () => this.wake());
    addEventListener("pageshow", (event) => event.persisted && this.wake());
    document.addEventListener("visibilitychange", () => document.hidden || this.wake());
    setInterval(() => this.socket && Date.now() - this.heard > QUIET && this.probe(), PATIENCE);
  }

  follow(socket) {
    this.socket = socket;
    this.heard = Date.now();
    socket.addEventListener("open", () => {
      if (this.lost) say("Reconnected: a new dashboard at the same place. What you typed into a form is gone.", 8);
      this.attempts = 0;
    });
    socket.addEventListener("message", ({ data }) => {
      this.heard = Date.now();
      if (typeof data === "string") this.take(...JSON.parse(data));
      else if (!this.shown) {
        this.shown = true;
        if (!this.lost) say("");
        this.lost = false;
        document.body.classList.add("-first-byte");
      }
    });
    socket.addEventListener("close", ({ code }) => {
      if (socket !== this.socket) return;
      if (code === CLOSED) this.end();
      else this.lose();
    });
  }

  take(kind, content) {
    if (kind === "place") this.address.show(content);
  }

  end() {
    this.socket = null;
    say("Dashboard closed. If you did not close it, see the terminal that started it.", 0, "Open again");
  }

  // Ask for a sign of life.
  probe() {
    const asked = Date.now();
    this.terminal.send("ping", `${asked}`);
    const { socket } = this;
    setTimeout(() => socket === this.socket && this.heard < asked && this.lose(), PATIENCE);
  }

  // The page is looked at again, or the network is back.
  wake() {
    if (this.socket) this.probe();
    else if (this.lost) this.retry();
  }

  lose() {
    const { socket } = this;
    this.socket = null;
    this.lost = true;
    this.shown = false;
    socket.close();
    say("Connection lost. Reconnecting …");
    this.later();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.retry(), 1000 * PAUSES[Math.min(this.attempts++, PAUSES.length - 1)]);
  }

  async retry() {
    clearTimeout(this.timer);
    const signal = AbortSignal.timeout(PATIENCE);
    const answer = await fetch(`${this.address.folder}page/icon.svg`, { signal }).catch(() => null);
    if (this.socket || !this.lost) return; // another attempt was quicker
    if (!answer) this.later();
    else if (answer.ok) this.follow(this.terminal.connect(this.url + this.address.path));
    else {
      this.lost = false;
      say("The server of this page was restarted. Press Enter in its terminal for a new link.");
    }
  }
}
