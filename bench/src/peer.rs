//! The peers: a Python worker in a virtual environment of its own, which answers one JSON line to each.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::Result;

/// A running worker.
pub(crate) struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    /// Installs what is missing into `home`, and starts the worker.
    pub(crate) fn start(home: &Path, threads: usize) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let venv = home.join("venv");
        let python = venv.join("bin").join("python");
        let requirements = here.join("requirements.txt");
        let stamp = venv.join("installed.txt");
        let wanted = std::fs::read_to_string(&requirements)?;
        if std::fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
            eprintln!("installing the peers into {} …", venv.display());
            std::fs::create_dir_all(home)?;
            run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements))?;
            std::fs::write(&stamp, wanted)?;
        }
        let mut child = Command::new(&python)
            .arg(here.join("peer.py"))
            .args(["--threads", &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else { return Err("the peer has no pipes".into()) };
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    /// Asks and waits.
    pub(crate) fn ask(&mut self, request: Value) -> Result<Value> {
        let what = request.get("do").cloned().unwrap_or_default();
        writeln!(self.to, "{request}")?;
        self.to.flush()?;
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(format!("the peer ended during {what}").into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer.get("error") {
            Some(e) => Err(format!("peer, {what}: {e}").into()),
            None => Ok(answer),
        }
    }

    /// Asks for something that takes a time.
    pub(crate) fn seconds(&mut self, request: Value) -> Result<f64> {
        let answer = self.ask(request)?;
        answer.get("seconds").and_then(Value::as_f64).ok_or_else(|| "the peer told no time".into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed: {status}").into())
}

/// The file of a model that the user names.
pub(crate) fn file_of(name: &str) -> Result<PathBuf> {
    use methexis_model::source::{FetchOptions, Source};
    Ok(Source::parse(name)?.resolve(&FetchOptions::from_env()?)?.path)
}
