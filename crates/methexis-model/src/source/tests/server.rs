//! A web server of a few lines that can also misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Start of the range asked for.
    pub(super) fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

pub(super) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cut: Option<usize>,
    trickle: Option<Duration>,
}

impl Reply {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None, trickle: None }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_string(), value.into()));
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub(super) fn cut(mut self, after: usize) -> Self {
        self.cut = Some(after);
        self
    }

    /// Pauses after every 16 KiB.
    pub(super) fn trickle(mut self, pause: Duration) -> Self {
        self.trickle = Some(pause);
        self
    }

    /// A file, the way a server gives it that knows ranges.
    pub(super) fn file(content: &[u8], request: &Request) -> Self {
        match request.from() {
            None => Self::new(200, content),
            Some(from) if from >= content.len() => {
                Self::new(416, "").header("Content-Range", format!("bytes */{}", content.len()))
            }
            Some(from) => Self::new(206, &content[from..])
                .header("Content-Range", format!("bytes {from}-{}/{}", content.len() - 1, content.len())),
        }
    }
}

pub(super) struct Server {
    pub(super) port: u16,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers until the test program ends.
    pub(super) fn run(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (log.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    seen.lock().unwrap().push(request.clone());
                    // The other side may hang up at any time: that is what some tests are about.
                    let _ = write(&stream, &request, &answer(&request));
                });
            }
        });
        Self { port, log }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.trim().to_string(), value.trim().to_string()));
    }
    Some(Request { method, path, headers })
}

fn write(mut stream: &TcpStream, request: &Request, reply: &Reply) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n",
        reply.status,
        reply.body.len()
    )?;
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "\r\n")?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let body = &reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
    for piece in body.chunks(16 << 10) {
        stream.write_all(piece)?;
        if let Some(pause) = reply.trickle {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}
