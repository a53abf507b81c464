//! Token ids and spans against what transformers gave for the same GGUF files (`oracle/tokens.py`).
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use methexis_model::checkpoint::gguf::Gguf;
use methexis_model::tokenizer::{AddSpecial, Encoding, Specials, Tokenizer};

use support::{golden, path, skipped, MODELS};

fn tokenizer(name: &str) -> Tokenizer {
    let file = Gguf::open(path(name)).unwrap();
    Tokenizer::from_gguf(file.metadata()).unwrap()
}

fn corpus() -> Vec<String> {
    serde_json::from_value(json("../corpus.json")).unwrap()
}

fn json(file: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(golden(file)).unwrap()).unwrap()
}

fn ids(v: &serde_json::Value) -> Vec<u32> {
    serde_json::from_value(v.clone()).unwrap()
}

/// What [`Encoding`] promises of its spans.
fn assert_spans(text: &str, e: &Encoding) {
    assert_eq!(e.ids.len(), e.spans.len());
    let (mut start, mut end) = (0, 0);
    for s in &e.spans {
        assert!(s.start <= s.end && s.start >= start && s.end >= end, "{text:?}: {:?}", e.spans);
        assert!(s.is_empty() || s.start <= end, "{text:?}: a gap in {:?}", e.spans);
        assert!(text.is_char_boundary(s.start) && text.is_char_boundary(s.end), "{text:?}: {:?}", e.spans);
        (start, end) = (s.start, s.end);
    }
    assert_eq!(end, text.len(), "{text:?}: {:?}", e.spans);
    let boundaries = e.boundaries();
    assert!(boundaries.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{text:?}: {boundaries:?}");
    assert_eq!(boundaries.last().map(|b| b.0), (!text.is_empty()).then_some(text.len()), "{text:?}");
}

/// Lines on which ours differ, by number, and why.
///
/// * SmolLM2, 115 (fractions and superscripts): SmolLM's own tokenizer and llama.cpp split at every numeric character;
///   what transformers builds from the GGUF file does not.
/// * Gemma 3, 157 (33 blanks, more than the longest piece of blanks) and 191 (the sign U+2581 itself in a text): equal
///   scores leave the order of merges open, and transformers breaks the tie in another way.
const KNOWN: [(&str, usize); 3] = [("smollm2-135m", 115), ("gemma3-270m", 157), ("gemma3-270m", 191)];

#[test]
fn ids_are_those_of_transformers() {
    if skipped("ids_are_those_of_transformers") {
        return;
    }
    let mut wrong = Vec::new();
    for name in MODELS {
        let t = tokenizer(name);
        let golden = json(&format!("tokens_{name}.json"));
        let corpus = corpus();
        for (i, line) in corpus.iter().enumerate() {
            let parsed = ids(&golden["parsed"][i]);
            let text = golden["text"].get(i.to_string()).map_or_else(|| parsed.clone(), ids);
            for (specials, want) in [(Specials::Parsed, &parsed), (Specials::Text, &text)] {
                let got = t.encode(line, AddSpecial::Yes, specials).unwrap();
                assert_spans(line, &got);
                let known = KNOWN.contains(&(name, i));
                if (got.ids != *want) != known {
                    wrong.push(format!(
                        "{name} {i} {specials:?} {line:?}\n  ours   {:?}\n  theirs {want:?}",
                        got.ids
                    ));
                }
            }
        }
        assert_eq!(golden["parsed"].as_array().unwrap().len(), corpus.len());
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_encoded_is_decoded_and_streamed_the_same() {
    if skipped("what_is_encoded_is_decoded_and_streamed_the_same") {
        return;
    }
    for name in MODELS {
        let t = tokenizer(name);
        for line in corpus() {
            let ids = t.encode(&line, AddSpecial::Yes, Specials::Text).unwrap().ids;
            // SentencePiece has one sign for a space and for the block that stands for it.
            let want = if name == "gemma3-270m" { line.replace('▁', " ") } else { line.clone() };
            assert_eq!(t.decode(&ids, true).unwrap(), want, "{name}");
            let mut stream = t.stream();
            let mut streamed = String::new();
            for id in &ids {
                let piece = stream.push(*id).unwrap();
                assert!(
                    line.contains('\u{FFFD}') || !piece.contains('\u{FFFD}'),
                    "{name} {line:?}: {piece:?}"
                );
                streamed.push_str(&piece);
            }
            streamed.push_str(&stream.finish().unwrap());
            assert_eq!(streamed, want, "{name}");
        }
    }
}
