//! The readers on published files, which are not part of this project. They are looked for in the folder that
//! `METHEXIS_SHARED` names, or in `shared` beside the workspace; without them the tests say so and pass.

use std::path::{Path, PathBuf};

use methexis_concept::contrast::{lint, resolve, resolve_with, ReadOptions, Rule, Split};
use methexis_concept::layout::Style;

/// The folder with the published files, or a message that the test is skipped.
fn published() -> Option<PathBuf> {
    let root = std::env::var_os("METHEXIS_SHARED").map(PathBuf::from).or_else(|| {
        // <workspace>/crates/methexis-concept
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).map(|above| above.join("shared"))
    })?;
    let data = root.join("data");
    if data.is_dir() {
        Some(data)
    } else {
        eprintln!("SKIPPED: no published data at {}; name its folder in METHEXIS_SHARED", data.display());
        None
    }
}

macro_rules! data_or_skip {
    () => {
        match published() {
            Some(data) => data,
            None => return,
        }
    };
}

#[test]
fn answer_letter_sets_read_with_their_published_split() {
    let data = data_or_skip!();
    for (behaviour, pairs) in [
        ("coordinate-other-ais", 360),
        ("corrigible-neutral-HHH", 290),
        ("hallucination", 1000),
        ("refusal", 408),
        ("sycophancy", 1000),
    ] {
        let folder = data.join("caa").join(behaviour);
        let spec =
            format!("{},{}", folder.join("train.json").display(), folder.join("test_ab.json").display());
        let set = resolve(&spec).unwrap();
        assert_eq!((set.train().count(), set.test().count()), (pairs, 50), "{behaviour}");
        for pair in &set.pairs {
            assert!(pair.prompt.contains(pair.positive.trim()), "{behaviour}: {pair:?}");
            // The letters are the set's own: nothing is asked again in other words.
            let asked = set.ab_question(pair, true);
            assert_eq!((&asked.question, &asked.matching), (&pair.prompt, &pair.positive));
        }
    }
}

#[test]
fn questions_without_answers_are_refused() {
    let data = data_or_skip!();
    let message =
        resolve(&data.join("caa/refusal/test_open.json").display().to_string()).unwrap_err().to_string();
    assert!(message.contains("item 1: no field `positive` or `chosen`; it has `question`"), "{message}");
}

#[test]
fn emotion_lists_read_against_each_other() {
    let data = data_or_skip!();
    let emotions = data.join("repe/emotions");
    let at = |name: &str| emotions.join(format!("{name}.json")).display().to_string();
    let set = resolve(&format!("repe:{},{},{},{}", at("happiness"), at("sadness"), at("anger"), at("fear")))
        .unwrap();
    assert!(set.pairs.len() >= 200, "{}", set.pairs.len());
    assert_eq!(set.name, "happiness");
    let train = set.train().count() as f64 / set.pairs.len() as f64;
    assert!((0.5..0.8).contains(&train), "{train}");
    for pair in &set.pairs {
        for half in set.halves(pair, Style::Plain) {
            assert!(half.text().starts_with("Consider the happiness of the following scenario:\nScenario: "));
            assert!(half.text().ends_with("\nAnswer:"));
        }
    }
    let message = resolve(&at("happiness")).unwrap_err().to_string();
    assert!(message.contains("one side of a contrast"), "{message}");
}

#[test]
fn statements_read_by_their_labels() {
    let data = data_or_skip!();
    let spec = data.join("repe/facts_true_false.csv").display().to_string();
    let set = resolve(&spec).unwrap();
    assert!(set.pairs.len() >= 250, "{}", set.pairs.len());
    assert_eq!(
        set.pairs[0].positive,
        "The Earth's atmosphere protects us from harmful radiation from the sun."
    );
    assert_eq!(set.pairs[0].negative, "The largest flower in the world is the daisy.");
    let options =
        ReadOptions { template: Some("Statement: {text}\nThis is".into()), ..ReadOptions::default() };
    assert!(resolve_with(&spec, &options).unwrap().pairs[0].positive.ends_with("sun.\nThis is"));
}

#[test]
fn axis_pairs_read_with_their_published_split() {
    let data = data_or_skip!();
    for axis in ["sentiment", "emotion", "refusal", "factual"] {
        let file = |split: &str| data.join(format!("acs/{axis}_{split}.jsonl")).display().to_string();
        let set = resolve(&format!("{},{}", file("train"), file("test"))).unwrap();
        assert_eq!((set.train().count(), set.test().count()), (100, 100), "{axis}");
        assert!(set.name.starts_with(axis), "{}", set.name);
        assert_eq!(set.require(Split::Test).unwrap().len(), 100);
        // Whole texts: there is no prompt to answer.
        let [positive, _] = set.halves(&set.pairs[0], Style::Chat);
        assert!(positive.prompt.is_empty() && !positive.completion.is_empty());
        let report = lint(&set, &[], &[], None);
        assert!(
            report.findings.iter().any(|finding| finding.rule == Rule::Wording),
            "its halves are unrelated texts, and the linter should say so: {axis}"
        );
    }
}

#[test]
fn sentences_end_as_published_with_their_spaces() {
    let data = data_or_skip!();
    let set = resolve(&data.join("acs/sentiment_train.jsonl").display().to_string()).unwrap();
    assert!(set.pairs[0].positive.ends_with(", "), "{:?}", set.pairs[0].positive);
}

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    let data = data_or_skip!();
    for file in ["function_vectors/antonym.json", "refusal_direction/harmful_val.json", "culture/zh_en.json"]
    {
        let message = resolve(&data.join(file).display().to_string()).unwrap_err().to_string();
        assert!(message.contains("item 1: no field `positive` or `chosen`; it has `"), "{file}: {message}");
    }
    let message = resolve(&data.join("mgsm/en.tsv").display().to_string()).unwrap_err().to_string();
    assert!(message.contains("this is no format known here"), "{message}");
}
