//! `methexis chat`: a conversation on the terminal.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::Ordering;

use methexis_model::chat::Message;
use methexis_model::generate::{generate, Finish, Options, Request};
use serde_json::json;

use super::steering::{edits, sampling, Writer};
use crate::cli::Chat;
use crate::commands::Outcome;
use crate::context::{Context, Failure, Result};

pub(crate) fn run(a: &Chat, context: &Context) -> Result<Outcome> {
    let model = context.open(&a.model)?;
    if model.template().is_none() {
        // The same words as any other chat with such a model.
        model.encode_chat(&[Message::new("user", "hello")], true)?;
    }
    let edits = edits(&a.steering, &model)?;
    let options = Options {
        max_tokens: a.steering.max_tokens,
        sampling: sampling(&a.steering, context),
        end_tokens: model.tokenizer().eos().to_vec(),
        cancel: context.cancel.clone(),
    };
    let mut messages: Vec<Message> = a.steering.system.iter().map(|s| Message::new("system", s)).collect();
    context.bars.clear();
    let person = std::io::stdin().is_terminal();
    if person && !context.quiet {
        eprintln!("{} — type a message; /reset begins anew, an empty line or Ctrl-D ends", model.id().name);
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if person {
            eprint!("> ");
        }
        // While it waits for a person, Ctrl-C ends it at once.
        context.waits.store(true, Ordering::SeqCst);
        context.cancel.check()?;
        let line = lines.next();
        context.waits.store(false, Ordering::SeqCst);
        let Some(line) = line else { break };
        let line =
            line.map_err(|e| Failure::from(methexis_model::Error::io("-", "reading standard input", e)))?;
        match line.trim() {
            "" => break,
            "/reset" => {
                messages.retain(|m| m.role == "system");
                continue;
            }
            said => messages.push(Message::new("user", said)),
        }
        let laid = model.encode_chat(&messages, true)?;
        let request = Request { prompt: laid.encoding.ids, edits: edits.clone() };
        let mut show = |piece: &str| {
            if !context.json {
                let mut out = std::io::stdout();
                let _ = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
            }
        };
        let mut writer = Writer::new(&model, &a.steering.stop);
        let done = generate(model.decoder(), &request, &options, &mut |t| writer.push(t, &mut show))?;
        let text = writer.finish(done.finish == Finish::StopString, &mut show);
        show("\n");
        messages.push(Message::new("assistant", text));
        context.cancel.check()?;
    }
    Outcome::new(&json!({"model": model.id().name, "messages": messages}), "")
}
