use super::*;

fn options(format: Format) -> ReadOptions {
    ReadOptions { format: Some(format), ..ReadOptions::default() }
}

/// Reads with the format recognised, and checks that it is the one meant.
fn accepted(format: Format, text: &str) -> ContrastSet {
    assert_eq!(detect(Path::new("weather"), text).unwrap(), format);
    read_bytes("weather", text.as_bytes(), &ReadOptions::default()).unwrap()
}

fn refused(format: Format, text: &str) -> String {
    read_bytes("weather", text.as_bytes(), &options(format)).unwrap_err().to_string()
}

fn halves(set: &ContrastSet) -> Vec<(&str, &str, &str)> {
    set.pairs.iter().map(|p| (p.prompt.as_str(), p.positive.as_str(), p.negative.as_str())).collect()
}

#[test]
fn jsonl_with_a_description_and_splits() {
    let set = accepted(
        Format::Jsonl,
        "\u{feff}{\"concept\":\"sun\",\"description\":\"fair\",\"instruction\":\"be sunny\",\"openings\":[\"Hi?\"],\"source\":\"us\",\"licence\":\"MIT\"}\n\n\
         {\"id\":7,\"split\":\"test\",\"form\":\"chat\",\"prompt\":\"Sky?\",\"positive\":\"blue\",\"negative\":\"grey\"}\r\n\
         {\"prompt\":\"Sea?\",\"chosen\":\"calm\",\"rejected\":\"rough\"}\n",
    );
    assert_eq!(
        (set.name.as_str(), set.description.as_str(), set.source.as_str()),
        ("sun", "fair", "us (MIT)")
    );
    assert_eq!(
        (set.instruction.as_deref(), set.openings.as_slice()),
        (Some("be sunny"), &["Hi?".to_owned()][..])
    );
    assert_eq!(halves(&set), [("Sky?", "blue", "grey"), ("Sea?", "calm", "rough")]);
    assert_eq!(
        (set.pairs[0].id.as_str(), set.pairs[0].split, set.pairs[0].form.as_str()),
        ("7", Split::Test, "chat")
    );
    // Without an id the place counts, and the hash of the id decides the split.
    assert_eq!(set.pairs[1].id, "sun-0002");
    assert_eq!(set.pairs[1].split, SplitRule::default().assign("sun-0002"));
}

#[test]
fn a_stated_split_rule_moves_only_pairs_that_do_not_say() {
    let text = "{\"split\":\"train\",\"positive\":\"a\",\"negative\":\"b\"}\n{\"positive\":\"c\",\"negative\":\"d\"}";
    let rule = ReadOptions { split: SplitRule::All(Split::Test), ..ReadOptions::default() };
    let set = read_bytes("x", text.as_bytes(), &rule).unwrap();
    assert_eq!((set.pairs[0].split, set.pairs[1].split), (Split::Train, Split::Test));
    let rule =
        ReadOptions { split: SplitRule::Hash { train_share: f64::NAN, seed: 0 }, ..ReadOptions::default() };
    assert!(read_bytes("x", text.as_bytes(), &rule).unwrap_err().to_string().contains("not between 0 and 1"));
}

