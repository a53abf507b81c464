//! Letter questions and paired rows on real tokenizers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use candle_core::Device;
use methexis_concept::contrast::resolve;
use methexis_concept::layout::Style;
use methexis_concept::measure::letter_item;
use methexis_concept::reading::{pair_texts, Pairing};
use methexis_model::checkpoint::Precision;
use methexis_model::read::ReadItem;
use methexis_model::source::{FetchOptions, Source};
use methexis_model::Model;

/// Pitfall: `A` and ` A` are different tokens; what is scored is the token that would really be written.
#[test]
fn the_scored_letter_is_the_one_that_would_be_written() {
    if std::env::var("METHEXIS_SKIP_MODEL_TESTS").is_ok_and(|v| v == "1") {
        eprintln!("SKIPPED the_scored_letter_is_the_one_that_would_be_written: METHEXIS_SKIP_MODEL_TESTS=1");
        return;
    }
    let set = resolve("happiness").unwrap();
    let pair = &set.pairs[0];
    for name in ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"] {
        let found = Source::parse(name).unwrap().resolve(&FetchOptions::from_env().unwrap());
        let path =
            found.unwrap_or_else(|e| panic!("{name}: {e}; METHEXIS_SKIP_MODEL_TESTS=1 goes without")).path;
        let model = Model::open(&path, name, Precision::F32, Device::Cpu).unwrap();
        for style in [Style::Plain, Style::natural(&model)] {
            for flip in [false, true] {
                let asked = set.ab_question(pair, flip);
                let item = letter_item(&model, style, None, &asked).unwrap();
                let decode = |ids: &[u32]| model.tokenizer().decode(ids, false).unwrap();
                let before = decode(&item.tokens[..item.completion]);
                assert!(before.contains(&asked.question), "{name}: {before}");
                // Text and letter together are what the whole answer is encoded as: nothing in between, nothing twice.
                for (candidate, answer) in item.candidates.iter().zip([&asked.matching, &asked.other]) {
                    let written = decode(&[&item.tokens[..item.completion], &[*candidate]].concat());
                    let rest = written.split(asked.question.as_str()).last().unwrap().to_string();
                    let letter = answer.trim_matches(['(', ')']);
                    assert!(rest.ends_with(letter), "{name}, {style:?}: {rest:?} for {answer}");
                    let whole = decode(&[*candidate]);
                    assert_eq!(whole.trim_start_matches('('), letter, "{name}, {style:?}");
                }
            }
        }
    }
}

/// Rows of two models are paired where both tokenizers have the end of a token at the same character.
#[test]
fn aligned_rows_lie_at_the_same_characters_of_the_text() {
    if std::env::var("METHEXIS_SKIP_MODEL_TESTS").is_ok_and(|v| v == "1") {
        eprintln!("SKIPPED aligned_rows_lie_at_the_same_characters_of_the_text: METHEXIS_SKIP_MODEL_TESTS=1");
        return;
    }
    let open = |name: &str| {
        let found = Source::parse(name).unwrap().resolve(&FetchOptions::from_env().unwrap());
        let path =
            found.unwrap_or_else(|e| panic!("{name}: {e}; METHEXIS_SKIP_MODEL_TESTS=1 goes without")).path;
        Model::open(&path, name, Precision::F32, Device::Cpu).unwrap()
    };
    let (a, b) = (open("smollm2-135m"), open("gemma3-270m"));
    let texts = [
        "The ferries left the pier at 10:45, in an unmistakable drizzle.",
        "Œuvres complètes – 東京 👩‍👩‍👧",
        "Hi",
    ];
    for pairing in [Pairing::Aligned, Pairing::Last] {
        let items = pair_texts((&a, Style::Chat), (&b, Style::Plain), &texts, pairing).unwrap();
        assert_eq!(items.source.len(), items.target.len());
        let rows = |items: &[ReadItem]| items.iter().map(|i| i.rows.len()).collect::<Vec<_>>();
        assert_eq!(rows(&items.source), rows(&items.target));
        assert_eq!(rows(&items.source).iter().sum::<usize>(), items.texts.len());
        if pairing == Pairing::Last {
            assert_eq!(rows(&items.source), [1, 1, 1]);
            continue;
        }
        assert!(rows(&items.source)[0] > 10, "{:?}", rows(&items.source));
        for (k, (s, t)) in items.source.iter().zip(&items.target).enumerate() {
            for (i, j) in s.rows.iter().zip(&t.rows) {
                // What either model has read of the text so far is the same.
                let so_far = |m: &Model, ids: &[u32]| m.tokenizer().decode(ids, true).unwrap();
                let (x, y) = (so_far(&a, &s.tokens[..=*i]), so_far(&b, &t.tokens[..=*j]));
                assert!(x.ends_with(y.trim_start()), "text {k}: {x:?}, {y:?}");
                assert!(texts[k].starts_with(y.trim_start()), "text {k}: {y:?}");
            }
        }
    }
}
