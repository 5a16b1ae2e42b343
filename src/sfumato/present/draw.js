(() => {
  const page = JSON.parse(document.getElementById("charts").textContent);
  const tooltip = { disableDefaultStyle: true };
  // expressions are interpreted from their syntax trees: the page's policy forbids to compile them
  const look = { config: page.config, renderer: "svg", actions: false, defaultStyle: false };
  const options = { ...look, ast: true, logLevel: 1, tooltip, formatLocale: page.locale.number, timeFormatLocale: page.locale.time };
  for (const place of document.querySelectorAll("[data-chart]")) {
    const name = place.dataset.chart;
    const label = place.getAttribute("aria-label");
    vegaEmbed(place, page.specs[name], options).then(() => place.setAttribute("aria-label", label), (reason) => {
      place.textContent = "This chart could not be drawn: " + reason.message;
    });
  }
})();
