use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::server::{Reply, Server};
use super::{noise, sha256, Watch};
use crate::source::download::{fetch, Job, Trouble};
use crate::source::network::{client, Via};
use crate::Error;

fn get(server: &Server, to: &Path, hash: &str, watch: &Watch) -> Result<String, Trouble> {
    let url = server.url("/f");
    let job = Job {
        what: "it",
        url: &url,
        headers: &[],
        partial: to,
        sha256: Some(hash),
        bytes: None,
        limit: 1 << 20,
    };
    fetch(&client(None, Via::Given(None)).unwrap(), &job, watch, &watch.cancel)
}

/// Fetches over what is there already; gives the file and the ranges that were asked for.
fn after(
    there: &[u8],
    server: &Server,
    hash: &str,
) -> (Result<String, Trouble>, Vec<u8>, Vec<Option<usize>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.partial");
    if !there.is_empty() {
        std::fs::write(&path, there).unwrap();
    }
    let result = get(server, &path, hash, &Watch::default());
    let ranges = server.log().iter().map(|request| request.from()).collect();
    (result, std::fs::read(&path).unwrap_or_default(), ranges)
}

#[test]
fn a_file_comes_whole_and_its_progress_is_told() {
    let content = noise(700_000);
    let hash = sha256(&content);
    let server = Server::run({
        let content = content.clone();
        move |request| Reply::file(&content, request)
    });
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    assert_eq!(get(&server, &folder.path().join("f"), &hash, &watch).unwrap(), hash);
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), content);
    assert_eq!(watch.lines(), ["it of 700000", "fetched"]);
    assert_eq!(*watch.last.lock().unwrap(), 700_000);
}

#[test]
fn a_partial_file_is_gone_on_with() {
    let content = noise(300_000);
    let server = Server::run({
        let content = content.clone();
        move |request| Reply::file(&content, request)
    });
    let (result, file, ranges) = after(&content[..123_456], &server, &sha256(&content));
    result.unwrap();
    assert_eq!(file, content);
    assert_eq!(ranges, [Some(123_456)]);
}

#[test]
fn a_finished_partial_file_is_not_fetched_again() {
    let content = noise(3_000);
    let server = Server::run({
        let content = content.clone();
        move |request| Reply::file(&content, request)
    });
    let (result, file, ranges) = after(&content, &server, &sha256(&content));
    result.unwrap();
    assert_eq!((file, ranges), (content, vec![Some(3_000)]));
}

#[test]
fn a_server_without_ranges_starts_over() {
    let content = noise(300_000);
    let server = Server::run({
        let content = content.clone();
        move |_| Reply::new(200, content.clone())
    });
    let (result, file, _) = after(&content[..200_000], &server, &sha256(&content));
    result.unwrap();
    assert_eq!(file, content);
}

#[test]
fn a_partial_of_another_file_does_no_harm() {
    let content = noise(5_000);
    for there in [vec![7; 1_000], vec![7; 5_000], vec![7; 9_000]] {
        let server = Server::run({
            let content = content.clone();
            move |request| Reply::file(&content, request)
        });
        let (result, file, ranges) = after(&there, &server, &sha256(&content));
        result.unwrap();
        assert_eq!(file, content);
        assert_eq!(ranges, [Some(there.len()), None]);
    }
}

#[test]
fn a_lying_range_is_not_believed() {
    let content = noise(5_000);
    let server = Server::run({
        let content = content.clone();
        move |request| match request.from() {
            Some(_) => Reply::new(206, &content[10..]).header("Content-Range", "bytes 10-4999/5000"),
            None => Reply::new(200, content.clone()),
        }
    });
    let (result, file, _) = after(&content[..1_000], &server, &sha256(&content));
    result.unwrap();
    assert_eq!(file, content);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let content = noise(400_000);
    let server = Server::run({
        let content = content.clone();
        move |request| {
            let reply = Reply::file(&content, request);
            if request.from().is_none() {
                reply.cut(250_000)
            } else {
                reply
            }
        }
    });
    let (result, file, ranges) = after(&[], &server, &sha256(&content));
    result.unwrap();
    assert_eq!(file, content);
    assert_eq!(ranges, [None, Some(250_000)]);
}

