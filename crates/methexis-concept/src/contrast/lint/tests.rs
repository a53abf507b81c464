use super::*;
use crate::contrast::{builtin, read_bytes, ReadOptions};

/// A set of `train` and `test` pairs `(prompt, positive, negative)`.
fn set(train: &[(&str, &str, &str)], test: &[(&str, &str, &str)]) -> ContrastSet {
    let lines: Vec<String> = train
        .iter()
        .map(|pair| ("train", pair))
        .chain(test.iter().map(|pair| ("test", pair)))
        .enumerate()
        .map(|(i, (split, (prompt, positive, negative)))| {
            serde_json::json!({"id": format!("p{i}"), "split": split, "prompt": prompt, "positive": positive, "negative": negative})
                .to_string()
        })
        .collect();
    read_bytes("weather", lines.join("\n").as_bytes(), &ReadOptions::default()).unwrap()
}

fn neutral(text: &str) -> NeutralText {
    NeutralText { id: "n1".into(), kind: "fact".into(), text: text.into() }
}

/// `severity rule pair` of every finding.
fn found(report: &LintReport) -> Vec<String> {
    report
        .findings
        .iter()
        .map(|f| format!("{:?} {} {}", f.severity, f.rule, f.pair.as_deref().unwrap_or("-")))
        .collect()
}

const A: (&str, &str, &str) =
    ("How was the walk along the river?", "Bright and warm all day.", "Dark and cold all day.");
const B: (&str, &str, &str) =
    ("Tell me about supper at your aunt's.", "We laughed over soup.", "We argued over soup.");

#[test]
fn a_good_pair_of_pairs_has_no_findings() {
    let report = lint(&set(&[A], &[B]), &[], &[neutral("A kilometre has a thousand metres.")], None);
    assert_eq!(found(&report), Vec::<String>::new());
    assert_eq!((report.train, report.test, report.lengths.token_difference), (1, 1, None));
}

#[test]
fn unlike_halves_are_found() {
    let long = ("Sky?", "It is blue and wide and clear today.", "It is grey.");
    let ending = ("Sea?", "It is calm today!", "It is rough today.");
    let other = ("Hill?", "Green meadows climbed gently upwards.", "Nobody knows what mother said.");
    let report = lint(&set(&[long, ending, other], &[A]), &[], &[], None);
    assert_eq!(found(&report), ["Warning length p0", "Warning ending p1", "Note wording p2"]);
}

#[test]
fn leaks_and_duplicates_are_found() {
    let reworded = ("How was the walk along the river today?", "Glad and light.", "Sad and heavy.");
    let same = ("how was the WALK along the river", "Fine and fair.", "Poor and foul.");
    assert_eq!(found(&lint(&set(&[A, B], &[reworded]), &[], &[], None)), ["Error leak p2"]);
    assert_eq!(found(&lint(&set(&[A, B], &[same]), &[], &[], None)), ["Error leak p2"]);
    assert_eq!(found(&lint(&set(&[A, same], &[B]), &[], &[], None)), ["Warning duplicate p1"]);
    let half =
        ("Another question altogether?", "Bright and warm all day long.", "Grim and wet until night came.");
    assert_eq!(found(&lint(&set(&[A, B], &[half]), &[], &[], None)), ["Error leak p2"]);
    assert_eq!(found(&lint(&set(&[A, half], &[B]), &[], &[], None)), ["Warning near-duplicate p1"]);
}

#[test]
fn neutral_texts_from_the_set_are_found() {
    let set = set(&[A], &[B]);
    assert_eq!(found(&lint(&set, &[], &[neutral("Bright, and warm all day!")], None)), ["Error neutral p0"]);
    let near = neutral("Tell me about supper at your uncle's farm.");
    assert_eq!(found(&lint(&set, &[], &[near], None)), ["Warning neutral p1"]);
}

#[test]
fn prompts_of_another_concept_are_found() {
    let report = lint(&set(&[A], &[B]), &[&set(&[B], &[])], &[], None);
    assert_eq!(found(&report), ["Warning other-set p1"]);
}

#[test]
fn an_empty_split_is_found() {
    assert_eq!(found(&lint(&set(&[A, B], &[]), &[], &[], None)), ["Warning split -"]);
}

#[test]
fn token_lengths_are_compared_where_they_are_read() {
    let count = |text: &str| if text.contains("Bright") || text.contains("laughed") { 30 } else { 20 };
    let report = lint(&set(&[A], &[B]), &[], &[], Some(&count));
    assert_eq!(found(&report), ["Warning tokens -", "Note tokens p0", "Note tokens p1"]);
    assert_eq!(report.lengths.token_difference, Some(10.0));
}

