// Puts the page's parts together: one chat, the list beside it, one connection for both.

import { Conversation } from "./conversation.js";
import { Drawer } from "./drawer.js";
import { forgetDrafts } from "./draft.js";
import { onEscape } from "./escape.js";
import { Reading } from "./reading.js";
import { Sidebar } from "./sidebar.js";

const isAnOlderPage = !document.querySelector("#composer"); // read only; the links on it lead back
const conversation = isAnOlderPage ? null : new Conversation();
if (isAnOlderPage) new Reading(document.querySelector("#scroll")).dress(document.querySelector("#turns"));
const drawer = new Drawer();
const sidebar = new Sidebar(document.body.dataset.user, { renamed: () => conversation?.sync() });
onEscape([() => sidebar.close(), () => drawer.close(), () => conversation?.interrupt() ?? false]);
document.querySelector("#sign-out").addEventListener("submit", () => {
  forgetDrafts();
  conversation?.forget();
});
conversation?.open(sidebar);
