use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::server::{Reply, Server};
use super::{noise, sha256, Watch};
use crate::source::hub::Hub;
use crate::source::{named, Resolved, Source, Surroundings};
use crate::{Error, Result};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository, which keeps large files (with a SHA-256 as etag) on another host.
fn hub(files: &[(&str, Vec<u8>)]) -> (Server, Arc<Server>) {
    let files: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(name, content)| (name.to_string(), content.clone())).collect();
    let files = Arc::new(files);
    let store = Arc::new(Server::run({
        let files = files.clone();
        move |request| match request.path.strip_prefix("/store/").and_then(|name| files.get(name)) {
            Some(content) => Reply::file(content, request),
            None => Reply::new(404, ""),
        }
    }));
    let port = store.port;
    let server = Server::run(move |request| {
        if request.path == "/api/models/o/r/revision/main" {
            let names: Vec<_> = files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
            let answer =
                serde_json::json!({ "sha": COMMIT, "siblings": names, "cardData": { "license": "mit" } });
            return Reply::new(200, answer.to_string());
        }
        let name = request.path.strip_prefix(&format!("/o/r/resolve/{COMMIT}/")).unwrap_or_default();
        let Some(content) = files.get(name) else { return Reply::new(404, "") };
        if content.len() < 1_000 {
            // 40 hexadecimal digits, as of a git object.
            return Reply::file(content, request).header("ETag", format!("\"{}\"", &sha256(content)[..40]));
        }
        Reply::new(302, "")
            .header("Location", format!("http://localhost:{port}/store/{name}"))
            .header("X-Linked-Etag", format!("\"{}\"", sha256(content)))
            .header("X-Linked-Size", content.len().to_string())
            .header("X-Repo-Commit", COMMIT)
    });
    (server, store)
}

fn around(server: &Server, folder: &Path, token: Option<&str>) -> Surroundings {
    let endpoint = server.url("/");
    let set = |name: &str| -> Option<OsString> {
        match name {
            "HF_ENDPOINT" => Some(endpoint.clone().into()),
            "HF_HOME" => Some(folder.into()),
            "HF_TOKEN" => token.map(Into::into),
            _ => None,
        }
    };
    Surroundings { hub: Hub::from_variables(&set), ..Surroundings::default() }
}

fn ask(text: &str, folder: &Path, surroundings: &Surroundings) -> Result<Resolved> {
    let options = super::options(&folder.join("own"), &Arc::new(Watch::default()));
    Source::parse(text).unwrap().resolve_in(&options, surroundings)
}