#[test]
fn a_filled_template_is_found_but_a_shared_frame_is_not_blamed() {
    const THINGS: [&str; 30] = [
        "ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark", "mole",
        "newt", "owl", "pig", "quail", "rat", "seal", "toad", "urial", "vole", "wasp", "yak", "zebu", "boar",
        "crab", "deer", "emu", "frog",
    ];
    let texts: Vec<[String; 3]> = THINGS
        .iter()
        .map(|thing| {
            [
                format!("What do you think of the {thing} that we have seen in the garden today?"),
                format!("I am very happy about the {thing} because it is good for us all."),
                format!("I am rather sad about the {thing} because it is bad for us all today."),
            ]
        })
        .collect();
    let pairs: Vec<(&str, &str, &str)> =
        texts.iter().map(|[a, b, c]| (a.as_str(), b.as_str(), c.as_str())).collect();
    let report = lint(&set(&pairs[..20], &pairs[20..]), &[], &[], None);
    let rules: Vec<Rule> = report.findings.iter().map(|f| f.rule).collect();
    for rule in [Rule::Variety, Rule::Opening, Rule::Marker, Rule::Balance] {
        assert!(rules.contains(&rule), "{rule} is missing: {:?}", found(&report));
    }
    // Emotion lists in their template: the frame says nothing about the texts.
    let list = |offset: usize| {
        let items: Vec<String> = (0..25)
            .map(|i| format!("Scene {} with a {}.", i * 7 + offset, THINGS[(i * 3 + offset) % 30]))
            .collect();
        serde_json::to_string(&items).unwrap()
    };
    let negatives = [(std::path::PathBuf::from("n"), list(1).into_bytes())];
    let options = ReadOptions { format: Some(crate::contrast::Format::Repe), ..ReadOptions::default() };
    let set = crate::contrast::read_sides_bytes(
        std::path::Path::new("p"),
        list(0).as_bytes(),
        &negatives,
        &options,
    )
    .unwrap();
    let report = lint(&set, &[], &[], None);
    assert!(report.lengths.positive_words < 6.0, "the template is not counted: {:?}", report.lengths);
    assert!(!report.findings.iter().any(|f| f.rule == Rule::Opening && f.problem.contains("consider")));
}

#[test]
fn distinct_ngrams_agree_with_a_count_by_hand() {
    // Words: sun sun rain / sun sun / rain rain rain: 2 of 8 distinct.
    // Pairs: sun-sun sun-rain sun-sun rain-rain rain-rain: 3 of 5. Triples: sun-sun-rain rain-rain-rain: 2 of 2.
    let report = lint(&set(&[("Sun sun rain", "sun, sun", "rain rain rain")], &[]), &[], &[], None);
    let Variety { words, distinct_1, distinct_2, distinct_3 } = report.variety;
    assert_eq!((words, distinct_1, distinct_2, distinct_3), (8, 0.25, 0.6, 1.0));
}

#[test]
fn a_report_is_data() {
    let json = serde_json::to_value(lint(&builtin("fairness").unwrap().unwrap(), &[], &[], None)).unwrap();
    assert_eq!(json["set"], "fairness");
    assert_eq!(json["train_hash"].as_str().unwrap().len(), 64);
    assert!(json["variety"]["distinct_2"].as_f64().unwrap() > 0.5);
    assert!(json["findings"].is_array() && json["forms"]["diary"].as_u64().unwrap() > 0);
}

#[test]
fn a_large_set_is_linted_in_time_linear_in_its_words() {
    let line = |i: usize| {
        serde_json::json!({
            "prompt": format!("Say what you think of the thing with the number {i} on the long list of things"),
            "positive": format!("I like number {i} very much indeed, and I would take it again."),
            "negative": format!("I loathe number {i} very much indeed, and I would leave it there."),
        })
        .to_string()
    };
    let text: Vec<String> = (0..20_000).map(line).collect();
    let set = read_bytes("numbers", text.join("\n").as_bytes(), &ReadOptions::default()).unwrap();
    let start = std::time::Instant::now();
    let report = lint(&set, &[], &[], None);
    assert!(report.findings.iter().any(|f| f.rule == Rule::Variety));
    assert!(start.elapsed().as_secs() < 60, "20,000 pairs took {:?}", start.elapsed());
}
