// textual.js sets -loaded on the body when it is connected; from then on keys are for the terminal, without a click.
const connected = new MutationObserver(() => {
  if (document.body.classList.contains("-loaded")) {
    connected.disconnect();
    document.querySelector(".xterm-helper-textarea").focus();
  }
});
connected.observe(document.body, { attributeFilter: ["class"] });
