//! One entry for fuzzing: every reader, and what is done with a set that one of them accepts.

use std::path::{Path, PathBuf};

use super::lint::lint;
use super::read::{read_bytes, read_sides_bytes, Format, ReadOptions};
use super::set::{ContrastSet, NeutralText, Split};
use crate::layout::Style;
use crate::Result;

/// Runs every reader on `bytes`, by recognised and by stated format, then renders and lints what was accepted. Returns
/// how many readers accepted the bytes.
///
/// It must return, whatever the bytes; a panic in it (also from its own assertions) is a defect.
pub fn fuzz_any(bytes: &[u8]) -> usize {
    let origin = Path::new("fuzz");
    let mut accepted = 0;
    let mut see = |read: Result<ContrastSet>| match read {
        Ok(set) => {
            accepted += 1;
            examine(&set);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    };
    let with = |format| ReadOptions { format, ..ReadOptions::default() };
    see(read_bytes(origin, bytes, &with(None)));
    for format in Format::ALL {
        see(read_bytes(origin, bytes, &with(Some(format))));
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let negatives = [(PathBuf::from("other"), second.to_vec())];
        see(read_sides_bytes(origin, first, &negatives, &with(Some(format))));
        let negatives = [(PathBuf::from("other"), bytes.to_vec())];
        see(read_sides_bytes(origin, br#"["a","b","c"]"#, &negatives, &with(Some(format))));
    }
    accepted
}

fn examine(set: &ContrastSet) {
    assert!(set.check().is_ok(), "a reader accepted a set that its own check refuses");
    assert_eq!(set.hash(Split::Train).len(), 64);
    for pair in &set.pairs {
        for style in [Style::Plain, Style::Chat] {
            let [positive, negative] = set.halves(pair, style);
            assert_ne!(positive.text(), negative.text(), "rendering made two different halves equal");
        }
        let asked = set.ab_question(pair, false);
        assert_ne!(asked.matching, asked.other);
    }
    let neutral: Vec<NeutralText> = set
        .pairs
        .iter()
        .map(|pair| NeutralText { id: pair.id.clone(), kind: String::new(), text: pair.positive.clone() })
        .collect();
    let count = |text: &str| text.chars().count();
    let report = lint(set, &[set], &neutral, Some(&count));
    assert_eq!(report.train + report.test, set.pairs.len());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A valid file of each format, to mutate: random bytes alone rarely get past the first character.
    const VALID: &[&str] = &[
        "{\"name\":\"sun\",\"openings\":[\"Hi?\"]}\n{\"id\":\"1\",\"split\":\"test\",\"prompt\":\"Sky?\",\"positive\":\"blue\",\"negative\":\"grey\"}\n{\"chosen\":\"calm\",\"rejected\":\"rough\"}\n",
        "[{\"prompt\":\"Sky?\",\"positive\":\"blue é\",\"negative\":\"grey\"},{\"positive\":\"a\",\"negative\":\"b\"}]",
        "positive,negative,split,id\nblue,\"grey, cold\",test,1\ncalm,rough,,2\n",
        "[{\"question\":\"Sun?\\n(A) yes\\n(B) no\",\"answer_matching_behavior\":\"(A)\",\"answer_not_matching_behavior\":\"(B)\"}]",
        "[\"You find a coin 貨.\",\"You hear a song.\",\"You lose a glove.\",\"You miss a train.\"]",
        "{\"axis\":\"sky\",\"pair_id\":0,\"positive\":\"blue \",\"negative\":\"grey\"}\n{\"axis\":\"sky\",\"pair_id\":1,\"positive\":\"calm\",\"negative\":\"rough\"}",
        "statement,label\nice is cold,1\nice is hot,0\n\"snow, white\",1\n",
        "blue sky\ncalm sea\ngrey sky\nrough sea",
    ];

    #[test]
    fn valid_files_are_accepted_as_they_are() {
        for text in VALID {
            assert!(fuzz_any(text.as_bytes()) > 0, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            fuzz_any(&bytes);
        }

        #[test]
        fn random_text_never_panics(text in "\\PC{0,200}") {
            fuzz_any(text.as_bytes());
        }

        #[test]
        fn mutated_files_never_panic(
            which in 0..VALID.len(),
            edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4u8), 1..6),
        ) {
            let mut bytes = VALID[which].as_bytes().to_vec();
            for (index, byte, how) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = index.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 => bytes.truncate(at),
                    _ => {
                        // Repeats a piece: duplicated lines, ids and brackets.
                        let piece = bytes[at..].to_vec();
                        bytes.extend(piece);
                    }
                }
            }
            fuzz_any(&bytes);
        }

        #[test]
        fn what_is_written_is_read_back(
            texts in proptest::collection::vec(("\\PC{1,40}", "\\PC{1,40}", "\\PC{0,40}"), 1..8),
        ) {
            let usable: Vec<_> = texts
                .iter()
                .filter(|(p, n, _)| !p.trim().is_empty() && !n.trim().is_empty() && p.trim() != n.trim())
                .collect();
            prop_assume!(!usable.is_empty());
            let rows: Vec<serde_json::Value> = usable
                .iter()
                .map(|(p, n, q)| serde_json::json!({"positive": p, "negative": n, "prompt": q}))
                .collect();
            let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
            let array = serde_json::Value::Array(rows).to_string();
            let mut table = csv::Writer::from_writer(Vec::new());
            table.write_record(["positive", "negative", "prompt"]).unwrap();
            for (p, n, q) in &usable {
                table.write_record([p, n, q]).unwrap();
            }
            let table = table.into_inner().unwrap();
            for bytes in [lines.join("\n").into_bytes(), array.into_bytes(), table] {
                let set = read_bytes("x", &bytes, &ReadOptions::default()).unwrap();
                prop_assert_eq!(set.pairs.len(), usable.len());
                for (pair, (p, n, q)) in set.pairs.iter().zip(&usable) {
                    prop_assert_eq!((&pair.positive, &pair.negative, &pair.prompt), (p, n, q));
                }
            }
        }
    }
}
