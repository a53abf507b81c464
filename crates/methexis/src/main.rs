//! The command line of Methexis: what was typed becomes a command, a command gives data, data is rendered.

mod cli;
mod commands;
mod context;
mod progress;
mod render;

use std::process::ExitCode;

use clap::Parser;

/// Passes allocate and free large tensors all the time; this one keeps their pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tells the allocator to keep freed pages: a pass would otherwise fault them in anew, a sixth of its time.
#[allow(unsafe_code)]
fn keep_pages() {
    // The number of `mi_option_purge_delay` in the enumeration of mimalloc 2 and 3.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: sets a number in the allocator's options; called before any other thread starts.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) }
}

fn main() -> ExitCode {
    keep_pages();
    let cli = cli::Cli::parse();
    context::set_threads(cli.global.threads);
    let context = match context::Context::new(&cli.global) {
        Ok(c) => c,
        Err(e) => return report(&e),
    };
    match commands::run(cli.command, &context) {
        Ok(outcome) => {
            let written = if cli.global.json {
                serde_json::to_string_pretty(&outcome.json).map_err(std::io::Error::other)
            } else {
                Ok(outcome.text)
            };
            let text = match written {
                Ok(t) => t,
                Err(e) => {
                    eprintln!("error: {e}");
                    return ExitCode::FAILURE;
                }
            };
            use std::io::Write;
            let mut out = std::io::stdout().lock();
            // A closed pipe (| head) is no failure.
            let end: &[u8] = if text.is_empty() || text.ends_with('\n') { b"" } else { b"\n" };
            let written =
                out.write_all(text.as_bytes()).and_then(|()| out.write_all(end)).and_then(|()| out.flush());
            if let Err(e) = written {
                if e.kind() != std::io::ErrorKind::BrokenPipe {
                    eprintln!("error: standard output cannot be written: {e}");
                    return ExitCode::FAILURE;
                }
            }
            if outcome.good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(e) => report(&e),
    }
}

/// Says what went wrong: exit code 2 for wrong usage, 130 for the user's own stop, 1 for everything else.
fn report(e: &context::Failure) -> ExitCode {
    if e.is_cancelled() {
        eprintln!("stopped; what was finished is kept");
        return ExitCode::from(130);
    }
    eprintln!("error: {e}");
    ExitCode::from(if e.is_usage() { 2 } else { 1 })
}
