// Before anything is drawn, so that a dark page does not flash.
"use strict";
(() => {
  try {
    const chosen = localStorage.getItem("headrace-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* no storage: the system decides */ }
})();
