//! `methexis generate`

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use methexis_concept::layout::{lay_out_prompt, Style};
use methexis_model::generate::{generate, Finish, Options, Request};
use serde_json::json;

use super::steering::{edits, sampling, Writer};
use crate::cli::Generate;
use crate::commands::Outcome;
use crate::context::{Context, Result};

pub(crate) fn run(a: &Generate, context: &Context) -> Result<Outcome> {
    let prompt = if a.prompt == "-" {
        let mut text = String::new();
        // While it waits for its prompt, Ctrl-C ends it at once.
        context.waits.store(true, Ordering::SeqCst);
        context.cancel.check()?;
        let read = std::io::stdin().read_to_string(&mut text);
        context.waits.store(false, Ordering::SeqCst);
        read.map_err(|e| methexis_model::Error::io("-", "reading standard input", e))?;
        text
    } else {
        a.prompt.clone()
    };
    let model = context.open(&a.model)?;
    let style = if a.plain { Style::Plain } else { Style::natural(&model) };
    let tokens = lay_out_prompt(&model, style, a.steering.system.as_deref(), &prompt)?;
    let options = Options {
        max_tokens: a.steering.max_tokens,
        sampling: sampling(&a.steering, context),
        end_tokens: model.tokenizer().eos().to_vec(),
        cancel: context.cancel.clone(),
    };
    let request = Request { prompt: tokens, edits: edits(&a.steering, &model)? };
    // Streamed as it comes, unless it is wanted as data.
    let stream = !context.json;
    let mut show = |piece: &str| {
        if stream {
            let mut out = std::io::stdout();
            let _ = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        }
    };
    context.bars.clear();
    let mut writer = Writer::new(&model, &a.steering.stop);
    let done = generate(model.decoder(), &request, &options, &mut |t| writer.push(t, &mut show))?;
    let text = writer.finish(done.finish == Finish::StopString, &mut show);
    if done.finish == Finish::Cancelled && !context.json {
        show("\n");
    }
    context.cancel.check()?;
    let data = json!({
        "model": model.id().name, "style": style, "prompt_tokens": request.prompt.len(), "tokens": done.tokens.len(),
        "finish": done.finish, "text": text,
    });
    Outcome::new(&data, "\n")
}
