// The show of hands: the teacher counts the answers to a question before and after a discussion.
// The browser keeps the counts of each class, and a click saves them as a CSV file, which `npformer hands` reads.

const LETTERS = "ABCDEF";
const FEWEST_ANSWERS = 3;
const STORED_AS = "npformer-hands";

function readStored() {
  try {
    return JSON.parse(localStorage.getItem(STORED_AS)) ?? {};
  } catch {
    return {}; // a browser without storage keeps the counts until the page is closed
  }
}

function store(counts) {
  try {
    localStorage.setItem(STORED_AS, JSON.stringify(counts));
  } catch {
    // The counts stay in the page. The button "Save" still works.
  }
}

function emptyQuestion() {
  const zeros = () => Array(LETTERS.length).fill(0);
  return { day: today(), guesses: Array(LETTERS.length).fill(""), correct: null, votes: [zeros(), zeros()] };
}

function today() {
  const now = new Date();
  const twoDigits = (number) => String(number).padStart(2, "0");
  return `${now.getFullYear()}-${twoDigits(now.getMonth() + 1)}-${twoDigits(now.getDate())}`;
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// Return how many answers have a line: all that have a hand or a text, and at least three.
function countAnswers(question) {
  let used = FEWEST_ANSWERS;
  for (let i = 0; i < LETTERS.length; i++) {
    const hasHands = question.votes.some((vote) => vote[i] > 0);
    if (hasHands || question.guesses[i] !== "" || question.correct === i) used = Math.max(used, i + 1);
  }
  return used;
}

// Return the counts of one class as CSV. Each line is one answer in one vote.
function toCSV(className, questions) {
  const lines = [["class", "day", "question", "vote", "answer", "guess", "hands", "correct"]];
  for (const [id, question] of Object.entries(questions)) {
    question.votes.forEach((vote, v) => {
      if (sum(vote) === 0) return;
      for (let i = 0; i < countAnswers(question); i++) {
        let correct = "";
        if (question.correct !== null) correct = question.correct === i ? "yes" : "no";
        lines.push([className, question.day, id, v + 1, LETTERS[i], question.guesses[i], vote[i], correct]);
      }
    });
  }
  const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;
  return lines.map((line) => line.map(quote).join(",") + "\r\n").join("");
}

// Add the box to the page. `findQuestion` returns the id of the question on the current slide, or null.
function showHands(findQuestion) {
  const stored = readStored();
  let className = stored.lastClass ?? "";
  let counts = stored.classes ?? {};
  let vote = 0;
  let shownQuestion = null;

  const box = document.createElement("aside");
  box.className = "hands";
  box.hidden = true;
  box.setAttribute("aria-label", "Show of hands");
  box.innerHTML = `
    <div class="buttons">
      <label>Class <input class="class" autocomplete="off" spellcheck="false"></label>
      <button class="vote" aria-pressed="true">Vote 1</button>
      <button class="vote" aria-pressed="false">Vote 2</button>
      <button class="save">Save</button>
    </div>
    <div class="answers"></div>
    <p class="summary" role="status"></p>`;
  document.body.append(box);
  const answers = box.querySelector(".answers");
  const classInput = box.querySelector(".class");
  const voteButtons = [...box.querySelectorAll(".vote")];
  classInput.value = className;

  function currentQuestion() {
    counts[className] ??= {};
    counts[className][shownQuestion] ??= emptyQuestion();
    return counts[className][shownQuestion];
  }

  function keep() {
    store({ lastClass: className, classes: counts });
    draw();
  }

  function addLine(question, i) {
    const letter = document.createElement("button");
    letter.className = "letter";
    letter.textContent = LETTERS[i];
    letter.title = "Mark this answer as correct";
    letter.addEventListener("click", () => {
      question.correct = question.correct === i ? null : i;
      keep();
    });
    const guess = document.createElement("input");
    guess.placeholder = "answer";
    guess.setAttribute("aria-label", `Answer ${LETTERS[i]}`);
    guess.addEventListener("change", () => {
      question.guesses[i] = guess.value.trim();
      keep();
    });
    const bars = document.createElement("div");
    bars.className = "bars";
    bars.innerHTML = '<div class="bar first"></div><div class="bar second"></div>';
    answers.append(letter, guess, bars);
    question.votes.forEach((_, v) => {
      const number = document.createElement("input");
      number.className = "number";
      number.inputMode = "numeric";
      number.setAttribute("aria-label", `Hands for ${LETTERS[i]}, ${v === 0 ? "first" : "second"} vote`);
      number.addEventListener("change", () => {
        const hands = Number.parseInt(number.value, 10);
        question.votes[v][i] = hands > 0 ? Math.min(hands, 9999) : 0;
        keep();
      });
      answers.append(number);
    });
  }

  // Lines are added only when they are missing, so that a field keeps the focus while the bars change.
  function draw() {
    const question = currentQuestion();
    const wanted = `${className} ${shownQuestion} ${countAnswers(question)}`;
    if (answers.dataset.shown !== wanted) {
      answers.dataset.shown = wanted;
      answers.replaceChildren();
      for (let i = 0; i < countAnswers(question); i++) addLine(question, i);
    }
    const totals = question.votes.map(sum);
    const letters = answers.querySelectorAll(".letter");
    const guesses = answers.querySelectorAll("input:not(.number)");
    const numbers = answers.querySelectorAll(".number");
    const bars = answers.querySelectorAll(".bar");
    letters.forEach((letter, i) => {
      letter.setAttribute("aria-pressed", question.correct === i);
      guesses[i].value = question.guesses[i];
      for (const v of [0, 1]) {
        numbers[2 * i + v].value = totals[v] === 0 ? "" : question.votes[v][i];
        bars[2 * i + v].style.setProperty("--share", totals[v] === 0 ? 0 : question.votes[v][i] / totals[v]);
      }
    });
    voteButtons.forEach((button, v) => button.setAttribute("aria-pressed", vote === v));
    box.querySelector(".save").disabled = !hasCounts();
    box.querySelector(".summary").textContent = summarise(question, totals);
  }

  function summarise(question, totals) {
    const parts = [];
    for (const [v, name] of ["First vote", "Second vote"].entries()) {
      if (totals[v] === 0) continue;
      let part = `${name}: ${totals[v]} ${totals[v] === 1 ? "hand" : "hands"}`;
      if (question.correct !== null) {
        part += `, ${Math.round((100 * question.votes[v][question.correct]) / totals[v])} % correct`;
      }
      parts.push(part);
    }
    return parts.join("\n");
  }

  function open() {
    const id = findQuestion();
    if (id === null) return false;
    if (id !== shownQuestion) {
      shownQuestion = id;
      vote = 0;
    }
    box.hidden = false;
    draw();
    return true;
  }

  // Return whether the class has counts, for any question.
  function hasCounts() {
    const questions = Object.values(counts[className]);
    return questions.some((question) => question.votes.some((hands) => sum(hands) > 0));
  }

  function chooseVote(v) {
    vote = v;
    draw();
  }

  function save() {
    const file = new Blob([toCSV(className, counts[className])], { type: "text/csv" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    const nameInFile = className.replace(/[^\p{L}\p{N}_-]+/gu, "_");
    link.download = nameInFile === "" ? "hands.csv" : `hands-${nameInFile}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  // Return whether the key was one of ours.
  function handleKey(event) {
    const match = /^(?:Digit|Numpad)(\d)$/.exec(event.code);
    if (match !== null && match[1] === "0") {
      if (box.hidden) return open();
      box.hidden = true;
      return true;
    }
    const i = match === null ? -1 : Number(match[1]) - 1;
    if (i >= 0 && i < LETTERS.length) {
      if (!open()) return false;
      const hands = currentQuestion().votes[vote];
      hands[i] = Math.max(0, hands[i] + (event.shiftKey ? -1 : 1));
      keep();
      return true;
    }
    if (event.code === "KeyT" && !box.hidden) {
      chooseVote(1 - vote);
      return true;
    }
    return false;
  }

  document.addEventListener(
    "keydown",
    (event) => {
      if (box.contains(event.target)) {
        const isField = event.target.tagName === "INPUT";
        if (event.key === "Escape" || (event.key === "Enter" && isField)) event.target.blur();
        event.stopPropagation(); // reveal.js must not use what is typed into a field
        return;
      }
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (handleKey(event)) {
        event.preventDefault();
        event.stopPropagation();
      }
    },
    { capture: true },
  );
  // Counts that were made before the class had a name belong to the class that is named now.
  classInput.addEventListener("change", () => {
    const newName = classInput.value.trim();
    if (className === "" && newName !== "") {
      counts[newName] = { ...counts[newName], ...counts[""] };
      delete counts[""];
    }
    className = newName;
    keep();
  });
  voteButtons.forEach((button, v) => button.addEventListener("click", () => chooseVote(v)));
  box.querySelector(".save").addEventListener("click", save);

  // Hide the box when another question is on the slide.
  function update() {
    if (findQuestion() !== shownQuestion) box.hidden = true;
  }
  return update;
}
