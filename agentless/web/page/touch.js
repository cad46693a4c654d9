// Touch: a tap is a click (the browser makes one), a swipe scrolls, a pinch zooms, and a drag marks while selecting.
const SLACK = 8; // pixels that a finger may move in a tap
const STEP = 24; // pixels of a swipe for a turn of the wheel
const PINCH = 24; // pixels of a pinch for a step of the zoom

export function addTouch(terminal) {
  let began, scrolled, spread, moved;
  const at = ({ clientX, clientY }) => ({ clientX, clientY, bubbles: true, cancelable: true });
  const mouse = (kind, touch) =>
    terminal.screen.dispatchEvent(new MouseEvent(kind, { ...at(touch), detail: 1, buttons: 1 }));
  const distance = ([one, other]) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);

  function start(event) {
    const [touch] = event.touches;
    [began, scrolled, moved] = [touch, touch.clientY, false];
    if (event.touches.length === 2) spread = distance(event.touches);
    else if (terminal.isSelecting) mouse("mousedown", touch);
  }

  function move(event) {
    event.preventDefault();
    event.stopPropagation();
    const [touch] = event.touches;
    moved ||= Math.hypot(touch.clientX - began.clientX, touch.clientY - began.clientY) > SLACK;
    if (event.touches.length === 2) pinch(event.touches);
    else if (terminal.isSelecting) mouse("mousemove", touch);
    else if (moved) swipe(touch);
  }

  function pinch(touches) {
    const steps = Math.trunc((distance(touches) - spread) / PINCH);
    if (!steps) return;
    spread += steps * PINCH;
    moved = true;
    terminal.zoomBy(steps);
  }

  function swipe(touch) {
    const turns = Math.trunc((scrolled - touch.clientY) / STEP);
    scrolled -= turns * STEP;
    const deltaY = Math.sign(turns);
    for (let turn = 0; turn < Math.abs(turns); turn++) {
      terminal.screen.dispatchEvent(new WheelEvent("wheel", { ...at(touch), deltaY, deltaMode: 1 }));
    }
  }

  function end(event) {
    if (terminal.isSelecting && event.changedTouches.length) {
      mouse("mouseup", event.changedTouches[0]);
      event.preventDefault();
      if (terminal.selected) terminal.copy(terminal.selected);
    } else if (moved) event.preventDefault(); // no click after a swipe
  }

  const options = { capture: true, passive: false };
  terminal.element.addEventListener("touchstart", start, options);
  terminal.element.addEventListener("touchmove", move, options);
  terminal.element.addEventListener("touchend", end, options);
}
