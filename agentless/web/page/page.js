// textual.js opens the terminal when the page has loaded; then keys are for it, without a click.
window.addEventListener("load", () => document.querySelector(".xterm-helper-textarea").focus());