#[test]
fn jsonl_faults_name_line_field_and_remedy() {
    for (text, expected) in [
        ("{\"positive\":\"a\",\"negative\":\"b\"}\n{\"positive\":\"a\"}", "line 2: no field `negative` or `rejected`; it has `positive`"),
        ("{\"positive\":\"a\",\"negative\":[\"b\"]}", "line 1, field `negative`: expected a string, found a list"),
        ("{\"positive\":\"a\",\"chosen\":\"a\",\"negative\":\"b\"}", "both `positive` and `chosen` are given"),
        ("{\"positive\":\"a\",\"negative\":\"b\",\"split\":\"dev\"}", "line 1, field `split`: split: `dev` is neither"),
        ("{\"positive\":\"a\",\"negative\":\"b\"}\n\nnope", "line 3, column"),
        ("{\"positive\":\"a\",\n\"negative\":\"b\"}", "every line is one object of its own"),
        ("{\"positive\":\"a\",\"negative\":\"a \"}", "line 1: both halves are `a`"),
        ("{\"positive\":\"a\",\"negative\":\"b\"}\n{\"positive\":\"a\",\"negative\":\"\"}", "line 2, field `negative`: it is empty"),
        ("{\"positive\":\"a\",\"negative\":\"\"}", "the set is one-sided: no pair has a negative half"),
        ("{\"id\":\"x\",\"positive\":\"a\",\"negative\":\"b\"}\n{\"id\":\"x\",\"positive\":\"a\",\"negative\":\"c\"}", "pairs 1 and 2 have the same id `x`"),
        ("{\"name\":\"only a description\"}", "holds no pairs"),
        ("{\"name\":\"x\",\"openings\":\"Hi\"}", "field `openings`: expected a list of strings"),
        ("", "holds no pairs"),
    ] {
        let message = refused(Format::Jsonl, text);
        assert!(message.starts_with("weather: ") && message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn json_arrays() {
    let set = accepted(Format::Json, r#" [{"prompt":"Sky?","positive":"blue","negative":"grey"}] "#);
    assert_eq!(halves(&set), [("Sky?", "blue", "grey")]);
    assert!(refused(Format::Json, "[1]").contains("item 1: expected an object, found a number"));
    assert!(refused(Format::Json, "[{\"positive\":\"a\"").contains("line 1, column"));
    assert!(refused(Format::Json, "{}").contains("not a JSON array"));
    assert!(detect(Path::new("x"), "[]").unwrap_err().to_string().contains("array is empty"));
    assert!(detect(Path::new("x"), "[[1]]").unwrap_err().to_string().contains("found a list"));
}

#[test]
fn deeply_nested_json_is_refused_not_followed() {
    let deep = "[".repeat(200_000);
    assert!(refused(Format::Json, &deep).contains("recursion limit"));
    assert!(refused(Format::Jsonl, &format!("{{\"positive\":{deep}")).contains("recursion limit"));
}

#[test]
fn csv_with_quotes_in_any_column_order() {
    let set = accepted(
        Format::Csv,
        "split,Negative, positive,prompt\ntest,\"grey, cold\",blue,\"Sky,\nnow?\"\n,rough,calm,Sea?\n",
    );
    assert_eq!(halves(&set), [("Sky,\nnow?", "blue", "grey, cold"), ("Sea?", "calm", "rough")]);
    assert_eq!(set.pairs[0].split, Split::Test);
    for separator in ["\t", ";"] {
        let text = "positive,negative\nblue,grey\n".replace(',', separator);
        assert_eq!(halves(&accepted(Format::Csv, &text)), [("", "blue", "grey")]);
    }
}

#[test]
fn csv_faults_name_line_and_column() {
    for (text, expected) in [
        ("positive,negative\na,b\nc\n", "line 3: 1 cells where the header has 2"),
        ("positive,prompt\na,b\n", "no column `negative` or `rejected`; the header has `positive`, `prompt`"),
        ("positive,negative,split\na,b,dev\n", "line 2, column `split`"),
        ("positive,negative\na,\nb,c\n", "line 2, field `negative`: it is empty"),
        ("positive,negative\n", "holds no pairs"),
    ] {
        let message = refused(Format::Csv, text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn caa_answers_are_kept_as_written() {
    let set = accepted(
        Format::Caa,
        r#"[{"question":"Sun?\n\nChoices:\n(A) yes\n(B) no","answer_matching_behavior":" (A)","answer_not_matching_behavior":" (B)"},
            {"question":"Rain?\n (C) yes\n (D) no","answer_matching_behavior":"(D)","answer_not_matching_behavior":"(C)"}]"#,
    );
    assert_eq!(set.pairs[0].positive, " (A)");
    assert_eq!(halves(&set)[1], ("Rain?\n (C) yes\n (D) no", "(D)", "(C)"));
    let message = refused(Format::Caa, r#"[{"question":"Sun?","answer_matching_behavior":"(A)"}]"#);
    assert!(message.contains("item 1: no field `answer_not_matching_behavior`"), "{message}");
}

#[test]
fn acs_takes_its_name_and_ids_from_the_axis() {
    let set = accepted(
        Format::Acs,
        "{\"axis\":\"sky\",\"pair_id\":0,\"positive\":\"blue \",\"negative\":\"grey\",\"pos_label\":\"x\"}\n\
         {\"axis\":\"sky\",\"pair_id\":1,\"positive\":\"calm\",\"negative\":\"rough\"}",
    );
    assert_eq!(
        (set.name.as_str(), set.pairs[1].id.as_str(), set.pairs[0].positive.as_str()),
        ("sky", "sky-1", "blue ")
    );
    let mixed = "{\"axis\":\"sky\",\"pair_id\":0,\"positive\":\"a\",\"negative\":\"b\"}\n\
                 {\"axis\":\"sea\",\"pair_id\":0,\"positive\":\"a\",\"negative\":\"b\"}";
    assert!(refused(Format::Acs, mixed).contains("line 2, field `axis`: `sea` after `sky`"));
}

#[test]
fn statements_pair_in_order_and_say_what_is_left_out() {
    let set = accepted(
        Format::Truth,
        "statement,label\nice is cold,1\n\"ice is hot, really\",0\nsnow is white,1\n",
    );
    assert_eq!(halves(&set), [("", "ice is cold", "ice is hot, really")]);
    assert!(set.source.contains("1 of 3 statements left out"), "{}", set.source);
    let options = ReadOptions { template: Some("Is it so? {text} Yes.".into()), ..ReadOptions::default() };
    let set = read_bytes("x", b"statement,label\nice is cold,true\nice is hot,FALSE\n", &options).unwrap();
    assert_eq!(set.pairs[0].positive, "Is it so? ice is cold Yes.");
    assert!(refused(Format::Truth, "statement,label\na,1\nb,2\n")
        .contains("line 3, column `label`: `2` is no label"));
    assert!(refused(Format::Truth, "statement,label\na,1\n").contains("one-sided: no statement has label 0"));
    assert!(refused(Format::Truth, "statement,label\n").contains("holds no pairs"));
}

fn sides(format: Format, positive: &str, negatives: &[&str], template: Option<&str>) -> Result<ContrastSet> {
    let negatives: Vec<(PathBuf, Vec<u8>)> = negatives
        .iter()
        .enumerate()
        .map(|(i, text)| (PathBuf::from(format!("other{i}.txt")), text.as_bytes().to_vec()))
        .collect();
    let options = ReadOptions { template: template.map(Into::into), ..options(format) };
    read_sides_bytes(Path::new("quiet_joy.json"), positive.as_bytes(), &negatives, &options)
}

#[test]
fn emotion_lists_take_turns_and_share_the_question() {
    let set =
        sides(Format::Repe, r#"["p1","p2","p3","p4"]"#, &[r#"["a1","a2"]"#, r#"["b1"]"#], None).unwrap();
    assert_eq!(
        set.pairs[0].positive,
        "Consider the quiet joy of the following scenario:\nScenario: p1\nAnswer:"
    );
    assert_eq!(
        set.pairs[0].negative,
        "Consider the quiet joy of the following scenario:\nScenario: a1\nAnswer:"
    );
    let negatives: Vec<bool> = ["a1", "b1", "a2"]
        .iter()
        .zip(&set.pairs)
        .map(|(text, pair)| pair.negative.contains(&format!(": {text}\n")))
        .collect();
    assert_eq!(negatives, [true; 3]);
    assert!(set.source.contains("1 of 4 positive texts left out"), "{}", set.source);
    let set = sides(Format::Repe, r#"["p"]"#, &[r#"["a"]"#], Some("{text} ({emotion})")).unwrap();
    assert_eq!(set.pairs[0].negative, "a (quiet joy)");
    for (positive, negative, template, expected) in [
        (r#"["p"]"#, "[]", None, "one-sided: there is no negative text"),
        ("[]", r#"["a"]"#, None, "one-sided: there is no positive text"),
        (r#"["p",1]"#, r#"["a"]"#, None, "item 2: expected a string, found a number"),
        (r#"["p"," "]"#, r#"["a","b"]"#, None, "item 2, field `positive`: it is empty"),
        (r#"["p"]"#, r#"["a"]"#, Some("no place"), "has no `{text}`"),
    ] {
        let message = sides(Format::Repe, positive, &[negative], template).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn plain_files_pair_line_by_line_or_not_at_all() {
    let set = sides(Format::Text, "blue\ncalm\n", &["grey\r\nrough"], None).unwrap();
    assert_eq!(halves(&set), [("", "blue", "grey"), ("", "calm", "rough")]);
    let message = |positive, negatives: &[&str]| {
        sides(Format::Text, positive, negatives, None).unwrap_err().to_string()
    };
    assert!(message("a\nb\n", &["c\n"]).contains("other0.txt: line 2: 1 lines against 2"));
    assert!(message("a\n\nb\n", &["c\nd\ne\n"]).contains("line 2, field `positive`: it is empty"));
    assert!(message("a\n", &["b\n", "c\n"]).contains("not 2 negative ones"));
    assert!(message("", &["b\n"]).contains("no positive text"));
    let message = sides(Format::Csv, "a", &["b"], None).unwrap_err().to_string();
    assert!(message.contains("only `repe` and `text` take one file a side"), "{message}");
}

#[test]
fn what_is_no_set_is_said_to_be_none() {
    let message =
        |bytes: &[u8]| read_bytes("weather", bytes, &ReadOptions::default()).unwrap_err().to_string();
    assert!(message(b"").contains("it is empty"));
    assert!(message(b"  \n").contains("it is empty"));
    assert!(message(b"once upon a time\n").contains("text:positive.txt,negative.txt"));
    assert!(message(b"a,b\n1,2\n").contains("expected a JSON array"));
    assert!(message(b"{\"positive\":\"a\",\n\xff").contains("line 2, byte 17: not UTF-8"));
    assert!(message(&[0xff, 0xfe, 0x7b, 0x00]).contains("UTF-16"));
    assert!(message(b"[\"a\"]").contains("one side of a contrast"));
    assert!("psv".parse::<Format>().unwrap_err().to_string().contains("jsonl, json, csv"));
}

#[test]
fn files_and_texts_are_bounded() {
    let long = "x".repeat(MAX_TEXT + 1);
    let message = refused(Format::Jsonl, &format!("{{\"positive\":\"{long}\",\"negative\":\"b\"}}"));
    assert!(message.contains("line 1, field `positive`: 65537 bytes, more than the 65536"), "{message}");
    // A sparse file: large, and no space taken.
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(MAX_BYTES + 1).unwrap();
    let message = read(file.path(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("larger than the 64 MiB"), "{message}");
    let missing = Path::new("no such folder/pairs.jsonl");
    assert!(read(missing, &ReadOptions::default()).unwrap_err().to_string().contains("opening failed"));
    let folder = tempfile::tempdir().unwrap();
    assert!(read(folder.path(), &ReadOptions::default()).unwrap_err().to_string().contains("reading failed"));
}