#[test]
fn a_gguf_file_comes_from_the_hub_once_and_is_there_offline() {
    let content = noise(150_000);
    let (server, store) = hub(&[("README.md", b"x".to_vec()), ("m.gguf", content.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let mut surroundings = around(&server, folder.path(), Some("secret"));
    let first = ask("o/r", folder.path(), &surroundings).unwrap();
    assert_eq!(std::fs::read(&first.path).unwrap(), content);
    assert_eq!(first.path, folder.path().join(format!("hub/models--o--r/snapshots/{COMMIT}/m.gguf")));
    assert_eq!(first.sha256, Some(sha256(&content)));
    assert_eq!(first.licence.as_deref(), Some("mit"));
    assert!(first.origin.contains("o/r@main") && first.origin.contains(&COMMIT[..12]), "{}", first.origin);
    let main = std::fs::read_to_string(folder.path().join("hub/models--o--r/refs/main")).unwrap();
    assert_eq!(main, COMMIT);
    // The login goes to the hub, never to the host it sends us to.
    assert!(server.log().iter().all(|request| request.header("authorization") == Some("Bearer secret")));
    assert_eq!(store.log().len(), 1);
    assert_eq!(store.log()[0].header("authorization"), None);

    // Once more: the hub is asked what the branch means now, the content is not fetched.
    ask("o/r:m.gguf", folder.path(), &surroundings).unwrap();
    assert_eq!(store.log().len(), 1);

    let before = server.log().len();
    surroundings.offline = true;
    let offline = ask("o/r", folder.path(), &surroundings).unwrap();
    assert_eq!((offline.path, offline.sha256), (first.path, first.sha256));
    assert_eq!(server.log().len(), before);
    let text = ask("o/r:other.gguf", folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("offline mode forbids") && text.contains("m.gguf"), "{text}");
    let text = ask("o/unknown", folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("o/unknown@main") && text.contains("HF_HUB_CACHE"), "{text}");

    // A hub that does not answer leaves what is there.
    surroundings.offline = false;
    surroundings.hub.endpoint = "http://127.0.0.1:1".into();
    assert!(ask("o/r", folder.path(), &surroundings).unwrap().origin.contains("did not answer"));
    let text = ask("o/unknown", folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("HF_ENDPOINT"), "{text}");
}

#[test]
fn a_folder_comes_without_what_is_not_needed() {
    let weights = noise(20_000);
    let files = [
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{ }".to_vec()),
        ("model.safetensors", weights.clone()),
        ("pytorch_model.bin", noise(9_000)),
        ("1_Pooling/config.json", b"[]".to_vec()),
    ];
    let (server, store) = hub(&files);
    let folder = tempfile::tempdir().unwrap();
    let found = ask("o/r", folder.path(), &around(&server, folder.path(), None)).unwrap();
    assert_eq!(std::fs::read(found.path.join("model.safetensors")).unwrap(), weights);
    assert_eq!(std::fs::read(found.path.join("1_Pooling/config.json")).unwrap(), b"[]");
    assert!(!found.path.join("pytorch_model.bin").exists());
    assert_eq!(found.sha256, Some(sha256(&weights)));
    assert_eq!(store.log().len(), 1);
}

#[test]
fn a_shard_that_is_missing_offline_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join(format!("hub/models--o--r/snapshots/{COMMIT}"));
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    std::fs::write(snapshot.join("model-1-of-2.safetensors"), "x").unwrap();
    let index = r#"{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}"#;
    std::fs::write(snapshot.join("model.safetensors.index.json"), index).unwrap();
    let (server, _) = hub(&[]);
    let mut surroundings = around(&server, folder.path(), None);
    surroundings.offline = true;
    let text = ask(&format!("o/r@{COMMIT}"), folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("model-2-of-2.safetensors"), "{text}");
    std::fs::write(snapshot.join("model-2-of-2.safetensors"), "x").unwrap();
    assert_eq!(ask(&format!("o/r@{COMMIT}"), folder.path(), &surroundings).unwrap().path, snapshot);
}

#[test]
fn wrong_content_refusals_and_several_files_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = hub(&[("a.gguf", noise(2_000)), ("b.gguf", noise(3_000))]);
    let surroundings = around(&server, folder.path(), None);
    let text = ask("o/r", folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("a.gguf, b.gguf"), "{text}");
    let text = ask("o/none", folder.path(), &surroundings).unwrap_err().to_string();
    assert!(text.contains("no such repository"), "{text}");

    let server = Server::run(|_| Reply::new(401, ""));
    let text = ask("o/r", folder.path(), &around(&server, folder.path(), None)).unwrap_err().to_string();
    assert!(text.contains("set HF_TOKEN"), "{text}");

    // The hub promises one hash and its store gives other bytes.
    let server = Server::run(|request| match request.path.starts_with("/api/") {
        true => Reply::new(200, format!(r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "m.gguf"}}]}}"#)),
        false => Reply::file(b"bytes", request).header("ETag", format!("\"{}\"", sha256(b"other"))),
    });
    let error = ask("o/r", folder.path(), &around(&server, folder.path(), None)).unwrap_err();
    assert!(error.to_string().contains(&sha256(b"other")), "{error}");
    assert!(!folder.path().join(format!("hub/models--o--r/snapshots/{COMMIT}/m.gguf")).exists());
}

#[test]
fn a_named_model_can_come_from_the_hub() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = hub(&[]);
    let mut surroundings = around(&server, folder.path(), None);
    surroundings.named_from = Some("hub".into());
    let error = ask(named()[0].name, folder.path(), &surroundings).unwrap_err();
    assert!(server.log()[0].path.contains("SmolLM2-135M-Instruct-GGUF"), "{error}");
    surroundings.named_from = Some("moon".into());
    let error = ask(named()[0].name, folder.path(), &surroundings).unwrap_err();
    assert!(matches!(&error, Error::Input { .. }) && error.to_string().contains("moon"), "{error}");
}

#[test]
fn the_hubs_variables_are_read_as_its_own_tools_read_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "kept\n").unwrap();
    let home = folder.path().to_string_lossy().into_owned();
    let read = |set: &[(&str, &str)]| {
        Hub::from_variables(&|name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    };
    let hub = read(&[("HF_HOME", &home), ("HF_ENDPOINT", "http://h/")]);
    assert_eq!((hub.endpoint.as_str(), hub.token.as_deref()), ("http://h", Some("kept")));
    assert_eq!(hub.folder, Some(folder.path().join("hub")));
    let hub = read(&[("HF_HOME", &home), ("HF_HUB_CACHE", "/c"), ("HF_TOKEN", "given")]);
    assert_eq!((hub.folder.as_deref(), hub.token.as_deref()), (Some(Path::new("/c")), Some("given")));
    let hub = read(&[("HF_HOME", &home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]);
    assert_eq!(hub.token, None);
    assert_eq!(read(&[("HOME", "/h")]).folder.as_deref(), Some(Path::new("/h/.cache/huggingface/hub")));
}
