// Before the first paint, so that a dark page does not flash white.
(function () {
  var wish = null;
  try { wish = localStorage.getItem("mantine-color-scheme-value"); } catch (error) { wish = null; }
  var dark = wish === "dark" || (wish !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
