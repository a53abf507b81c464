//! Letter questions on real tokenizers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use candle_core::Device;
use methexis_concept::contrast::resolve;
use methexis_concept::layout::Style;
use methexis_concept::measure::letter_item;
use methexis_model::checkpoint::Precision;
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
