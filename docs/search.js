// Ranks the results of the site's search, because Sphinx scores every page with the word in its text alike, and adds
// for whom each page is: PURPOSES, from conf.py.
const words = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().split(/\s+/);
const BACKGROUND = /^(CHANGELOG|ARCHITECTURE|CONTRIBUTING|STYLE|testdata|docs\/(README|measured|dependencies))/;

function rank(page) {
  if (BACKGROUND.test(page)) return -4;
  if (page === "README") return 4;
  const name = page.toLowerCase().split("/").pop();
  if (words.includes(name)) return 30;
  return (words.some((word) => word && name.includes(word)) ? 20 : 0) + (page.startsWith("docs/jobs/") ? 3 : 0);
}

var Scorer = {
  score: (result) => {
    const [page, , , description, score] = result;
    result[3] = description || (PURPOSES[page] && `for ${PURPOSES[page]}`);
    return score + rank(page);
  },
  // The defaults, which Sphinx leaves out where a scorer is given.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
