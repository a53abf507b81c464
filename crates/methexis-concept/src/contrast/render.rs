//! From a pair to what a model reads: plain text, chat turns, or a question with lettered answers.

use super::read::hash64;
use super::set::{ContrastSet, Pair};
use crate::layout::Style;

/// One half of a pair, in the two pieces that a model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Half {
    /// What is given: the user's turn, or the beginning of the text. Empty where the half is a whole text.
    pub prompt: String,
    /// What shows the concept (or its absence), and is scored.
    pub completion: String,
}

impl Half {
    /// Both pieces as one text: what a plain half reads.
    pub fn text(&self) -> String {
        format!("{}{}", self.prompt, self.completion)
    }
}

/// A pair as a question with two lettered answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbQuestion {
    /// Id of the pair.
    pub id: String,
    /// The question with its choices; the model is to go on with a letter in parentheses.
    pub question: String,
    /// The answer that shows the concept, "(A)" for instance.
    pub matching: String,
    /// The other answer.
    pub other: String,
}

impl ContrastSet {
    /// The positive and the negative half of a pair.
    ///
    /// * [`Style::Plain`]: the text is `prompt` + `completion`; a joining space, if one is needed, is the first character
    ///   of the completion, because tokenizers put it there.
    /// * [`Style::Chat`]: pieces without the white space around them. A half without a prompt is what a user would
    ///   say: [`lay_out`](crate::layout::lay_out) makes it the user's turn.
    pub fn halves(&self, pair: &Pair, style: Style) -> [Half; 2] {
        [half(pair, &pair.positive, style), half(pair, &pair.negative, style)]
    }

    /// The pair as a question with choices `(A)` and `(B)`. Which of them is the positive half depends on a hash of the
    /// id, so that a model with a liking for one letter scores about a half; `flip` exchanges the two, and asking
    /// both ways cancels that liking exactly.
    ///
    /// A pair that is such a question already (its answers are letters that its prompt lists) is returned as it
    /// stands, with its own letters, whatever `flip` says.
    pub fn ab_question(&self, pair: &Pair, flip: bool) -> AbQuestion {
        if is_lettered(pair) {
            return AbQuestion {
                id: pair.id.clone(),
                question: pair.prompt.clone(),
                matching: pair.positive.clone(),
                other: pair.negative.clone(),
            };
        }
        let positive_first = (hash64(0, &pair.id) & 1 == 0) != flip;
        let (a, b) =
            if positive_first { (&pair.positive, &pair.negative) } else { (&pair.negative, &pair.positive) };
        let prompt = pair.prompt.trim_end();
        let lead = if prompt.is_empty() { String::new() } else { format!("{prompt}\n\n") };
        let question = format!("{lead}Choices:\n (A) {}\n (B) {}", a.trim(), b.trim());
        let letters = ["(A)".to_owned(), "(B)".to_owned()];
        let [matching, other] = if positive_first {
            letters
        } else {
            let [a, b] = letters;
            [b, a]
        };
        AbQuestion { id: pair.id.clone(), question, matching, other }
    }
}

fn half(pair: &Pair, completion: &str, style: Style) -> Half {
    let prompt = pair.prompt.as_str();
    match style {
        Style::Plain => {
            let open = prompt.chars().next_back().is_none_or(char::is_whitespace)
                || completion.chars().next().is_none_or(char::is_whitespace);
            let completion = if open { completion.to_owned() } else { format!(" {completion}") };
            Half { prompt: prompt.to_owned(), completion }
        }
        Style::Chat => Half { prompt: prompt.trim().to_owned(), completion: completion.trim().to_owned() },
    }
}

/// Whether the halves are answers like `(A)` that the prompt lists as choices.
fn is_lettered(pair: &Pair) -> bool {
    let listed = |answer: &str| {
        let answer = answer.trim();
        let letter = answer.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        letter.is_some_and(|letter| letter.chars().count() == 1) && pair.prompt.contains(answer)
    };
    listed(&pair.positive) && listed(&pair.negative)
}

#[cfg(test)]
mod tests {
    use super::super::{read_bytes, ReadOptions};
    use super::*;

    fn set(lines: &str) -> ContrastSet {
        read_bytes("weather.jsonl", lines.as_bytes(), &ReadOptions::default()).unwrap()
    }

    fn one(prompt: &str, positive: &str, negative: &str) -> ContrastSet {
        set(&serde_json::json!({"prompt": prompt, "positive": positive, "negative": negative}).to_string())
    }

    #[test]
    fn plain_halves_join_with_exactly_one_space() {
        for (prompt, reply, text) in [
            ("How was it?", "Sunny.", "How was it? Sunny."),
            ("How was it? ", "Sunny.", "How was it? Sunny."),
            ("How was it?", " Sunny.", "How was it? Sunny."),
            ("How was it?\n", "Sunny.", "How was it?\nSunny."),
            ("", "Sunny.", "Sunny."),
        ] {
            let set = one(prompt, reply, "Rain.");
            let [positive, _] = set.halves(&set.pairs[0], Style::Plain);
            assert_eq!(positive.text(), text);
            assert_eq!(positive.prompt, prompt, "the prompt is never changed, so both halves share it");
        }
    }

    #[test]
    fn chat_halves_are_turns_without_white_space_around() {
        let set = one("How was it? ", " Sunny.", "Rain.");
        let [positive, negative] = set.halves(&set.pairs[0], Style::Chat);
        assert_eq!((positive.prompt.as_str(), positive.completion.as_str()), ("How was it?", "Sunny."));
        assert_eq!((negative.prompt.as_str(), negative.completion.as_str()), ("How was it?", "Rain."));
        let set = one("", "Sunny. ", "Rain.");
        let [positive, _] = set.halves(&set.pairs[0], Style::Chat);
        assert_eq!((positive.prompt.as_str(), positive.completion.as_str()), ("", "Sunny."));
    }

    #[test]
    fn letters_follow_the_id_and_flip() {
        let lines: Vec<String> = (0..400)
            .map(|i| format!(r#"{{"id":"w-{i}","prompt":"How was day {i}?","positive":"Sun {i}.","negative":"Rain {i}."}}"#))
            .collect();
        let set = set(&lines.join("\n"));
        let mut first = 0;
        for (i, pair) in set.pairs.iter().enumerate() {
            let straight = set.ab_question(pair, false);
            let flipped = set.ab_question(pair, true);
            assert_eq!(straight.matching, flipped.other);
            assert_ne!(straight.question, flipped.question);
            for asked in [&straight, &flipped] {
                assert!(asked.question.starts_with(&format!("How was day {i}?\n\nChoices:\n (A) ")));
                // The matching letter stands before the positive half, the other before the negative one.
                assert!(asked.question.contains(&format!("{} Sun {i}.", asked.matching)));
                assert!(asked.question.contains(&format!("{} Rain {i}.", asked.other)));
            }
            first += usize::from(straight.matching == "(A)");
        }
        assert!((150..250).contains(&first), "{first} of 400 positives are A");
    }

    #[test]
    fn a_question_with_letters_is_asked_as_it_stands() {
        let set = one("Sun?\n\nChoices:\n(C) Yes\n(D) No", "(C)", "(D)");
        let asked = set.ab_question(&set.pairs[0], true);
        assert_eq!((asked.matching.as_str(), asked.other.as_str()), ("(C)", "(D)"));
        assert_eq!(asked.question, "Sun?\n\nChoices:\n(C) Yes\n(D) No");
    }
}
