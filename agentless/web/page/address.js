// The address, the title and the icon of the page follow the app, and the app follows the back button.
const icon = document.querySelector("link[rel=icon]");
const COLOUR = /^#[0-9a-f]{6}$/i;

export class Address {
  constructor(folder) {
    this.folder = folder; // below it are all places
  }

  get path() {
    return location.pathname.slice(this.folder.length - 1);
  }

  // The app is somewhere; `replaces` if it was led there by the address.
  show({ path, title, problems, background, replaces }) {
    document.title = title;
    if (COLOUR.test(background)) document.documentElement.style.setProperty("--background", background);
    icon.href = `${this.folder}page/icon${problems ? "-problems" : ""}.svg`;
    if (path !== this.path) history[replaces ? "replaceState" : "pushState"](null, "", this.folder.slice(0, -1) + path);
  }
}