#[test]
fn a_connection_that_always_breaks_is_given_up_and_the_bytes_are_kept() {
    let content = noise(40_000);
    let server = Server::run({
        let content = content.clone();
        move |request| match request.from() {
            None => Reply::file(&content, request).cut(20_000),
            Some(_) => Reply::file(&content, request).cut(0),
        }
    });
    let (result, file, _) = after(&[], &server, &sha256(&content));
    let Err(Trouble::Server(error)) = result else { panic!("{result:?}") };
    let text = error.to_string();
    assert!(text.contains("20000 bytes are kept"), "{text}");
    assert_eq!(file, content[..20_000]);
}

#[test]
fn wrong_bytes_are_thrown_away_and_told() {
    let content = noise(5_000);
    let server = Server::run(move |request| Reply::file(&content, request));
    let wanted = sha256(b"something else");
    let (result, file, ranges) = after(&[], &server, &wanted);
    let Err(Trouble::Fatal(error)) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains(&wanted), "{error}");
    assert!(file.is_empty());
    assert_eq!(ranges, [None]);
}

#[test]
fn refusals_are_told_at_once_and_a_busy_server_is_asked_again() {
    let server = Server::run(|_| Reply::new(404, "no"));
    let (result, _, ranges) = after(&[], &server, "");
    assert!(
        matches!(&result, Err(Trouble::Server(error)) if error.to_string().contains("404")),
        "{result:?}"
    );
    assert_eq!(ranges.len(), 1);

    let turns = AtomicUsize::new(0);
    let server = Server::run(move |request| match turns.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(503, "busy"),
        _ => Reply::file(b"abc", request),
    });
    let (result, file, _) = after(&[], &server, &sha256(b"abc"));
    result.unwrap();
    assert_eq!(file, b"abc");
}

#[test]
fn no_more_is_taken_than_the_thing_can_be() {
    let server = Server::run(|_| Reply::new(200, vec![0; 2 << 20]));
    let (result, file, _) = after(&[], &server, "");
    assert!(
        matches!(&result, Err(Trouble::Fatal(error)) if error.to_string().contains("1048576")),
        "{result:?}"
    );
    assert!(file.is_empty());
}

#[test]
fn no_server_is_told_with_what_to_check() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{port}/");
    let path = folder.path().join("f");
    let job =
        Job { what: "it", url: &url, headers: &[], partial: &path, sha256: None, bytes: None, limit: 9 };
    let watch = Watch::default();
    let result = fetch(&client(None, Via::Given(None)).unwrap(), &job, &watch, &watch.cancel);
    assert!(
        matches!(&result, Err(Trouble::Server(error)) if error.to_string().contains("network")),
        "{result:?}"
    );
}

#[test]
fn a_stop_leaves_a_partial_file_that_the_next_run_takes_up() {
    let content = noise(1_000_000);
    let server = Server::run({
        let content = content.clone();
        move |request| {
            let reply = Reply::file(&content, request);
            if request.from().is_none() {
                reply.trickle(Duration::from_millis(20))
            } else {
                reply
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let hash = sha256(&content);
    let watch = Watch { stop_at: Some(200_000), ..Watch::default() };
    let begun = Instant::now();
    let result = get(&server, &path, &hash, &watch);
    assert!(matches!(result, Err(Trouble::Fatal(Error::Cancelled))), "{result:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let kept = std::fs::read(&path).unwrap();
    assert!(kept.len() >= 200_000 && kept == content[..kept.len()]);

    get(&server, &path, &hash, &Watch::default()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(server.log()[1].from(), Some(kept.len()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_and_what_fits_is_kept_for_later() {
    let Some(disk) = super::Mounted::new("size=256k") else { return };
    let content = noise(700_000);
    let server = Server::run({
        let content = content.clone();
        move |request| Reply::file(&content, request)
    });
    let path = disk.0.path().join("f");
    let hash = sha256(&content);
    let Err(Trouble::Fatal(error)) = get(&server, &path, &hash, &Watch::default()) else {
        panic!("no error")
    };
    let text = error.to_string();
    assert!(text.contains("disk is full") && text.contains("METHEXIS_CACHE"), "{text}");
    let kept = std::fs::read(&path).unwrap();
    assert!(!kept.is_empty() && kept == content[..kept.len()]);
    // Room is made: the same call goes on.
    disk.remount("size=4m");
    get(&server, &path, &hash, &Watch::default()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
}
